"""Bitmaps of outcomes: first settlement counts, sums hold, a new generation is a copy minus what is open."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.kernel.domain.bitmap import Bitmap
from nightmill.kernel.domain.lifecycle import ItemOutcome
from nightmill.publisher.accounting import (
    CHUNK,
    WIDTH,
    Change,
    Chunk,
    accounted,
    chunk_id,
    counts_of,
    disagreement,
    missing,
    next_generation,
    no_counts,
)

A, R, D = ItemOutcome.ACCEPTED, ItemOutcome.REJECTED, ItemOutcome.DEAD_LETTER
V, C = ItemOutcome.IN_REVIEW, ItemOutcome.CANCELLED


@pytest.mark.parametrize(
    ("before", "outcome", "revision", "change"),
    [
        (None, A, 1, Change(before=None, after=A)),
        (None, V, 1, Change(before=None, after=V)),
        (None, R, 2, Change(before=None, after=R)),
        (A, A, 1, None),
        (A, R, 1, None),
        (A, R, 2, None),
        (V, V, 2, None),
        (V, A, 1, None),
        (V, A, 2, Change(before=V, after=A)),
        (V, R, 3, Change(before=V, after=R)),
        (D, A, 2, None),
        (C, A, 2, None),
    ],
)
def test_which_settlement_changes_what(
    before: ItemOutcome | None, outcome: ItemOutcome, revision: int, change: Change | None
) -> None:
    """E1: a repeat changes nothing; only a review's decision replaces an outcome."""
    chunk = Chunk("b", 1, 0)
    if before is not None:
        chunk.apply(9, Change(before=None, after=before))
    assert chunk.change_by(9, outcome, revision) == change


def test_a_chunk_and_its_row_hold_the_same() -> None:
    chunk = Chunk("b", 2, 1)
    chunk.apply(CHUNK, Change(before=None, after=A))
    chunk.apply(2 * CHUNK - 1, Change(before=None, after=D))
    row = chunk.row()
    assert row.chunk_id == chunk_id("b", 2, 1) == "b/2/0000000001"
    assert (row.accepted[0], row.dead_letter[-1], len(row.cancelled)) == (1, 0x80, WIDTH)
    assert Chunk("b", 2, 1, row).row() == row


def test_what_is_missing_from_a_version() -> None:
    chunk = Chunk("b", 1, 0)
    for ordinal, outcome in enumerate([A, A, R, D, V, C]):
        chunk.apply(ordinal, Change(before=None, after=outcome))
    counts = counts_of([chunk.row()], reused=1)
    assert (accounted(counts), missing(counts), counts.reused) == (6, 3, 1)
    assert disagreement(6, counts, [chunk.row()]) is None
    assert "7 items were planned, 6 are accounted for" in (disagreement(7, counts, [chunk.row()]) or "")
    assert "bitmaps hold accepted 2" in (disagreement(0, no_counts(), [chunk.row()]) or "")


@given(
    planned=st.integers(1, 2 * CHUNK + 77),
    ends=st.dictionaries(st.integers(0, 2 * CHUNK + 76), st.sampled_from(list(ItemOutcome)), max_size=60),
)
def test_a_new_generation_plans_exactly_what_is_open(planned: int, ends: dict[int, ItemOutcome]) -> None:
    """E11: accepted, rejected and reviewed rows are copied; every other ordinal is selected, none beyond the plan."""
    ends = {ordinal: outcome for ordinal, outcome in ends.items() if ordinal < planned}
    chunks: dict[int, Chunk] = {}
    for ordinal, outcome in ends.items():
        chunk = chunks.setdefault(ordinal // CHUNK, Chunk("b", 1, ordinal // CHUNK))
        chunk.apply(ordinal, Change(before=None, after=outcome))
    copies, selected = next_generation("b", 2, planned, [chunk.row() for chunk in chunks.values()])
    kept = {ordinal: outcome for ordinal, outcome in ends.items() if outcome in (A, R, V)}
    assert set(Bitmap.from_bytes(selected).ordinals()) == set(range(planned)) - set(kept)
    copied = {row.chunk: Chunk("b", 2, row.chunk, row) for row in copies}
    assert {o: copied[o // CHUNK].outcome(o) for o in ends} == {o: kept.get(o) for o in ends}
    assert accounted(counts_of(copies, 0)) == len(kept)
