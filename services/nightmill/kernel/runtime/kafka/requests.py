"""A few requests of Kafka's protocol that the client does not offer: who writes where, and which transactions are open.

To one node, which must lead the partitions and coordinate the transactions that it is asked about: the broker of a
laptop does for all of them; in a cluster each broker is asked for its own (`lasting`). Fields and their order are those
of Kafka's own message definitions (`common/message/*.json` in kafka-clients 4.4), all in the "flexible" form
(https://kafka.apache.org/protocol, 2026-11-30) except metadata, whose oldest form is the smallest.
"""

import socket
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar

_T = TypeVar("_T")
_CLIENT = b"nightmill"
_METADATA, _INIT_PRODUCER_ID, _WRITE_TXN_MARKERS = 3, 22, 27
_DESCRIBE_PRODUCERS, _DESCRIBE_TRANSACTIONS, _LIST_TRANSACTIONS = 61, 65, 66
_NO_TAGS = b"\0"


class Refused(Exception):
    """The broker answered with an error, or with something else than an answer. Says which request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction that a partition's log has no end of."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int
    last_at_ms: int  #: of its last record here, by the clock of whoever wrote it


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Where its brokers are, as they tell it, and which of them leads each partition; -1: none does."""

    brokers: Mapping[int, str]  #: `HOST:PORT`
    leaders: Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatedTransaction:
    """What the coordinator knows of a producer's latest transaction: the partitions that it will still end."""

    transactional_id: str
    producer_epoch: int
    began_at_ms: int  #: -1: it has none
    places: frozenset[tuple[str, int]]


class Node:
    """A connection to the broker at `HOST:PORT`. Calls block for at most `timeout_s`.

    Raises `OSError` when the broker is away, `Refused` when it answers with an error.
    """

    def __init__(self, bootstrap: str, timeout_s: float = 5.0) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def partitions(self) -> dict[str, list[int]]:
        """Every topic with its partitions, internal ones too."""
        return {topic: list(numbers) for topic, numbers in self.cluster().leaders.items()}

    def cluster(self) -> Cluster:
        """The cluster that the broker is one of, with internal topics."""
        answer = self._ask(_METADATA, 1, struct.pack(">i", -1), flexible=False)
        brokers = dict(_each(answer, lambda: _old_broker(answer)))
        answer.take("i")
        return Cluster(brokers=brokers, leaders=dict(_each(answer, lambda: _old_topic(answer))))

    def open_transactions(self, partitions: Mapping[str, Sequence[int]]) -> list[OpenTransaction]:
        """Of those partitions; one that has no leader just now has none."""
        body = _array(_text(topic) + _integers("i", numbers) + _NO_TAGS for topic, numbers in partitions.items())
        answer = self._ask(_DESCRIBE_PRODUCERS, 0, body + _NO_TAGS)
        answer.take("i")
        found: list[OpenTransaction] = []
        for _ in range(answer.count()):
            topic = answer.text()
            for _ in range(answer.count()):
                partition, _error = answer.take("i"), answer.take("h")
                answer.text()
                found += [_open(topic, partition, answer) for _ in range(answer.count())]
                answer.skip_tags()
            answer.skip_tags()
        return [each for each in found if each.first_offset >= 0]

    def coordinated(self, producer_ids: Iterable[int]) -> dict[int, CoordinatedTransaction]:
        """By producer id; one that no transactional id has (any more) is missing."""
        answer = self._ask(_LIST_TRANSACTIONS, 0, _array([]) + _integers("q", producer_ids) + _NO_TAGS)
        answer.take("i")
        _check("list transactions", answer.take("h"))
        answer.texts()
        names = [_listed(answer) for _ in range(answer.count())]
        if not names:
            return {}
        answer = self._ask(_DESCRIBE_TRANSACTIONS, 0, _array(map(_text, names)) + _NO_TAGS)
        answer.take("i")
        return dict(_described(answer) for _ in range(answer.count()))

    def fence(self, transactional_id: str, timeout_ms: int) -> None:
        """As the start of a successor does: whoever has this id now can write nothing any more."""
        answer = self._ask(_INIT_PRODUCER_ID, 2, _text(transactional_id) + struct.pack(">i", timeout_ms) + _NO_TAGS)
        answer.take("i")
        _check(f"fence {transactional_id}", answer.take("h"))

    def end(self, transaction: OpenTransaction, *, commit: bool) -> None:
        """Write the missing end of a transaction into its partition, as its coordinator would."""
        place = _text(transaction.topic) + _integers("i", [transaction.partition]) + _NO_TAGS
        head = struct.pack(">qh?", transaction.producer_id, transaction.producer_epoch, commit)
        marker = head + _array([place]) + struct.pack(">i", transaction.coordinator_epoch) + _NO_TAGS
        answer = self._ask(_WRITE_TXN_MARKERS, 1, _array([marker]) + _NO_TAGS)
        for _ in range(answer.count()):
            answer.take("q")
            for _ in range(answer.count()):
                topic = answer.text()
                for _ in range(answer.count()):
                    number = answer.take("i")
                    _check(f"end the transaction in {topic}[{number}]", answer.take("h"))

    def _ask(self, kind: int, version: int, body: bytes, *, flexible: bool = True) -> "Answer":
        head = struct.pack(f">hhih{len(_CLIENT)}s", kind, version, 1, len(_CLIENT), _CLIENT)
        message = head + (_NO_TAGS if flexible else b"") + body
        self._socket.sendall(struct.pack(">i", len(message)) + message)
        answer = Answer(self._receive(struct.unpack(">i", self._receive(4))[0]))
        answer.take("i")
        if flexible:
            answer.skip_tags()
        return answer

    def _receive(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            part = self._socket.recv(size - len(received))
            if not part:
                raise Refused("the broker ended the connection instead of an answer")
            received += part
        return received


class Answer:
    """Reads one answer, or something else in Kafka's form, from its beginning. Raises `Refused` where it is no such."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, kind: str) -> int:
        (value,) = struct.unpack(f">{kind}", self._next(struct.calcsize(f">{kind}")))
        return int(value)

    def old_text(self) -> str:
        return self._letters(max(0, self.take("h")))

    def text(self) -> str:
        return self._letters(self.count())

    def texts(self) -> list[str]:
        return [self.text() for _ in range(self.count())]

    def count(self) -> int:
        """Of what follows; nothing at all counts as zero."""
        return max(0, self._unsigned() - 1)

    def skip_tags(self) -> None:
        for _ in range(self._unsigned()):
            self._unsigned()
            self._next(self._unsigned())

    def _letters(self, size: int) -> str:
        try:
            return self._next(size).decode()
        except UnicodeDecodeError as error:
            raise Refused(f"no text where one was expected: {error}") from error

    def _next(self, size: int) -> bytes:
        if self._at + size > len(self._data):
            raise Refused(f"{len(self._data)} bytes where {self._at + size} were expected")
        self._at += size
        return self._data[self._at - size : self._at]

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self._next(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7


def _old_broker(answer: Answer) -> tuple[int, str]:
    number, host, port = answer.take("i"), answer.old_text(), answer.take("i")
    answer.old_text()
    return number, f"{host}:{port}"


def _old_topic(answer: Answer) -> tuple[str, dict[int, int]]:
    answer.take("h")
    name = answer.old_text()
    answer.take("b")
    return name, dict(_each(answer, lambda: _old_partition(answer)))


def _old_partition(answer: Answer) -> tuple[int, int]:
    """Its number and its leader."""
    answer.take("h")
    number, leader = answer.take("i"), answer.take("i")
    for _ in ("replicas", "in sync"):
        _each(answer, lambda: answer.take("i"))
    return number, leader


def _open(topic: str, partition: int, answer: Answer) -> OpenTransaction:
    producer_id, epoch, _sequence = answer.take("q"), answer.take("i"), answer.take("i")
    last_at_ms, coordinator_epoch, first = answer.take("q"), answer.take("i"), answer.take("q")
    answer.skip_tags()
    return OpenTransaction(
        topic=topic,
        partition=partition,
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=max(0, coordinator_epoch),
        first_offset=first,
        last_at_ms=last_at_ms,
    )


def _listed(answer: Answer) -> str:
    name = answer.text()
    answer.take("q")
    answer.text()
    answer.skip_tags()
    return name


def _described(answer: Answer) -> tuple[int, CoordinatedTransaction]:
    error, name = answer.take("h"), answer.text()
    _check(f"describe {name}", error)
    answer.text()
    answer.take("i")
    began_at_ms, producer_id, epoch = answer.take("q"), answer.take("q"), answer.take("h")
    places: set[tuple[str, int]] = set()
    for _ in range(answer.count()):
        topic = answer.text()
        places |= {(topic, answer.take("i")) for _ in range(answer.count())}
        answer.skip_tags()
    answer.skip_tags()
    return producer_id, CoordinatedTransaction(
        transactional_id=name, producer_epoch=epoch, began_at_ms=began_at_ms, places=frozenset(places)
    )


def _each(answer: Answer, read: Callable[[], _T]) -> list[_T]:
    return [read() for _ in range(answer.take("i"))]


def _check(what: str, error: int) -> None:
    if error:
        raise Refused(f"{what}: Kafka's error {error}")


def _array(members: Iterable[bytes]) -> bytes:
    encoded = list(members)
    return _size(len(encoded) + 1) + b"".join(encoded)


def _integers(kind: str, values: Iterable[int]) -> bytes:
    return _array(struct.pack(f">{kind}", value) for value in values)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _size(len(encoded) + 1) + encoded


def _size(value: int) -> bytes:
    encoded = b""
    while value >= 0x80:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])
