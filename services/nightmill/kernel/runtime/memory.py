"""The log in memory: the reference model of what the runtime relies on, for simulation and fast tests.

One `MemoryBroker` is the broker; each `MemoryLog` is an installation on it. It models partitions, groups with static
members and range assignment, positions committed under a generation, aborted work that no reader sees, a last stable
offset held back by open transactions, fencing, and compaction. Time passes only when a test says so.
"""

import itertools
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nightmill.kernel.runtime.log import (
    Aborted,
    Assignment,
    Fenced,
    OffsetHole,
    Outgoing,
    Place,
    Polled,
    Record,
    partition_of,
)


@dataclass(slots=True)
class _Transaction:
    open: bool = True
    aborted: bool = False


@dataclass(slots=True)
class _Entry:
    record: Record
    transaction: _Transaction | None


@dataclass(slots=True)
class _Partition:
    entries: list[_Entry] = field(default_factory=list)
    pending: list[_Entry] = field(default_factory=list)  #: entries of transactions that were open when last looked at
    end: int = 0
    first: int = 0

    def stable_end(self) -> int:
        """Last stable offset: the first entry of an open transaction, or the end."""
        self.pending = [entry for entry in self.pending if entry.transaction is not None and entry.transaction.open]
        return self.pending[0].record.offset if self.pending else self.end

    def since(self, offset: int) -> Iterator[_Entry]:
        """Entries from an offset on."""
        first = bisect_left(self.entries, offset, key=lambda entry: entry.record.offset)
        return itertools.islice(self.entries, first, None)


@dataclass(slots=True)
class _Group:
    members: dict[str, "MemorySession"] = field(default_factory=dict)
    committed: dict[Place, int] = field(default_factory=dict)
    generation: int = 0
    assigned: dict[str, tuple[int, ...]] = field(default_factory=dict)


class MemoryBroker:
    """Topics, groups and transactions of every installation."""

    def __init__(self, partitions: int = 2) -> None:
        self.partitions = partitions
        self.now_ms = 0
        self._places: dict[Place, _Partition] = {}
        self._groups: dict[str, _Group] = {}
        self._transactions: dict[str, _Transaction] = {}

    def log(self, namespace: str = "") -> "MemoryLog":
        return MemoryLog(self, f"{namespace}." if namespace else "")

    def place(self, place: Place) -> _Partition:
        return self._places.setdefault(place, _Partition())

    def group(self, name: str) -> _Group:
        return self._groups.setdefault(name, _Group())

    def append(self, record: Outgoing, transaction: _Transaction | None) -> Record:
        number = partition_of(record.key, self.partitions) if record.partition is None else record.partition
        where = Place(record.topic, number)
        partition = self.place(where)
        stored = Record(where, partition.end, record.key, record.value, tuple(record.headers), self.now_ms)
        entry = _Entry(stored, transaction)
        partition.entries.append(entry)
        if transaction is not None:
            partition.pending.append(entry)
        partition.end += 1
        return stored

    def begin(self, transactional_id: str) -> _Transaction:
        """A new transaction; a predecessor of the same id that is still open is aborted first."""
        before = self._transactions.get(transactional_id)
        if before is not None and before.open:
            self.finish(transactional_id, before, aborted=True)
        self._transactions[transactional_id] = _Transaction()
        return self._transactions[transactional_id]

    def finish(self, transactional_id: str, transaction: _Transaction, *, aborted: bool) -> None:
        transaction.open, transaction.aborted = False, aborted
        self._transactions.pop(transactional_id, None)

    def read(self, place: Place, offset: int, limit: int) -> tuple[list[Record], int]:
        """Committed records from `offset`, and the position after them."""
        partition = self.place(place)
        found: list[Record] = []
        stable, position = partition.stable_end(), offset
        for entry in partition.since(offset):
            at = entry.record.offset
            if at >= stable or len(found) >= limit:
                return found, position
            position = at + 1
            if entry.transaction is None or not entry.transaction.aborted:
                found.append(entry.record)
        return found, max(position, stable)

    def trim(self, place: Place, before: int) -> None:
        """Retention: records before an offset are gone."""
        partition = self.place(place)
        partition.first = max(partition.first, before)
        partition.entries = [entry for entry in partition.entries if entry.record.offset >= before]

    def compact(self, place: Place) -> None:
        """Keep the last record of each key; tombstones go too."""
        partition = self.place(place)
        last = {entry.record.key: entry for entry in partition.entries}
        kept = (entry for entry in last.values() if entry.record.value is not None)
        partition.entries = sorted(kept, key=lambda entry: entry.record.offset)

    def join(self, group: _Group, session: "MemorySession") -> None:
        """A member comes, or a static one comes back: the older holder of its name is fenced."""
        older = group.members.get(session.instance)
        if older is not None:
            older.fenced = True
        group.members[session.instance] = session
        self.rebalance(group)

    def leave(self, group: _Group, session: "MemorySession") -> None:
        """A member goes, or its session ran out."""
        if group.members.get(session.instance) is session:
            del group.members[session.instance]
            self.rebalance(group)

    def rebalance(self, group: _Group) -> None:
        """Range assignment: the same numbers of every topic go to the same member."""
        group.generation += 1
        names = sorted(group.members)
        group.assigned = {}
        if names:
            share, rest = divmod(self.partitions, len(names))
            numbers = itertools.count()
            for position, name in enumerate(names):
                size = share + (position < rest)
                group.assigned[name] = tuple(itertools.islice(numbers, size))


class MemoryLog:
    """One installation on a `MemoryBroker`. A `Log`."""

    def __init__(self, broker: MemoryBroker, prefix: str) -> None:
        self.broker = broker
        self.partitions = broker.partitions
        self._prefix = prefix

    def session(self, group: str, instance: str, topics: Sequence[str]) -> "MemorySession":
        return MemorySession(self.broker, self._prefix, group, instance, topics)

    def reader(self) -> "MemoryReader":
        return MemoryReader(self.broker, self._prefix)

    def writer(self) -> "MemoryWriter":
        return MemoryWriter(self.broker, self._prefix)

    def lag(self, group: str, topic: str) -> int:
        committed = self.broker.group(self._prefix + group).committed
        places = [Place(self._prefix + topic, number) for number in range(self.partitions)]
        return sum(self.broker.place(p).end - committed.get(p, self.broker.place(p).first) for p in places)


class MemorySession:
    """A `Session` on the memory broker."""

    def __init__(self, broker: MemoryBroker, prefix: str, group: str, instance: str, topics: Sequence[str]) -> None:
        self.instance = instance
        self.fenced = False
        self._broker = broker
        self._prefix = prefix
        self._topics = topics
        self._group = broker.group(prefix + group)
        self._transactional_id = f"{prefix}{group}-{instance}"
        self._generation = -1
        self._owned: tuple[int, ...] = ()
        self._positions: dict[Place, int] = {}
        self._paused: set[Place] = set()
        broker.finish(self._transactional_id, broker.begin(self._transactional_id), aborted=True)
        broker.join(self._group, self)

    def poll(self, timeout_s: float, limit: int) -> Polled:
        self._check()
        assignment = self._rejoin()
        records: list[Record] = []
        for place, position in self._positions.items():
            if place not in self._paused and len(records) < limit:
                if position < self._broker.place(place).first:
                    raise OffsetHole(f"{place.topic}[{place.partition}]: offset {position} is gone")
                found, self._positions[place] = self._broker.read(place, position, limit - len(records))
                records.extend(found)
        return Polled(assignment, [_outside(record, self._prefix) for record in records])

    def pause(self, place: Place) -> None:
        self._paused.add(self._inside(place))

    def resume(self, place: Place) -> None:
        self._paused.discard(self._inside(place))

    def seek(self, place: Place, offset: int) -> None:
        self._positions[self._inside(place)] = offset

    def send_now(self, records: Iterable[Outgoing]) -> None:
        for record in records:
            self._broker.append(_inside_record(record, self._prefix), None)

    def commit(self, records: Iterable[Outgoing], positions: Mapping[Place, int]) -> None:
        self._check()
        transaction = self.write_open(records)
        if self._generation != self._group.generation:
            self._broker.finish(self._transactional_id, transaction, aborted=True)
            raise Aborted("the group has a newer generation")
        self._group.committed.update({self._inside(place): offset for place, offset in positions.items()})
        self._broker.finish(self._transactional_id, transaction, aborted=False)

    def write_open(self, records: Iterable[Outgoing]) -> _Transaction:
        """Write records and leave their transaction open, as a process that dies before its commit does."""
        transaction = self._broker.begin(self._transactional_id)
        for record in records:
            self._broker.append(_inside_record(record, self._prefix), transaction)
        return transaction

    def expire(self) -> None:
        """The broker has not heard from this member for its session timeout."""
        self._broker.leave(self._group, self)

    def close(self) -> None:
        self._broker.leave(self._group, self)

    def _check(self) -> None:
        if self.fenced:
            raise Fenced(f"another {self.instance} has joined")

    def _rejoin(self) -> Assignment:
        if self._group.members.get(self.instance) is not self:
            self._broker.join(self._group, self)
        if self._generation == self._group.generation:
            return Assignment()
        lost, self._owned = self._owned, self._group.assigned[self.instance]
        self._generation = self._group.generation
        places = [Place(self._prefix + topic, number) for number in self._owned for topic in self._topics]
        self._positions = {place: self._start(place) for place in places}
        self._paused = set()
        starts = {
            Place(place.topic.removeprefix(self._prefix), place.partition): self._positions[place] for place in places
        }
        return Assignment(self._owned, lost, starts)

    def _start(self, place: Place) -> int:
        found = self._group.committed.get(place)
        return self._broker.place(place).first if found is None else found

    def _inside(self, place: Place) -> Place:
        return Place(self._prefix + place.topic, place.partition)


class MemoryReader:
    """A `Reader` on the memory broker."""

    def __init__(self, broker: MemoryBroker, prefix: str) -> None:
        self._broker = broker
        self._prefix = prefix
        self._positions: dict[Place, int] = {}

    def end(self, place: Place) -> int:
        return self._broker.place(Place(self._prefix + place.topic, place.partition)).end

    def start(self, place: Place, offset: int) -> None:
        self._positions[place] = offset

    def poll(self, timeout_s: float, limit: int) -> Sequence[Record]:
        records: list[Record] = []
        for place, position in self._positions.items():
            inside = Place(self._prefix + place.topic, place.partition)
            found, self._positions[place] = self._broker.read(inside, position, limit - len(records))
            records.extend(_outside(record, self._prefix) for record in found)
        return records

    def position(self, place: Place) -> int:
        return self._positions[place]

    def close(self) -> None:
        self._positions.clear()


class MemoryWriter:
    """A `Writer` on the memory broker."""

    def __init__(self, broker: MemoryBroker, prefix: str) -> None:
        self._broker = broker
        self._prefix = prefix

    def write(self, records: Iterable[Outgoing]) -> None:
        for record in records:
            self._broker.append(_inside_record(record, self._prefix), None)

    def close(self) -> None:
        return


def _inside_record(record: Outgoing, prefix: str) -> Outgoing:
    return Outgoing(prefix + record.topic, record.key, record.value, record.partition, record.headers)


def _outside(record: Record, prefix: str) -> Record:
    where = Place(record.place.topic.removeprefix(prefix), record.place.partition)
    return Record(where, record.offset, record.key, record.value, record.headers, record.timestamp_ms)
