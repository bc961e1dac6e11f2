"""The shards of one partition that are under way: which attempts are still open, and the rows that say so.

A row is put at most once per transaction however many of its answers it carries; it is DONE, and holds its shard no
longer, when the last attempt is published.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from nightmill.kernel.domain.lifecycle import ShardState
from nightmill.kernel.wire.messages import AttemptAnswered, ShardDispatched, ShardStateRow
from nightmill.kernel.wire.values import replace
from nightmill.provider_gateway.orders import attempt_key


@dataclass(slots=True)
class _Entry:
    row: ShardStateRow
    shard: ShardDispatched
    open: dict[str, int] = field(default_factory=dict)  #: index in the shard by attempt key


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
        open_ = {attempt_key(row.shard.attempts[index]): index for index in indexes}
        self._entries[row.shard_id] = _Entry(row, row.shard, open_)
        return indexes

    def is_open(self, shard_id: str, key: str) -> bool:
        """Whether nothing was published of this attempt yet."""
        entry = self._entries.get(shard_id)
        return entry is not None and key in entry.open

    def publish(self, answered: AttemptAnswered) -> bool:
        """Close an attempt whose answer is about to be sent; False when it is not open here."""
        entry = self._entries.get(answered.shard_id)
        index = None if entry is None else entry.open.pop(attempt_key(answered), None)
        if entry is None or index is None:
            return False
        entry.row = replace(entry.row, state=ShardState.RUNNING, answered=(*entry.row.answered, index))
        self._touched.add(answered.shard_id)
        return True

    def rows(self, now_ms: int) -> Iterator[ShardStateRow]:
        """Rows that changed since the last time, as they are to be put; shards without an open attempt leave."""
        for shard_id in sorted(self._touched):
            entry = self._entries[shard_id]
            if entry.open:
                entry.row = replace(entry.row, owner=self._owner)
                yield entry.row
            else:
                del self._entries[shard_id]
                yield replace(entry.row, state=ShardState.DONE, shard=None, owner=self._owner, ended_at_ms=now_ms)
        self._touched.clear()
