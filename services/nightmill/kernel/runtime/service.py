"""What a service is: handlers that turn an event into a `Decision`, and nothing else.

A handler `on_<event>(message, part)` gathers what it needs from the tables of its partition, decides, and returns
messages to send, rows to put and effects to start. The loop commits messages, rows and input positions in one
transaction, and starts the effects after the commit. A handler does no I/O but reading tables, views and blobs.

Three outcomes of a message and no more: a `Decision` (done), a `Wait` (this topic's partition stays where it is, the
others flow), or `ContractViolation` (quarantined with its original bytes). Anything else crashes the process; the
restart is the recovery path.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from nightmill.kernel.wire.channel import Message

Row = TypeVar("Row", bound=Message)
Row_co = TypeVar("Row_co", bound=Message, covariant=True)


class ContractViolation(Exception):
    """A record that can never be handled: it goes to the dead-letter topic with this text as its reason."""


class Unavailable(Exception):
    """Something outside is away; the loop waits and tries the same record again."""


class StartOver(Exception):
    """What was gathered can not be staged as it is: the loop goes back to the last commit and brings it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Removes the row of class `row` with this key (a tombstone in the changelog)."""

    row: type[Any]
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What follows from one event, tick or flush.

    `send` and `put` commit atomically with the input positions. `send_now` leaves at once, outside the transaction:
    only for messages whose loss or repetition does no harm (lease asks). `effects` start after the commit.
    """

    send: Sequence[Message] = ()
    put: Sequence[Message] = ()
    delete: Sequence[Delete] = ()
    send_now: Sequence[Message] = ()
    effects: Sequence[object] = ()


NOTHING = Decision()


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now: the record is tried again at the next step and its topic's partition is held until then."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """What keeps a service from going on, in words for people: what, where and the remedy; no document text.

    `subject` tells it from the service's other stalls. `pool` is set when only the jobs of one pool wait.
    """

    subject: str
    reason: str
    pool: str | None = None
    until_ms: int | None = None


class TableReader(Protocol[Row_co]):
    """An owned table as its handlers see it: committed rows under the rows of the open transaction."""

    def get(self, key: str) -> Row_co | None:
        """The row of `key`, or None."""

    def prefix(self, prefix: str, *, after: str | None = None) -> Iterator[Row_co]:
        """Rows whose key begins with `prefix`, by key; those after the key `after` when given."""

    def index(self, name: str, *, start: bytes = b"", stop: bytes | None = None) -> Iterator[Row_co]:
        """Rows by a declared secondary index, from `start` (included) to `stop` (excluded), in index order.

        Materialise (for example with `itertools.islice` and `list`) before deciding: rows put meanwhile may show.
        """


class Partition(Protocol):
    """One partition number that this instance owns, over all its topics and tables."""

    @property
    def number(self) -> int: ...

    @property
    def partitions(self) -> int:
        """How many partitions every topic of the installation has."""

    @property
    def now_ms(self) -> int:
        """Time of this step, epoch milliseconds; the same for all that happens in the step."""

    def table(self, row: type[Row]) -> TableReader[Row]:
        """The owned table of a row class."""


class View(Protocol[Row_co]):
    """Somebody else's compacted topic, whole, read-only.

    It is read to its end before the service starts and before partitions are opened; after that it may lag.
    A missing entry means "wait": a view carries no work.
    """

    def get(self, key: str) -> Row_co | None: ...

    def values(self) -> Iterator[Row_co]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """A secondary index: `key(row)` gives sort bytes, or None when the row is not in the index.

    Kept in the local store beside the rows. `in_memory` mirrors it in memory too: for indexes that work like queues,
    whose entries come and go (a store would wade through their tombstones); not for those that grow with the past.
    """

    name: str
    row: type[Any]
    key: Callable[[Any], bytes | None]
    in_memory: bool = True


class Service:
    """Base of every service. A subclass has one `on_<event>` for each topic that channels.yaml lets it consume."""

    name: str
    #: secondary indexes of the owned tables
    indexes: tuple[Index, ...] = ()
    #: messages whose handlers take the record's bytes, of its newest version, in place of the message
    unread: frozenset[type[Any]] = frozenset()

    def attach_views(self, views: Mapping[type[Any], View[Any]]) -> None:
        """Called once before the first step, with a view for each topic or table channels.yaml lets it view."""

    def on_open(self, part: Partition) -> None:
        """A partition was assigned and its tables are restored."""

    def on_close(self, number: int) -> None:
        """A partition was lost: forget all about it."""

    def on_tick(self, part: Partition) -> Decision:
        """Once per step and owned partition, after the step's messages."""
        return NOTHING

    def on_flush(self, part: Partition) -> Decision:
        """Just before a transaction that is not empty commits: stage what was gathered, name it in rows.

        Raises `Unavailable` when it can not now, `StartOver` when it has found what a handler must refuse.
        """
        return NOTHING

    def on_quarantined(self, topic: str, headers: Mapping[str, str], reason: str, part: Partition) -> Decision:
        """A record of `topic` was quarantined; whoever waits for it must not hang."""
        return NOTHING

    def start(self, effects: Sequence[object]) -> None:
        """The transaction that held these effects is committed. Must not block."""

    def stalls(self) -> Sequence[Stall]:
        """What work waits for at this moment, apart from the waits that the loop itself meets."""
        return ()

    def busy(self) -> bool:
        """Effects are running whose completion `on_tick` collects: the loop polls shortly instead of long."""
        return False

    def goes_on(self) -> bool:
        """The last tick did a piece of work that the next one goes on with: the loop does not wait for input."""
        return False

    def close(self) -> None:
        """Orderly stop, after the last commit. May block for at most two seconds."""
