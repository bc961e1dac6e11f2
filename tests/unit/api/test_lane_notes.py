"""What `explain` says of an item's lane (P5, P6)."""

from typing import Any

import pytest

from nightmill.api.board import Board
from nightmill.api.lane_notes import lane_notes
from nightmill.kernel.domain.lifecycle import Lane
from nightmill.kernel.runtime.log import partition_of
from nightmill.kernel.wire.messages import LaneChoiceRow
from nightmill.kernel.wire.values import replace
from unit.planner.makers import make_config, make_pipeline

BATCH = "acme.sort-tickets.20261129-000000-a1.1"
CONFIG = make_config()


@pytest.mark.parametrize(
    ("fields", "lane", "reason"),
    [
        ({}, Lane.REALTIME, "the pipeline says lane: realtime; pools: mini"),
        ({"lane": "bulk"}, Lane.BULK, "the pipeline says lane: bulk; pools: none; not mini: has no bulk lane"),
        (
            {"sensitivity": "confidential", "model": {"pools": ["mini", "big"], "max_output_tokens": 9}},
            Lane.REALTIME,
            "the pipeline says lane: realtime; pools: big; not mini: may see internal documents at most, these are "
            "confidential",
        ),
    ],
)
def test_a_fixed_lane(fields: dict[str, Any], lane: Lane, reason: str) -> None:
    (note,) = lane_notes(Board(), CONFIG, make_pipeline(**fields), BATCH, "k")
    assert (note.lane, note.since, note.reason) == (lane, None, reason)


def test_a_choice_and_its_moves_oldest_first() -> None:
    """P5: which lane, since when, why; of the item's own partition."""
    mine = partition_of(b"item", 3)
    row = LaneChoiceRow(
        choice_id=f"{BATCH}/{mine}",
        batch_id=BATCH,
        partition=mine,
        lane=Lane.BULK,
        reason="there is no deadline",
        chosen_at_ms=1_796_000_000_007,
    )
    frozen = make_pipeline(lane="by deadline")

    def told(row: LaneChoiceRow) -> list[tuple[Lane, str | None, str]]:
        other = replace(row, choice_id=f"{BATCH}/{(mine + 1) % 3}", reason="another partition's")
        board = Board(lanes={each.choice_id: each for each in (row, other)}, partitions=3)
        return [(n.lane, n.since, n.reason) for n in lane_notes(board, CONFIG, frozen, BATCH, "item")]

    first = (Lane.BULK, "2026-11-30 00:53:20.007", "there is no deadline")
    assert told(row) == [first]
    moved = replace(row, lane=Lane.REALTIME, moved_at_ms=1_796_003_600_000, moved_reason="in danger")
    assert told(moved) == [first, (Lane.REALTIME, "2026-11-30 01:53:20.000", "in danger")]
    recalled = replace(moved, recalled_at_ms=1_796_003_601_000, recalled_reason="still so")
    assert told(recalled)[2] == (Lane.REALTIME, "2026-11-30 01:53:21.000", "submissions called back; still so")
    assert lane_notes(Board(), CONFIG, frozen, BATCH, "item") == []
