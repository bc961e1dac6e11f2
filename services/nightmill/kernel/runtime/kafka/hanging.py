"""Ends transactions that stay open in partitions although their coordinator has closed them.

A broker that was killed, or ended because its disk was full, comes back in two steps: its controller declares its
former self dead, so that for a moment no partition has a leader, and lets it lead again. The end of a transaction that
is due in that moment is not written: Kafka 4.4 takes such partitions for deleted ones, skips them and notes the
transaction as complete (KAFKA-20734, https://github.com/apache/kafka/pull/22680, open on 2026-11-30). Nobody comes back
to it: the committed positions of that group can not be asked for any more, and no reader of committed records passes
the place, over every restart. Kafka calls that a hanging transaction and leaves it to a person (KIP-664,
https://cwiki.apache.org/confluence/spaces/KAFKA/pages/158873417, 2026-11-30), whose tool can only abort, which would
lose what was committed. The coordinator's own log tells how it ended, so the missing end is written as it should have
been.

For a broker that is a cluster of its own (`requests.py`).
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nightmill.kernel.runtime.kafka.reader import KafkaReader
from nightmill.kernel.runtime.kafka.requests import Answer, CoordinatedTransaction, Node, OpenTransaction, Refused
from nightmill.kernel.runtime.log import LogUnavailable, Place

log = logging.getLogger(__name__)

#: No transaction of ours lives longer than 10 s (`Timing`), and its coordinator ends it a second later.
OLD_MS = 15_000
_FENCE_TIMEOUT_MS = 10_000
COORDINATOR_LOG = "__transaction_state"
#: in a record of the coordinator's log: version, producer id and epoch, timeout, status, places (all its versions)
_VERSION, _PRODUCER, _EPOCH, _STATUS = slice(2), slice(2, 10), slice(10, 12), 16
_FLEXIBLE = 1  #: the first version whose places are in the compact form
#: Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort → decision
_STATUSES: Mapping[int, bool | None] = {1: None, 2: True, 3: False, 4: True, 5: False}
_POLL_S = 1.0
_SILENT_POLLS = 10
_BATCH = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What a coordinator wrote down of a transaction."""

    producer_id: int
    producer_epoch: int
    commit: bool | None  #: None: it was not decided yet
    places: frozenset[tuple[str, int]]  #: none where all of them had been ended
    at_ms: int


def end_hanging(bootstrap: str, now_ms: int) -> list[OpenTransaction]:
    """End every hanging transaction of the broker; those that were ended. Cheap where there is none: three requests.

    A producer that is alive under the same epoch is fenced first, since its next transaction could begin where the old
    one is ended. Blocks for some seconds at most. Raises `OSError` and `LogUnavailable` when the broker is away,
    `Refused` when it can not do it now: call again later.
    """
    with Node(bootstrap) as node:
        partitions = node.partitions()
        open_ = [each for each in node.open_transactions(partitions) if now_ms - each.last_at_ms >= OLD_MS]
        if not open_:
            return []
        known = node.coordinated({each.producer_id for each in open_})
        hanging = hanging_among(open_, known)
        for name in {known[each.producer_id].transactional_id for each in hanging if is_current(each, known)}:
            node.fence(name, _FENCE_TIMEOUT_MS)
        # what is open as before was open all the time, so that its coordinator knew of it, or will not end it
        still = set(node.open_transactions(partitions)) & set(hanging)
        if not still:
            return []
        producer_ids = {each.producer_id for each in still}
        notes = notes_of(bootstrap, partitions.get(COORDINATOR_LOG, ()), producer_ids)
        # a coordinator that had not begun to read its log when it was asked said nothing; by now it has, or refuses
        ended = hanging_among(still, node.coordinated(producer_ids))
        for each in ended:
            _end(node, each, commit=committed(each, notes))
    return sorted(ended, key=lambda each: (each.topic, each.partition, each.first_offset))


def hanging_among(
    open_: Iterable[OpenTransaction], known: Mapping[int, CoordinatedTransaction]
) -> list[OpenTransaction]:
    """Those that no coordinator will end: it knows nothing of the producer, or is done with that partition."""
    return [
        each
        for each in open_
        if each.producer_id not in known or (each.topic, each.partition) not in known[each.producer_id].places
    ]


def is_current(transaction: OpenTransaction, known: Mapping[int, CoordinatedTransaction]) -> bool:
    """Whether its producer may still write under that epoch."""
    coordinated = known.get(transaction.producer_id)
    return coordinated is not None and coordinated.producer_epoch == transaction.producer_epoch


def committed(transaction: OpenTransaction, notes: Iterable[Note]) -> bool:
    """Whether the coordinator decided to commit it; `notes` in the order of the log. Without a trace: aborted.

    The last transaction of that producer in that place is meant, for the end of a later one would have ended this one
    too. Times do not tell: a producer has its next records made before the end of its last transaction is noted.
    A decision stands under the transaction's epoch, or the next one when the coordinator fenced its producer.
    """
    epochs = (transaction.producer_epoch, transaction.producer_epoch + 1)
    ours = [each for each in notes if each.producer_id == transaction.producer_id and each.producer_epoch in epochs]
    here = [each for each in ours if (transaction.topic, transaction.partition) in each.places]
    if not here and ours and not ours[0].places and ours[0].at_ms >= transaction.last_at_ms:
        # the log was compacted: the decision itself is gone, and what is left says that it is carried out
        here = ours[:1]
    return bool(here and here[-1].commit)


def noted(value: bytes | None, at_ms: int) -> Note | None:
    """The note in a record of the coordinator's log, if it is one. Raises `Refused` when its form is not known."""
    if value is None or len(value) <= _STATUS or value[_STATUS] not in _STATUSES:
        return None
    return Note(
        producer_id=int.from_bytes(value[_PRODUCER], signed=True),
        producer_epoch=int.from_bytes(value[_EPOCH], signed=True),
        commit=_STATUSES[value[_STATUS]],
        places=_places(Answer(value[_STATUS + 1 :]), flexible=int.from_bytes(value[_VERSION]) >= _FLEXIBLE),
        at_ms=at_ms,
    )


def _places(fields: Answer, *, flexible: bool) -> frozenset[tuple[str, int]]:
    found: set[tuple[str, int]] = set()
    for _ in range(fields.count() if flexible else fields.take("i")):
        topic = fields.text() if flexible else fields.old_text()
        found |= {(topic, fields.take("i")) for _ in range(fields.count() if flexible else fields.take("i"))}
        if flexible:
            fields.skip_tags()
    return frozenset(found)


def notes_of(bootstrap: str, numbers: Iterable[int], producer_ids: set[int]) -> list[Note]:
    """All of these producers, in the order of the log, which is compacted, and small. Raises `LogUnavailable`."""
    found: list[Note] = []
    silent = 0
    reader = KafkaReader({"bootstrap.servers": bootstrap, "log_level": 2}, "")
    try:
        ends = {place: reader.end(place) for place in (Place(COORDINATOR_LOG, number) for number in numbers)}
        for place in ends:
            reader.start(place, 0)
        while any(reader.position(place) < end for place, end in ends.items()):
            before = [reader.position(place) for place in ends]
            records = reader.poll(_POLL_S, _BATCH)
            silent = silent + 1 if before == [reader.position(place) for place in ends] else 0
            if silent == _SILENT_POLLS:
                raise LogUnavailable(f"nothing more came of {COORDINATOR_LOG} for {_SILENT_POLLS * _POLL_S:.0f} s")
            for record in records:
                note = noted(record.value, record.timestamp_ms)
                if note is not None and note.producer_id in producer_ids:
                    found.append(note)
    finally:
        reader.close()
    return found


def _end(node: Node, transaction: OpenTransaction, *, commit: bool) -> None:
    extra: dict[str, object] = {
        "topic": transaction.topic,
        "partition": transaction.partition,
        "offset": transaction.first_offset,
        "outcome": "committed" if commit else "aborted",
    }
    try:
        node.end(transaction, commit=commit)
    except Refused as error:
        extra |= {"action": "transaction_not_ended", "reason": str(error)}
        log.error("a hanging transaction could not be ended", extra=extra)
        raise
    log.warning("a hanging transaction was ended", extra={**extra, "action": "transaction_ended"})
