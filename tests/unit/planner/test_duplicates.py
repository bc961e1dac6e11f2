"""The search for duplicate ids finds exactly the repeats, whatever the slices and passes."""

from hypothesis import given
from hypothesis import strategies as st

from nightmill.planner.duplicates import STEP_RUNS, DuplicateSearch, IdEntry, duplicates_in, write_run

SLICES = st.lists(st.lists(st.sampled_from([f"id-{n}" for n in range(30)] + ["", "é", "a\0b"]), max_size=8), max_size=8)


def search(slices: list[list[str]], *, pass_entries: int) -> tuple[DuplicateSearch, int]:
    """A finished search, and its steps. Row numbers are ten times the ordinal."""
    runs: dict[str, bytes] = {}
    ordinal = 0
    for number, ids in enumerate(slices):
        placed = [(id_, IdEntry(row=10 * (ordinal + i), ordinal=ordinal + i)) for i, id_ in enumerate(ids)]
        runs[str(number)] = write_run(placed)
        ordinal += len(ids)
    found = DuplicateSearch(tuple(runs), ordinal, runs.__getitem__, pass_entries=pass_entries)
    steps = 1
    while not found.step():
        steps += 1
    return found, steps


@given(slices=SLICES, pass_entries=st.integers(1, 20))
def test_it_finds_exactly_the_repeats(slices: list[list[str]], pass_entries: int) -> None:
    """M3"""
    first_seen: dict[str, int] = {}
    repeats = []
    for ordinal, id_ in enumerate(id_ for ids in slices for id_ in ids):
        if id_ in first_seen:
            repeats.append((first_seen[id_], ordinal))
        first_seen.setdefault(id_, ordinal)
    found, _ = search(slices, pass_entries=pass_entries)
    assert found.count == len(repeats)
    named = [(pair.first.ordinal, pair.second.ordinal) for pair in found.first]
    assert named == sorted(repeats, key=lambda pair: pair[1])[:5]
    assert all(pair.first.row == 10 * pair.first.ordinal for pair in found.first)


def test_a_step_reads_a_bounded_number_of_runs() -> None:
    slices = [[f"{number}-{i}" for i in range(4)] for number in range(3 * STEP_RUNS)]
    assert search(slices, pass_entries=10_000)[1] == 3
    # 768 entries in two passes of at most 400 read every run twice
    assert search(slices, pass_entries=400)[1] == 6


def test_a_search_that_is_complete_stays_so() -> None:
    found, _ = search([["a"], ["a"]], pass_entries=1)
    assert found.step()
    assert found.count == 1


def test_without_rows_there_is_nothing_to_find() -> None:
    found, steps = search([], pass_entries=1)
    assert (found.count, found.first, steps) == (0, (), 1)


def test_repeats_of_one_list_are_paired_with_the_first() -> None:
    placed = [("x", IdEntry(row=3, ordinal=0)), ("y", IdEntry(row=4, ordinal=1)), ("x", IdEntry(row=9, ordinal=2))]
    run = write_run(placed)
    (pair,) = duplicates_in([run[at : at + 32] for at in range(0, len(run), 32)])
    assert (pair.first.row, pair.second.row) == (3, 9)
