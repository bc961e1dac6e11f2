"""From ready items to shards (P3): what is taken from which queue, what goes together, and how it is minted.

Items wait in queues of one pool and one batch. More urgent batches go first (priority, then deadline); batches of equal
urgency share the room. Inside a queue the order is that of planning. A shard holds items of one job, pipeline and
shared prompt prefix, so that a provider's or server's prefix cache helps, up to a number of items and of tokens.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from nightmill.kernel.domain.ids import job_of
from nightmill.kernel.domain.lifecycle import ItemEvent, Lane, advance_item
from nightmill.kernel.wire.messages import BatchControlled, ItemStateRow, ShardAttempt, ShardDispatched, Waiter
from nightmill.kernel.wire.totals import NO_TOTALS
from nightmill.kernel.wire.values import replace

_NO_DEADLINE_MS = 2**62
#: of an attempt in its shard's message, without texts of its own
_ATTEMPT_BYTES = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSize:
    """What one shard may hold."""

    items: int
    tokens: int
    bytes: int
    #: what is in a shard is one call: an item whose last call failed goes with an eighth, after a second one alone,
    #: so that an input that breaks its server takes fewer and fewer others with it
    is_one_call: bool = False

    def items_after(self, tries: int) -> int:
        """How many items go together that have used so much of their retry budget."""
        if not self.is_one_call or tries == 0:
            return self.items
        return max(1, self.items // 8) if tries == 1 else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """Ready items of one batch for one pool, as far as choosing among queues needs them."""

    batch_id: str
    priority: int
    deadline_at_ms: int
    served: int  #: when it was last taken from; higher is later


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An item that may be dispatched now, with its live waiters and who pays."""

    row: ItemStateRow
    waiters: tuple[Waiter, ...]
    payer: Waiter
    input_tokens: int  #: estimate, with the repair's text


def queue_of(control: BatchControlled, served: int) -> Queue:
    """The queue of a batch under its present word."""
    deadline = _NO_DEADLINE_MS if control.deadline_at_ms is None else control.deadline_at_ms
    return Queue(batch_id=control.batch_id, priority=control.priority, deadline_at_ms=deadline, served=served)


def in_order(queues: Iterable[Queue]) -> Iterator[tuple[Queue, int]]:
    """Queues in the order in which they are taken from, each with the number of equally urgent ones from it on.

    Whoever takes at most `ceil(room / that number)` from each gives equally urgent batches equal shares and hands on
    what one of them did not need. The queue that waited longest for its turn comes first among equals.
    """
    ordered = sorted(queues, key=lambda q: (-q.priority, q.deadline_at_ms, q.served, q.batch_id))
    for _, group in groupby(ordered, key=lambda q: (q.priority, q.deadline_at_ms)):
        equals = list(group)
        for position, queue in enumerate(equals):
            yield queue, len(equals) - position


def pack(candidates: Sequence[Candidate], *, most: ShardSize) -> list[list[Candidate]]:
    """Groups candidates into shards, each candidate into exactly one, in their order.

    A shard exceeds `most` in tokens or bytes only when it is a single item.
    """
    shards: list[list[Candidate]] = []
    open_shards: dict[tuple[str, str, str, int], tuple[list[Candidate], int, int]] = {}
    for candidate in candidates:
        row = candidate.row
        tokens, size = candidate.input_tokens + row.max_output_tokens, _bytes_of(row)
        items = most.items_after(row.tries)
        group = (job_of(candidate.payer.batch_id), row.pipeline_digest, row.prefix, items)
        shard, used, filled = open_shards.get(group, ([], 0, 0))
        if not shard or len(shard) >= items or used + tokens > most.tokens or filled + size > most.bytes:
            shard, used, filled = [], 0, 0
            shards.append(shard)
        shard.append(candidate)
        open_shards[group] = (shard, used + tokens, filled + size)
    return shards


def _bytes_of(row: ItemStateRow) -> int:
    """What an item takes in its shard's message, on the safe side."""
    repair = 0 if row.repair is None else 4 * (len(row.repair.output) + len(row.repair.problem))
    return _ATTEMPT_BYTES + 4 * len(row.source_id) + repair


def mint(
    shard: Sequence[Candidate], *, pool: str, lane: Lane, now_ms: int, overdue_at_ms: int
) -> tuple[ShardDispatched, list[ItemStateRow]]:
    """The shard's message and the rows of its items, each with a new attempt.

    An account that another batch ran up is dropped when the payer changes: nobody pays for calls it did not cause.
    """
    first = shard[0].row
    shard_id = f"{first.item_key[:16]}-{first.ordinal + 1}-{now_ms}"
    rows = [
        replace(
            candidate.row,
            state=advance_item(candidate.row.state, ItemEvent.DISPATCH),
            waiters=candidate.waiters,
            ordinal=candidate.row.ordinal + 1,
            minted_at_ms=now_ms,
            shard_id=shard_id,
            pool=pool,
            lane=lane,
            payer=candidate.payer,
            overdue=0,
            due_at_ms=overdue_at_ms,
            totals=candidate.row.totals if _pays_on(candidate) else NO_TOTALS,
        )
        for candidate in shard
    ]
    attempts = [
        attempt_of(row, candidate.payer, candidate.input_tokens) for row, candidate in zip(rows, shard, strict=True)
    ]
    return shard_message(shard_id, rows[0], attempts, now_ms), rows


def attempt_of(row: ItemStateRow, payer: Waiter, input_tokens: int) -> ShardAttempt:
    """The current attempt of a dispatched row, as the gateway gets it."""
    if row.minted_at_ms is None:
        raise ValueError(f"item {row.item_key} has no minted attempt")
    return ShardAttempt(
        item_key=row.item_key,
        ordinal=row.ordinal,
        minted_at_ms=row.minted_at_ms,
        batch_id=payer.batch_id,
        generation=payer.generation,
        source_id=row.source_id,
        row=row.row,
        input_tokens=input_tokens,
        max_output_tokens=row.max_output_tokens,
        repair=row.repair,
    )


def shard_message(shard_id: str, first: ItemStateRow, attempts: Sequence[ShardAttempt], now_ms: int) -> ShardDispatched:
    """The shard of these attempts; `first` is the row of any of them."""
    return ShardDispatched(
        shard_id=shard_id,
        pool=first.pool or "",
        lane=first.lane or Lane.REALTIME,
        job_id=job_of(attempts[0].batch_id),
        pipeline_digest=first.pipeline_digest,
        attempts=tuple(attempts),
        dispatched_at_ms=now_ms,
    )


def _pays_on(candidate: Candidate) -> bool:
    payer = candidate.row.payer
    return payer is not None and payer.batch_id == candidate.payer.batch_id
