"""A member of a group on the memory log, with its transactions."""

from collections.abc import Iterable, Mapping, Sequence

from nightmill.kernel.runtime.log import (
    Aborted,
    Assignment,
    Fenced,
    OffsetHole,
    OutcomeUnknown,
    Outgoing,
    Place,
    Polled,
    Record,
    Timing,
)
from nightmill.kernel.runtime.memory.broker import MemoryBroker
from nightmill.kernel.runtime.memory.partition import CommitPoint, Transaction, TransactionState
from nightmill.kernel.runtime.sizes import check_sizes


class MemorySession:
    """A `Session` on the memory broker.

    It is heard of when it polls or commits, and leaves its group when it was not for its session timeout; closing it
    does not, since static members are expected back.
    """

    def __init__(
        self, broker: MemoryBroker, prefix: str, group: str, instance: str, topics: Sequence[str], timing: Timing
    ) -> None:
        broker.check_up()
        self.group = group
        self.instance = instance
        self.transactional_id = f"{prefix}{group}-{instance}"
        self.timing = timing
        self.fenced = False
        self.heard_ms = broker.now_ms
        self._broker = broker
        self._prefix = prefix
        self._topics = topics
        self._group = broker.group(prefix + group)
        self._generation = -1
        self._owned: tuple[int, ...] = ()
        self._positions: dict[Place, int] = {}
        self._paused: set[Place] = set()
        broker.register(self._group, self)

    def poll(self, timeout_s: float, limit: int) -> Polled:
        if self._broker.down:
            return Polled(Assignment(), [])
        self._check()
        assignment = self._rejoin()
        records: list[Record] = []
        for place, position in self._positions.items():
            if place not in self._paused and len(records) < limit:
                self._check_hole(place, position)
                found, self._positions[place] = self._broker.read(place, position, limit - len(records))
                records.extend(found)
        return Polled(assignment, [outside(record, self._prefix) for record in records])

    def pause(self, place: Place) -> None:
        self._paused.add(self._inside(place))

    def resume(self, place: Place) -> None:
        self._paused.discard(self._inside(place))

    def seek(self, place: Place, offset: int) -> None:
        self._positions[self._inside(place)] = offset

    def send_now(self, records: Iterable[Outgoing]) -> None:
        for record in records:
            if not self._broker.down:
                self._broker.append(inside(record, self._prefix), None)

    def commit(self, records: Iterable[Outgoing], positions: Mapping[Place, int]) -> None:
        records = list(records)
        check_sizes(records)
        self._at(CommitPoint.BEFORE)
        if self._broker.down:
            raise OutcomeUnknown("the broker is down")
        transaction = self.write_open(records, positions)
        self._at(CommitPoint.WRITTEN)
        self.settle(transaction)
        self._at(CommitPoint.DONE)

    def write_open(self, records: Iterable[Outgoing], positions: Mapping[Place, int] | None = None) -> Transaction:
        """Write records and positions and leave their transaction open, as a process that dies before its commit does.

        The generation is checked here and not at the commit, as on a real broker. Raises `Aborted`, `Fenced`.
        """
        self._check()
        transaction = self._broker.begin(self)
        for record in records:
            self._broker.append(inside(record, self._prefix), transaction)
        if not positions:
            return transaction
        if self._generation != self._group.generation:
            self._broker.finish(transaction, TransactionState.ABORTED)
            raise Aborted("the group has a newer generation")
        transaction.positions = {self._inside(place): offset for place, offset in positions.items()}
        self._group.pending.append(transaction)
        return transaction

    def settle(self, transaction: Transaction) -> None:
        """Commit what `write_open` wrote. Raises `Fenced` when a successor or the timeout has ended it."""
        self._check()
        if not transaction.is_open:
            raise Fenced("the transaction was ended by the broker")
        self._broker.finish(transaction, TransactionState.COMMITTED)

    def expire(self) -> None:
        """The broker has not heard from this member for its session timeout."""
        self._broker.leave(self._group, self)

    def close(self) -> None:
        """A static member says nothing when it goes: its session timeout tells the others."""

    def _at(self, point: CommitPoint) -> None:
        if self._broker.at_commit is not None:
            self._broker.at_commit(self, point)

    def _check(self) -> None:
        if self.fenced:
            raise Fenced(f"another {self.instance} has joined, or a transaction of this one timed out")
        self.heard_ms = self._broker.now_ms

    def _check_hole(self, place: Place, position: int) -> None:
        partition = self._broker.place(place)
        if not partition.first <= position <= partition.end:
            raise OffsetHole(f"{place.topic}[{place.partition}]: offset {position} is gone")

    def _rejoin(self) -> Assignment:
        if self._group.members.get(self.instance) is not self:
            self._broker.join(self._group, self)
        if self._generation == self._group.generation:
            return Assignment()
        lost, self._owned, self._positions = self._owned, (), {}
        if not self._group.is_stable():
            return Assignment(lost=lost)
        self._owned = self._group.assigned[self.instance]
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


def inside(record: Outgoing, prefix: str) -> Outgoing:
    """A record under its installation's topic name."""
    return Outgoing(prefix + record.topic, record.key, record.value, record.partition, record.headers)


def outside(record: Record, prefix: str) -> Record:
    """A record under the contract's topic name."""
    where = Place(record.place.topic.removeprefix(prefix), record.place.partition)
    return Record(where, record.offset, record.key, record.value, record.headers, record.timestamp_ms)
