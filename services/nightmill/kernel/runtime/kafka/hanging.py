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
from nightmill.kernel.runtime.kafka.requests import CoordinatedTransaction, Node, OpenTransaction, Refused
from nightmill.kernel.runtime.log import Place

log = logging.getLogger(__name__)

#: No transaction of ours lives longer than 10 s (`Timing`), and its coordinator ends it a second later.
OLD_MS = 15_000
_FENCE_TIMEOUT_MS = 10_000
_COORDINATOR_LOG = "__transaction_state"
#: in a record of the coordinator's log: version, producer id, producer epoch, timeout, status (all its versions)
_EPOCH, _STATUS = slice(10, 12), 16
_PRODUCER = slice(2, 10)
_COMMITTED = frozenset({2, 4})  #: statuses PrepareCommit and CompleteCommit
_ABORTED = frozenset({3, 5})  #: PrepareAbort and CompleteAbort
_POLL_S = 1.0
_BATCH = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """How a transaction ended, as its coordinator wrote it down."""

    producer_id: int
    producer_epoch: int
    commit: bool
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
        decisions = _decisions(bootstrap, partitions.get(_COORDINATOR_LOG, ()), {each.producer_id for each in still})
        for each in still:
            _end(node, each, commit=committed(each, decisions))
    return sorted(still, key=lambda each: (each.topic, each.partition, each.first_offset))


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


def committed(transaction: OpenTransaction, decisions: Iterable[Decided]) -> bool:
    """Whether the coordinator decided, after the transaction's last record, to commit it. Without a trace: aborted.

    A decision stands under the transaction's epoch, or the next one when the coordinator fenced its producer.
    """
    epochs = (transaction.producer_epoch, transaction.producer_epoch + 1)
    later = (
        each
        for each in decisions
        if each.producer_id == transaction.producer_id
        and each.producer_epoch in epochs
        and each.at_ms >= transaction.last_at_ms
    )
    first = min(later, key=lambda each: each.at_ms, default=None)
    return first is not None and first.commit


def decided(value: bytes | None, at_ms: int) -> Decided | None:
    """The decision in a record of the coordinator's log, if it is one."""
    if value is None or len(value) <= _STATUS or value[_STATUS] not in _COMMITTED | _ABORTED:
        return None
    return Decided(
        producer_id=int.from_bytes(value[_PRODUCER], signed=True),
        producer_epoch=int.from_bytes(value[_EPOCH], signed=True),
        commit=value[_STATUS] in _COMMITTED,
        at_ms=at_ms,
    )


def _decisions(bootstrap: str, numbers: Iterable[int], producer_ids: set[int]) -> list[Decided]:
    """All of these producers; the coordinator's log is compacted, and small."""
    found: list[Decided] = []
    reader = KafkaReader({"bootstrap.servers": bootstrap, "log_level": 2}, "")
    try:
        ends = {place: reader.end(place) for place in (Place(_COORDINATOR_LOG, number) for number in numbers)}
        for place in ends:
            reader.start(place, 0)
        while any(reader.position(place) < end for place, end in ends.items()):
            for record in reader.poll(_POLL_S, _BATCH):
                decision = decided(record.value, record.timestamp_ms)
                if decision is not None and decision.producer_id in producer_ids:
                    found.append(decision)
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
