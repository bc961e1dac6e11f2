"""One partition of the memory log, the transactions that wrote into it, and what a reader may see of it.

A transaction is decided at once but shows partition by partition: in each, readers stop at its first record until
its marker has come there. A marker takes an offset of its own, as on a real broker.
"""

import itertools
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum, auto

from nightmill.kernel.runtime.log import Outgoing, Place, Record


class CommitPoint(StrEnum):
    """Where a commit is, seen from the broker."""

    BEFORE = auto()  #: nothing of it was sent
    WRITTEN = auto()  #: records and positions are with the broker, the transaction is open
    DONE = auto()  #: the broker has committed, the member has not heard of it


class TransactionState(StrEnum):
    """A transaction is open until its owner, a successor of its owner or its timeout ends it."""

    OPEN = auto()
    COMMITTED = auto()
    ABORTED = auto()


@dataclass(slots=True, kw_only=True)
class Transaction:
    """Records in partitions and positions of a group that become visible together, or not at all."""

    owner: str  #: the transactional id
    begun_ms: int
    timeout_ms: int
    state: TransactionState = TransactionState.OPEN
    touched: dict[Place, None] = field(default_factory=dict)  #: partitions with its records, in order
    marked: set[Place] = field(default_factory=set)  #: partitions where its marker has come
    positions: dict[Place, int] = field(default_factory=dict)
    positions_marked: bool = False

    @property
    def is_open(self) -> bool:
        return self.state is TransactionState.OPEN

    def holds(self, place: Place) -> bool:
        """Whether readers of `place` must stop before its records."""
        return self.is_open or place not in self.marked


@dataclass(slots=True)
class Entry:
    """A record and the transaction it belongs to."""

    record: Record
    transaction: Transaction | None


@dataclass(slots=True)
class Partition:
    """Records by offset; `first` and `end` bound them."""

    place: Place
    entries: list[Entry] = field(default_factory=list)
    pending: list[Entry] = field(default_factory=list)  #: entries whose transaction held readers when last looked at
    end: int = 0
    first: int = 0

    def append(self, record: Outgoing, transaction: Transaction | None, now_ms: int) -> None:
        stored = Record(self.place, self.end, record.key, record.value, tuple(record.headers), now_ms)
        entry = Entry(stored, transaction)
        self.entries.append(entry)
        self.end += 1
        if transaction is not None:
            transaction.touched[self.place] = None
            self.pending.append(entry)

    def mark(self, transaction: Transaction) -> None:
        """The transaction's marker comes here: its records show, or are known to be aborted."""
        transaction.marked.add(self.place)
        self.end += 1

    def stable_end(self) -> int:
        """Last stable offset: the first entry that an unmarked transaction holds, or the end."""
        self.pending = [e for e in self.pending if e.transaction is not None and e.transaction.holds(self.place)]
        return self.pending[0].record.offset if self.pending else self.end

    def since(self, offset: int) -> Iterator[Entry]:
        """Entries from an offset on."""
        first = bisect_left(self.entries, offset, key=lambda entry: entry.record.offset)
        return itertools.islice(self.entries, first, None)

    def read(self, offset: int, limit: int, stable: int) -> tuple[list[Record], int]:
        """Committed records from `offset` to the stable end `stable`, and the position after them."""
        found: list[Record] = []
        position = offset
        for entry in self.since(offset):
            at = entry.record.offset
            if at >= stable or len(found) >= limit:
                return found, position
            position = at + 1
            if entry.transaction is None or entry.transaction.state is TransactionState.COMMITTED:
                found.append(entry.record)
        return found, max(position, stable)

    def waiting(self, position: int) -> int:
        """Records from `position` on that are not aborted; markers are none."""
        entries = self.since(position)
        return sum(e.transaction is None or e.transaction.state is not TransactionState.ABORTED for e in entries)

    def trim(self, before: int) -> None:
        """Retention: records before an offset are gone."""
        self.first = max(self.first, before)
        self.entries = [entry for entry in self.entries if entry.record.offset >= before]

    def compact(self) -> None:
        """Keep the last committed record of each key below the stable end; tombstones go too."""
        stable = self.stable_end()
        tail = [entry for entry in self.entries if entry.record.offset >= stable]
        settled = [
            entry
            for entry in self.entries
            if entry.record.offset < stable
            and (entry.transaction is None or entry.transaction.state is TransactionState.COMMITTED)
        ]
        last = {entry.record.key: entry for entry in settled}
        kept = (entry for entry in last.values() if entry.record.value is not None)
        self.entries = [*sorted(kept, key=lambda entry: entry.record.offset), *tail]
