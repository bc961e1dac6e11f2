"""Indexes of the item table, and what is derived from its rows per open partition.

Rows are the truth. A `Backlog` only spares looking: it counts unanswered items by pool, knows which queues may hold
something, and when the next row is due, so that a tick with nothing to do costs next to nothing. It is rebuilt from the
indexes when a partition opens and forgotten when it closes.
"""

import struct
from collections import Counter
from collections.abc import Iterator
from itertools import islice

from nightmill.dispatcher.conduct import Conduct
from nightmill.dispatcher.rate import AnswerRate
from nightmill.kernel.domain.lifecycle import ItemState, Lane
from nightmill.kernel.runtime.service import Index, TableReader
from nightmill.kernel.wire.messages import ItemStateRow, LaneChoiceRow

NEVER_MS = 2**62

_ORDER = struct.Struct(">IQQI")
_TIME = struct.Struct(">Q")
_HIGHEST_PRIORITY = 2**31 - 1


def time_key(at_ms: int) -> bytes:
    """Sort bytes of a time."""
    return _TIME.pack(at_ms)


def queue_prefix(pool: str, batch_id: str) -> bytes:
    """What the ready keys of one queue begin with."""
    return f"{pool}\0{batch_id}\0".encode()


def shared_prefix(batch_id: str) -> bytes:
    """What the keys of shared items that a batch leads begin with."""
    return f"{batch_id}\0".encode()


def after_prefix(prefix: bytes) -> bytes:
    """The first key after all that begin with a prefix that ends in a zero byte."""
    return prefix[:-1] + b"\x01"


def shared_key(row: ItemStateRow) -> bytes | None:
    """Ready items that several batches wait for, by the batch that leads."""
    if len(row.waiters) < 2 or not _is_ready(row):
        return None
    return shared_prefix(row.waiters[0].batch_id) + row.item_key.encode()


def _is_ready(row: ItemStateRow) -> bool:
    return row.state is ItemState.READY or row.state is ItemState.REPAIR


def _ready_key(row: ItemStateRow) -> bytes | None:
    """Pool and leading batch, then priority (high first), deadline, planning time, place in the batch."""
    if not _is_ready(row):
        return None
    lead = row.waiters[0]
    deadline = NEVER_MS if row.deadline_at_ms is None else row.deadline_at_ms
    return queue_prefix(row.pool or "", lead.batch_id) + _ORDER.pack(
        _HIGHEST_PRIORITY - row.priority, deadline, row.planned_at_ms, lead.ordinal
    )


def _due_key(row: ItemStateRow) -> bytes | None:
    """Retry time of a waiting item, watchdog time of a dispatched one."""
    return None if row.due_at_ms is None else _TIME.pack(row.due_at_ms)


def _shard_key(row: ItemStateRow) -> bytes | None:
    return None if row.shard_id is None else f"{row.shard_id}\0".encode()


def _ended_key(row: ItemStateRow) -> bytes | None:
    return None if row.ended_at_ms is None else _TIME.pack(row.ended_at_ms)


def _chosen_key(row: LaneChoiceRow) -> bytes:
    return _TIME.pack(row.chosen_at_ms)


INDEXES = (
    Index(name="ready", row=ItemStateRow, key=_ready_key),
    Index(name="due", row=ItemStateRow, key=_due_key),
    Index(name="shard", row=ItemStateRow, key=_shard_key),
    Index(name="shared", row=ItemStateRow, key=shared_key),
    # these grow with the past, and are looked at once a minute
    Index(name="ended", row=ItemStateRow, key=_ended_key, in_memory=False),
    Index(name="lane_chosen", row=LaneChoiceRow, key=_chosen_key, in_memory=False),
)


def shard_rows(items: TableReader[ItemStateRow], shard_id: str) -> list[ItemStateRow]:
    """Rows that are still dispatched under a shard."""
    prefix = f"{shard_id}\0".encode()
    return list(items.index("shard", start=prefix, stop=after_prefix(prefix)))


class Backlog:
    """What one open partition has to do."""

    def __init__(self, items: TableReader[ItemStateRow]) -> None:
        #: how fast each pool answers
        self.rate = AnswerRate()
        #: how tenants' prompts fare with providers' policies
        self.conduct = Conduct()
        #: ready items, and those that are unanswered in the bulk lane, by the batch that leads them
        self.ready: Counter[str] = Counter()
        self.in_bulk: Counter[str] = Counter()
        #: input tokens of both
        self.tokens: Counter[str] = Counter()
        #: unanswered items by pool and lane
        self.outstanding: Counter[tuple[str, Lane]] = Counter()
        #: items that wait for another try, by pool
        self.waiting: Counter[str] = Counter()
        for row in items.index("ready"):
            self._count(row, 1)
        for row in items.index("due"):
            if row.state is ItemState.RETRY_WAIT:
                self._count(row, 1)
        for row in items.index("shard"):
            self._count(row, 1)
            self.outstanding[way_of(row)] += 1
        #: lanes are looked at then
        self.next_lanes_ms = 0
        #: (pool, batch) of every queue that may hold ready items, with the turn it was last taken from
        self.queues: dict[tuple[str, str], int] = dict.fromkeys(_queues(items), 0)
        #: the last tick took as many rows as it may
        self.has_more = False
        #: no row is due before
        self.next_due_ms = 0
        #: rows that ended long ago are looked for then
        self.next_expiry_ms = 0
        #: how far the walk over shared items has come, and when it begins anew
        self.shared_from = b""
        self.next_walk_ms = 0
        self._turn = 0

    def moved(self, before: ItemStateRow | None, after: ItemStateRow) -> None:
        """A row was put in the place of another."""
        if before is not None and before.state is ItemState.DISPATCHED:
            way = way_of(before)
            self.outstanding[way] -= 1
            if way[1] is Lane.REALTIME:
                self.rate.answered(way[0])
        if before is not None:
            self._count(before, -1)
        self._count(after, 1)
        if after.state is ItemState.DISPATCHED:
            self.outstanding[way_of(after)] += 1
        elif _is_ready(after):
            self.queues.setdefault((after.pool or "", after.waiters[0].batch_id), 0)
        if after.due_at_ms is not None and after.due_at_ms < self.next_due_ms:
            self.next_due_ms = after.due_at_ms

    def _count(self, row: ItemStateRow, one: int) -> None:
        if row.state is ItemState.RETRY_WAIT:
            self.waiting[row.pool or ""] += one
            return
        if _is_ready(row):
            count = self.ready
        elif row.state is ItemState.DISPATCHED and row.lane is Lane.BULK:
            count = self.in_bulk
        else:
            return
        lead = row.waiters[0].batch_id if row.waiters else ""
        count[lead] += one
        self.tokens[lead] += one * row.input_tokens
        if not count[lead]:
            del count[lead]

    def unanswered(self, batch_id: str) -> int:
        """Items of a batch that real time would have to do, as far as they are known here."""
        return self.ready[batch_id] + self.in_bulk[batch_id]

    def at_work(self) -> set[str]:
        """Pools that may have ready items, or have items that are unanswered."""
        return {pool for pool, _ in self.queues} | {pool for (pool, _), count in self.outstanding.items() if count}

    def batches(self) -> set[str]:
        """Batches that have ready items, or items in the bulk lane."""
        return {batch for _, batch in self.queues} | self.in_bulk.keys()

    def take(self, items: TableReader[ItemStateRow], queue: tuple[str, str], most: int) -> list[ItemStateRow]:
        """The first ready rows of a queue. One that gave all it had is forgotten until a row is put into it."""
        prefix = queue_prefix(*queue)
        rows = list(islice(items.index("ready", start=prefix, stop=after_prefix(prefix)), most))
        if len(rows) < most:
            del self.queues[queue]
        else:
            self._turn += 1
            self.queues[queue] = self._turn
        return rows

    def due(self, items: TableReader[ItemStateRow], now_ms: int, most: int) -> list[ItemStateRow]:
        """Rows whose time has come, and one look ahead to the next."""
        rows = list(islice(items.index("due", stop=time_key(now_ms + 1)), most))
        if len(rows) < most:
            following = next(items.index("due", start=time_key(now_ms + 1)), None)
            self.next_due_ms = NEVER_MS if following is None else following.due_at_ms or 0
        return rows


def way_of(row: ItemStateRow) -> tuple[str, Lane]:
    """Pool and lane of a dispatched row's attempt."""
    return row.pool or "", row.lane or Lane.REALTIME


def _queues(items: TableReader[ItemStateRow]) -> Iterator[tuple[str, str]]:
    """Every queue that holds something, by one look at each."""
    start = b""
    while (row := next(items.index("ready", start=start), None)) is not None:
        queue = (row.pool or "", row.waiters[0].batch_id)
        yield queue
        start = after_prefix(queue_prefix(*queue))
