"""What follows a commit of the gateway, and the indexes by which its rows are found again."""

from dataclasses import dataclass

from nightmill.kernel.domain.lifecycle import ShardState
from nightmill.kernel.runtime.service import Index
from nightmill.kernel.wire.messages import ProviderBatchRow, ShardStateRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """Effect: the shard's row is committed, its calls may start."""

    row: ShardStateRow
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Effect: these attempts' answers are committed."""

    keys: tuple[str, ...]


INDEXES = (
    Index(
        name="open",
        row=ShardStateRow,
        key=lambda row: None if row.state is ShardState.DONE else row.accepted_at_ms.to_bytes(8, "big"),
    ),
    Index(
        name="ended",
        row=ShardStateRow,
        key=lambda row: None if row.ended_at_ms is None else row.ended_at_ms.to_bytes(8, "big"),
    ),
    Index(
        name="batch_open",
        row=ProviderBatchRow,
        key=lambda row: None if row.removed_at_ms is not None else row.intent_at_ms.to_bytes(8, "big"),
    ),
    Index(
        name="batch_removed",
        row=ProviderBatchRow,
        key=lambda row: None if row.removed_at_ms is None else row.removed_at_ms.to_bytes(8, "big"),
        in_memory=False,
    ),
)
