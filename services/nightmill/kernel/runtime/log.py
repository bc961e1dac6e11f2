"""The log port: what the runtime asks of Kafka, and nothing more.

Two implementations, one conformance suite: `kafka.py` on a real broker and `memory.py`, the reference model for
simulation. A `Session` is one service instance's membership in its group together with its transactional producer.
Topic names are the installation's own (prefix included by the implementation); callers use the contract's names.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from msgspec import Struct


class LogUnavailable(Exception):
    """The broker does not answer; nothing was changed. Try again."""


class Aborted(Exception):
    """The transaction was aborted: nothing of it is visible. Go back to the committed positions and do it again."""


class Fenced(Exception):
    """Another instance has taken over. Stop at once; nothing of the open transaction is visible."""


class OutcomeUnknown(Exception):
    """A commit timed out: it may or may not have happened. Exit and restore from the log."""


class Unfit(Exception):
    """A message or row that the log can not take, and nothing was sent; the text names its topic and why."""


class TooLarge(Unfit):
    """A record is larger than its topic takes; the text names topic, size and limit."""


class Unencodable(Unfit):
    """A row with a value that is not of its field's type; the text names table and reason."""


class OffsetHole(Exception):
    """Committed positions point at records that are gone: an alarm for a person, never a silent skip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How fast a dead instance is noticed. The governor's are shorter: everyone waits for it."""

    session_timeout_ms: int = 6000
    transaction_timeout_ms: int = 10000


class Place(Struct, frozen=True, gc=False):
    """A partition of a topic."""

    topic: str
    partition: int


class Record(Struct, frozen=True, gc=False):
    """One record as read."""

    place: Place
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]
    timestamp_ms: int


class Outgoing(Struct, frozen=True, gc=False):
    """One record to write; `partition` None means murmur2 of the key."""

    topic: str
    key: bytes
    value: bytes | None
    partition: int | None = None
    headers: Sequence[tuple[str, bytes]] = ()


@dataclass(frozen=True, slots=True)
class Assignment:
    """What changed in a poll: partition numbers gained and lost (all topics of a session are co-partitioned).

    `starts` tells for each gained place the committed position, or its first offset where nothing was committed; it
    was read after any pending transaction of a dead predecessor had ended.
    """

    gained: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    starts: Mapping[Place, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Polled:
    """What one poll brought. Handle `assignment` before `records`."""

    assignment: Assignment
    records: Sequence[Record]


class Session(Protocol):
    """Membership of one instance in a group, with a transaction of its own. Used by one thread."""

    def poll(self, timeout_s: float, limit: int) -> Polled:
        """At most `limit` records of the owned, unpaused partitions; waits up to `timeout_s` for the first.

        Raises `LogUnavailable`, `Fenced`, `OffsetHole`.
        """

    def pause(self, place: Place) -> None:
        """Bring no more records of `place`; its position stays where the last `seek` or poll left it.

        Ends with the assignment: whoever is given the place reads it, also who had paused it before.
        """

    def resume(self, place: Place) -> None: ...

    def seek(self, place: Place, offset: int) -> None:
        """The next poll brings `offset` first."""

    def send_now(self, records: Iterable[Outgoing]) -> None:
        """Write outside any transaction, fire and forget."""

    def commit(self, records: Iterable[Outgoing], positions: Mapping[Place, int]) -> None:
        """Write records and input positions in one transaction, under the group's current generation.

        Raises `Aborted` (nothing of it is visible; seek back), `TooLarge` (likewise), `Fenced`, `OutcomeUnknown`.
        """

    def close(self) -> None: ...


class Reader(Protocol):
    """Reads whole partitions outside any group: changelogs at restore, views all the time."""

    def end(self, place: Place) -> int:
        """The high watermark: one past the last record, pending transactions included."""

    def start(self, place: Place, offset: int) -> None:
        """Read `place` from `offset` (or from its first record, if that is later)."""

    def poll(self, timeout_s: float, limit: int) -> Sequence[Record]:
        """Committed records of the started places, in order within each."""

    def position(self, place: Place) -> int:
        """Offset after the last record, marker or aborted record passed."""

    def close(self) -> None: ...


class Writer(Protocol):
    """Writes outside any group: what the api accepts from people."""

    def write(self, records: Iterable[Outgoing]) -> None:
        """Returns when every record is stored.

        Raises `TooLarge` (none is stored), `LogUnavailable` (some may be stored, so ids must repeat).
        """

    def close(self) -> None: ...


class Log(Protocol):
    """A connection to the log of one installation."""

    partitions: int  #: partition count of every partitioned topic

    def session(self, group: str, instance: str, topics: Sequence[str]) -> Session: ...

    def reader(self) -> Reader: ...

    def writer(self) -> Writer: ...

    def lag(self, group: str, topic: str) -> int:
        """Records of `topic` after the committed positions of `group`, all partitions."""


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2 (seed 0x9747b28c), as in org.apache.kafka.common.utils.Utils (Kafka 4.0)."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    length = len(data)
    h = (0x9747B28C ^ length) & mask
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if whole < length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """Partition of a key, as the Java client and librdkafka's `murmur2_random` compute it."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
