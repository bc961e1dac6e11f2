"""The broker of the memory log: partitions, groups and transactions of every installation, and its clock.

What it does by itself follows from `now_ms` alone, in this order: transactions older than their timeout are aborted
and their owners fenced; members not heard of for their session timeout leave their group.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from nightmill.kernel.runtime.log import LogUnavailable, Outgoing, Place, Record, Timing, partition_of
from nightmill.kernel.runtime.memory.partition import CommitPoint, Partition, Transaction, TransactionState

if TYPE_CHECKING:
    from nightmill.kernel.runtime.memory.log import MemoryLog
    from nightmill.kernel.runtime.memory.session import MemorySession


@dataclass(slots=True)
class Group:
    """Static members, their assignment by generation, and the positions they committed."""

    members: dict[str, "MemorySession"] = field(default_factory=dict)
    committed: dict[Place, int] = field(default_factory=dict)
    pending: list[Transaction] = field(default_factory=list)  #: hold positions that are not yet stable
    generation: int = 0
    assigned: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def is_stable(self) -> bool:
        """Whether no transaction is pending on its positions; a new owner waits for that."""
        self.pending = [transaction for transaction in self.pending if not transaction.positions_marked]
        return not self.pending


class MemoryBroker:
    """The broker. Its public attributes are what a test or a scheduler turns."""

    def __init__(self, partitions: int = 2, *, now_ms: int = 0, stagger: Random | None = None) -> None:
        self.partitions = partitions
        #: where given, markers come and readers see a partition's end late, as chance has it at each read
        self.stagger = stagger
        #: markers wait until `mark` is called
        self.held = False
        #: the broker answers nobody
        self.down = False
        #: called at each point of every commit; may raise what the member shall meet, or let time pass
        self.at_commit: Callable[[MemorySession, CommitPoint], None] | None = None
        #: called with seconds when somebody blocks for records that are not there; should let `now_ms` pass
        self.on_wait: Callable[[float], None] | None = None
        self._now_ms = now_ms
        self._places: dict[Place, Partition] = {}
        self._groups: dict[str, Group] = {}
        self._open: dict[str, Transaction] = {}
        self._unmarked: list[tuple[Transaction, Place | Group]] = []
        self._holders: dict[str, MemorySession] = {}

    def log(self, namespace: str = "", timing: Timing | None = None) -> "MemoryLog":
        """An installation on this broker."""
        from nightmill.kernel.runtime.memory.log import MemoryLog  # it is built on this module

        return MemoryLog(self, f"{namespace}." if namespace else "", timing or Timing())

    # -- time

    @property
    def now_ms(self) -> int:
        """The broker's clock; setting it lets timeouts happen."""
        return self._now_ms

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        self._now_ms = now_ms
        for transaction in list(self._open.values()):
            if now_ms - transaction.begun_ms >= transaction.timeout_ms:
                self.finish(transaction, TransactionState.ABORTED)
                self._holders[transaction.owner].fenced = True
        for group in self._groups.values():
            for member in list(group.members.values()):
                if now_ms - member.heard_ms > member.timing.session_timeout_ms:
                    self.leave(group, member)

    def wait(self, timeout_s: float) -> None:
        """Somebody blocks for `timeout_s`."""
        if self.on_wait is not None and timeout_s > 0:
            self.on_wait(timeout_s)

    def check_up(self) -> None:
        if self.down:
            raise LogUnavailable("the broker is down")

    # -- partitions

    def place(self, place: Place) -> Partition:
        """The partition at `place` (topic with its prefix), made when first asked for."""
        return self._places.setdefault(place, Partition(place))

    def append(self, record: Outgoing, transaction: Transaction | None) -> None:
        number = partition_of(record.key, self.partitions) if record.partition is None else record.partition
        self.place(Place(record.topic, number)).append(record, transaction, self._now_ms)

    def read(self, place: Place, offset: int, limit: int) -> tuple[list[Record], int]:
        """Committed records from `offset` as a reader sees them now, and the position after them."""
        if self.down:
            return [], offset
        partition = self.place(place)
        if self.stagger is None:
            return partition.read(offset, limit, partition.stable_end())
        self._mark_some(self.stagger)
        stable = partition.stable_end()
        if stable > offset and self.stagger.random() < 0.5:
            stable = self.stagger.randint(offset, stable)
        return partition.read(offset, limit, stable)

    # -- transactions

    def begin(self, session: "MemorySession") -> Transaction:
        """A new transaction; it waits for the markers of its predecessor, which is aborted if it is open."""
        name = session.transactional_id
        before = self._open.get(name)
        if before is not None:
            self.finish(before, TransactionState.ABORTED)
        self._mark_where(lambda transaction: transaction.owner == name)
        timeout_ms = session.timing.transaction_timeout_ms
        self._open[name] = Transaction(owner=name, begun_ms=self._now_ms, timeout_ms=timeout_ms)
        return self._open[name]

    def finish(self, transaction: Transaction, state: TransactionState) -> None:
        """Decide a transaction; its markers come at once, or when chance or the test lets them."""
        transaction.state = state
        del self._open[transaction.owner]
        self._unmarked.extend((transaction, place) for place in transaction.touched)
        group = next((g for g in self._groups.values() if transaction in g.pending), None)
        if group is not None:
            self._unmarked.append((transaction, group))
        if self.stagger is None and not self.held:
            self.mark()

    def unmarked(self) -> list[Place]:
        """Partitions (topics with their prefix) in which markers of decided transactions are still to come."""
        return list(dict.fromkeys(where for _, where in self._unmarked if isinstance(where, Place)))

    def mark(self, place: Place | None = None) -> None:
        """Let the markers of `place` come, or with None all of them, those of positions included."""
        self._mark(lambda _, where: place is None or where == place)

    def _mark_where(self, chosen: Callable[[Transaction], bool]) -> None:
        self._mark(lambda transaction, _: chosen(transaction))

    def _mark_some(self, chance: Random) -> None:
        if self._unmarked:
            self._mark(lambda _transaction, _where: chance.random() < 0.5)

    def _mark(self, chosen: Callable[[Transaction, Place | Group], bool]) -> None:
        waiting, self._unmarked = self._unmarked, []
        for transaction, where in waiting:
            if not chosen(transaction, where):
                self._unmarked.append((transaction, where))
            elif isinstance(where, Place):
                self.place(where).mark(transaction)
            else:
                transaction.positions_marked = True
                if transaction.state is TransactionState.COMMITTED:
                    where.committed.update(transaction.positions)

    # -- groups

    def group(self, name: str) -> Group:
        return self._groups.setdefault(name, Group())

    def register(self, group: Group, session: "MemorySession") -> None:
        """A member comes for the first time: whoever held its name is fenced, what it left open is aborted."""
        older = self._holders.get(session.transactional_id)
        if older is not None:
            older.fenced = True
        self._holders[session.transactional_id] = session
        self.finish(self.begin(session), TransactionState.ABORTED)
        self.join(group, session)

    def join(self, group: Group, session: "MemorySession") -> None:
        """A member whose static name is still in the group takes its place, and nobody else notices."""
        known = session.instance in group.members
        group.members[session.instance] = session
        if not known:
            self.rebalance(group)

    def leave(self, group: Group, session: "MemorySession") -> None:
        """A member's session ran out."""
        if group.members.get(session.instance) is session:
            del group.members[session.instance]
            self.rebalance(group)

    def rebalance(self, group: Group) -> None:
        """A new generation. Range assignment: the same numbers of every topic go to the same member."""
        group.generation += 1
        names = sorted(group.members)
        group.assigned = {}
        if names:
            share, rest = divmod(self.partitions, len(names))
            numbers = itertools.count()
            for position, name in enumerate(names):
                size = share + (position < rest)
                group.assigned[name] = tuple(itertools.islice(numbers, size))
