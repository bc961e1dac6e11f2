"""The list of failure rows that people read is whole, and each row names tests that there are (E8)."""

import ast
from pathlib import Path

import pytest

from integration.failure_bytes import RAW
from integration.failure_cases import CASES
from integration.test_bulk_failures import GOES_ON, LOST, STOPS, STRANGE
from nightmill.provider_gateway.failures import ROWS, Signal

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs" / "providers.md"
#: tests that have one case for each row, and the beginnings of their cases' names
TABLES = {
    "test_a_failure_of_the_simulated_provider": [case.row for case in CASES],
    "test_a_failure_of_another_server": [case.row for case in RAW],
    "test_nothing_is_paid_twice_and_nothing_left_behind": [row[0] for row in GOES_ON],
    "test_what_the_provider_has_lost_is_for_a_person_to_pay_again": [row[0] for row in LOST],
    "test_a_refusal_that_no_other_batch_would_mend_stops_the_lane": [row[0] for row in STOPS],
    "test_results_that_do_not_add_up_raise_an_alarm": [row[0] for row in STRANGE],
}
#: our own side's, which no provider shows
OURS = {
    *(Signal.POOL_UNUSABLE, Signal.PROMPT_UNRENDERABLE, Signal.DOCUMENT_MISSING, Signal.CRASHED, Signal.MOVED),
    *(Signal.NO_DESCRIPTORS, Signal.LIST_TOO_LONG),
}


def listed() -> dict[int, tuple[set[str], list[str]]]:
    """Row → signals and tests that the page names."""
    rows: dict[int, tuple[set[str], list[str]]] = {}
    for line in PAGE.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and cells[0].isdecimal():
            assert int(cells[0]) not in rows, f"row {cells[0]} is there twice"
            rows[int(cells[0])] = (
                {word.strip("`") for word in cells[2].split()},
                [word.strip("`") for word in cells[4].split()],
            )
    return rows


@pytest.fixture(scope="module")
def tests() -> set[str]:
    """Names of all tests that there are."""
    trees = (ast.parse(path.read_text("utf-8")) for path in TESTS.rglob("test_*.py"))
    return {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_no_row_is_missing() -> None:
    """E8: fifty-four, in order."""
    assert list(listed()) == list(range(1, 55))


def test_every_row_names_tests_that_there_are(tests: set[str]) -> None:
    """E8: and those that are tables have a case for it."""
    for row, (_, names) in listed().items():
        assert names, f"row {row}"
        assert set(names) <= tests, f"row {row}: {set(names) - tests}"
        for name in names:
            cases = TABLES.get(name)
            assert cases is None or any(case.split()[0] == str(row) for case in cases), f"row {row} in {name}"


def test_every_signal_belongs_to_a_row() -> None:
    """E8: what a provider can show stands in the list."""
    named = {signal for signals, _ in listed().values() for signal in signals}
    assert named == {signal.value for signal in ROWS} - {signal.value for signal in OURS}
