"""Bill beside ledger: each case is two books that agree with one thing spoilt; and the demo's files are whole."""

from dataclasses import replace

import pytest

from demo.books import render
from demo.tickets import tickets
from kit.bill import Booked, Charge, compare
from nightmill.client.pipelines import load_pipeline
from nightmill.kernel.resources import resource
from nightmill.kernel.runtime.settings import load_config
from nightmill.provider_simulator.run import load_scenario

CHARGE = Charge(attempt_id="a-1", model="m", billed=True, delivered=True, nano_usd=70, batch_id="b")
BOOKED = Booked(
    attempt_id="a-1",
    model="m",
    state="answered",
    billed="yes",
    signal="",
    verdict="accepted",
    cost_nano_usd=70,
    reserved_nano_usd=100,
)
LOST_CHARGE = replace(CHARGE, attempt_id="b-1", delivered=False)
LOST = replace(BOOKED, attempt_id="b-1", state="unknown", billed="unknown", cost_nano_usd=None, verdict="")
FREE = replace(BOOKED, attempt_id="c-1", state="failed", billed="no", cost_nano_usd=None, verdict="")
CHARGES = (CHARGE, LOST_CHARGE, replace(CHARGE, attempt_id="c-1", billed=False, nano_usd=0))
LEDGER = (BOOKED, LOST, FREE)

DIFFERENT: dict[str, tuple[tuple[Charge, ...], tuple[Booked, ...], str]] = {
    "another cost": (CHARGES, (replace(BOOKED, cost_nano_usd=71), LOST, FREE), "was billed 70 and costs 71"),
    "a cost that nobody charged": ((LOST_CHARGE,), LEDGER, "was billed 0 and costs 70"),
    "a charge that the ledger lacks": (CHARGES, (BOOKED, FREE), "b-1 was billed and is not in the ledger"),
    "free, and charged": (CHARGES, (replace(BOOKED, billed="no"), LOST, FREE), "is free in the ledger"),
    "more than was reserved": (CHARGES, (BOOKED, replace(LOST, reserved_nano_usd=69), FREE), "69 is reserved"),
    "charged twice": ((*CHARGES, CHARGE), LEDGER, "a-1 was billed 2 times"),
}


def test_known_costs_are_the_bill_and_unknown_ones_are_covered() -> None:
    """O1: unknown is never 0."""
    found = compare(CHARGES, LEDGER)
    assert found.agrees
    assert (found.bill_nano_usd, found.known_nano_usd, found.unknown_charged_nano_usd) == (140, 70, 70)
    assert (found.known, len(found.unknown), found.unknown_reserved_nano_usd) == (1, 1, 100)


@pytest.mark.parametrize("case", DIFFERENT)
def test_what_differs_is_found(case: str) -> None:
    """O1: the comparison can fail."""
    charges, booked, said = DIFFERENT[case]
    found = compare(charges, booked)
    assert not found.agrees
    assert any(said in text for text in found.differences), found.differences


def test_the_report_names_every_unknown_cost() -> None:
    text = render(CHARGES, LEDGER, {"by_fault": {"row_missing": 1}, "lost": {"calls": 1}})
    assert "b-1" in text
    assert "bill = ledger: 0.000000140 = 0.000000070 known + 0.000000070 of the unknown" in text
    assert "differ in 1 places" in render(CHARGES, LEDGER[:1], {"by_fault": {}, "lost": {"calls": 1}})


def test_tickets_are_the_same_for_the_same_seed_and_no_two_are_equal() -> None:
    rows = list(tickets(300, 7))
    assert rows == list(tickets(300, 7))
    assert rows != list(tickets(300, 8))
    assert len({row["body"] for row in rows}) == len({row["id"] for row in rows}) == 300


def test_the_demos_files_fit_together() -> None:
    """P4: its pipeline's pools are in its settings, each with a Batch API and a price."""
    config, pipeline = load_config(resource("deploy", "demo-bulk")), load_pipeline("ticket-triage")
    pools = [config.pools[name] for name in pipeline.model.pools]
    assert {pool.provider for pool in pools} == {"openai", "anthropic"}
    assert all(pool.bulk is not None and config.prices.periods(pool) for pool in pools)
    assert {pool.model for pool in pools} == set(load_scenario(resource("deploy", "demo-bulk", "scenario.yaml")).models)
