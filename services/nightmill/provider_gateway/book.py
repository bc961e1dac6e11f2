"""The shards of one partition that are under way: which attempts are still open, and the rows that say so.

A row is put at most once per transaction however many of its answers it carries; it is DONE, and holds its shard no
longer, when the last attempt is published.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from nightmill.kernel.domain.lifecycle import ShardState
from nightmill.kernel.wire.messages import AttemptAnswered, ShardAttempt, ShardDispatched, ShardStateRow
from nightmill.kernel.wire.values import replace
from nightmill.provider_gateway.orders import Order


@dataclass(slots=True)
class _Entry:
    row: ShardStateRow
    shard: ShardDispatched
    open: dict[str, int]  #: index in the shard by item: a shard has one attempt of an item
    closed: list[int] = field(default_factory=list)  #: indexes that are not in the row yet

    def index_of(self, attempt: ShardAttempt | AttemptAnswered) -> int | None:
        """Of an attempt that is open; None for any other, be it of the same item."""
        index = self.open.get(attempt.item_key)
        if index is None:
            return None
        own = self.shard.attempts[index]
        is_it = own.ordinal == attempt.ordinal and own.minted_at_ms == attempt.minted_at_ms
        return index if is_it else None


class Book:
    """Running shards by id."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._entries: dict[str, _Entry] = {}
        self._touched: set[str] = set()

    def enter(self, row: ShardStateRow) -> list[int]:
        """Take a committed row in; returns the indexes of its open attempts: none if it is in already, or done."""
        if row.shard is None or row.shard_id in self._entries:
            return []
        answered = frozenset(row.answered)
        indexes = [index for index in range(len(row.shard.attempts)) if index not in answered]
        open_ = {row.shard.attempts[index].item_key: index for index in indexes}
        self._entries[row.shard_id] = _Entry(row, row.shard, open_)
        return indexes

    def is_open(self, shard_id: str, attempt: ShardAttempt) -> bool:
        """Whether nothing was published of this attempt yet."""
        entry = self._entries.get(shard_id)
        return entry is not None and entry.index_of(attempt) is not None

    def has_open(self, order: Order) -> bool:
        """Whether nothing was published of an order yet."""
        return self.is_open(order.shard.shard_id, order.attempt)

    def publish(self, answered: AttemptAnswered) -> bool:
        """Close an attempt whose answer is about to be sent; False when it is not open here."""
        entry = self._entries.get(answered.shard_id)
        index = None if entry is None else entry.index_of(answered)
        if entry is None or index is None:
            return False
        del entry.open[answered.item_key]
        entry.closed.append(index)
        self._touched.add(answered.shard_id)
        return True

    def rows(self, now_ms: int) -> Iterator[ShardStateRow]:
        """Rows that changed since the last time, as they are to be put; shards without an open attempt leave.

        A row that is DONE says no more which attempts it had: rows stay for days, and a shard may have a thousand.
        """
        for shard_id in sorted(self._touched):
            entry = self._entries[shard_id]
            if entry.open:
                answered = (*entry.row.answered, *entry.closed)
                entry.row = replace(entry.row, state=ShardState.RUNNING, answered=answered, owner=self._owner)
                entry.closed.clear()
                yield entry.row
            else:
                del self._entries[shard_id]
                done = replace(entry.row, state=ShardState.DONE, shard=None, answered=())
                yield replace(done, owner=self._owner, ended_at_ms=now_ms)
        self._touched.clear()
