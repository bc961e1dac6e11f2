"""Which lane an item took, with which pools, and why: from the dispatcher's choice, or from the pipeline (P5, P6)."""

from datetime import UTC, datetime

from nightmill.api.board import Board
from nightmill.api.findings import LaneNote
from nightmill.kernel.domain.ids import dataset_of
from nightmill.kernel.domain.lanes import Outlook, choose, pools_for
from nightmill.kernel.domain.lifecycle import Lane
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.settings import Config, Tenant
from nightmill.kernel.runtime.log import partition_of
from nightmill.kernel.wire.messages import LaneChoiceRow

_NO_OUTLOOK = Outlook(left_ms=None, items=0, per_s=1.0, call_ms=0)


def lane_notes(board: Board, config: Config, pipeline: Pipeline, batch_id: str, item_key: str) -> list[LaneNote]:
    """Oldest first. Empty where the deadline decides and the dispatcher has not, or did so more than 30 days ago.

    A lane that the pipeline fixes is explained by the pools as they are configured now.
    """
    if isinstance(pipeline.lane, Lane):
        choice = choose(pipeline, has_bulk=True, outlook=_NO_OUTLOOK)
        rights = config.tenants.get(dataset_of(batch_id).partition(".")[0]) or Tenant()
        pools = pools_for(pipeline, choice.lane, config.pools, rights).words
        return [LaneNote(lane=choice.lane, since=None, reason=f"{choice.reason}; {pools}")]
    row = board.lanes.get(f"{batch_id}/{partition_of(item_key.encode(), board.partitions)}")
    return [] if row is None else list(_of_row(row))


def _of_row(row: LaneChoiceRow) -> list[LaneNote]:
    first = row.lane if row.moved_at_ms is None else Lane.BULK
    notes = [LaneNote(lane=first, since=_moment(row.chosen_at_ms), reason=row.reason)]
    if row.moved_at_ms is not None:
        notes.append(LaneNote(lane=row.lane, since=_moment(row.moved_at_ms), reason=row.moved_reason or ""))
    if row.recalled_at_ms is not None:
        reason = f"submissions called back; {row.recalled_reason}"
        notes.append(LaneNote(lane=row.lane, since=_moment(row.recalled_at_ms), reason=reason))
    return notes


def _moment(at_ms: int) -> str:
    """As the ledger writes it, UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.") + f"{at_ms % 1000:03d}"
