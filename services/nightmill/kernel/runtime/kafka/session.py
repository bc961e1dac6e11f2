"""Membership of one service instance in its group, with its transactions."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from nightmill.kernel.runtime.kafka.ahead import ReadAhead
from nightmill.kernel.runtime.kafka.client import (
    CALL_TIMEOUT_S,
    CONSUMER,
    FENCED,
    PRODUCER,
    is_notice,
    patiently,
    to_record,
)
from nightmill.kernel.runtime.kafka.overdue import Overdue
from nightmill.kernel.runtime.log import (
    Aborted,
    Assignment,
    Fenced,
    LogUnavailable,
    OutcomeUnknown,
    Outgoing,
    Place,
    Polled,
    Timing,
)
from nightmill.kernel.runtime.sizes import check_sizes

_FETCH_RECORDS = 2_000  #: taken from the client in one poll
_SERVE_EVERY = 200  #: records between two looks at delivery reports
_OVERDUE_S = CALL_TIMEOUT_S + 2  #: a call that has not kept its timeout by then never comes back


class KafkaSession:
    """A group member with static id, and the transactional producer of the same name."""

    def __init__(
        self,
        client: dict[str, Any],
        prefix: str,
        group: str,
        instance: str,
        topics: Sequence[str],
        timing: Timing,
    ) -> None:
        self._prefix = prefix
        self._gained: list[int] = []
        self._lost: list[int] = []
        self._starts: dict[Place, int] = {}
        self._ahead = ReadAhead()
        self._unserved = 0
        self._closing = False
        self._failure: KafkaError | None = None
        self._producer = Producer(
            {
                **client,
                **PRODUCER,
                "transactional.id": f"{prefix}{group}-{instance}",
                "transaction.timeout.ms": timing.transaction_timeout_ms,
                "delivery.timeout.ms": timing.transaction_timeout_ms - 1000,
            }
        )
        try:
            self._producer.init_transactions(3 * CALL_TIMEOUT_S)
        except KafkaException as error:
            raise LogUnavailable(f"no transactions for {group}-{instance}: {error.args[0]}") from error
        self._overdue = Overdue(_OVERDUE_S)
        self._outside = Producer({**client, **PRODUCER})
        self._consumer = Consumer(
            {
                **client,
                **CONSUMER,
                "group.id": prefix + group,
                "group.instance.id": f"{group}-{instance}",
                "session.timeout.ms": timing.session_timeout_ms,
                "heartbeat.interval.ms": timing.session_timeout_ms // 4,
                "partition.assignment.strategy": "range",
            }
        )
        names = [prefix + topic for topic in topics]
        self._consumer.subscribe(names, on_assign=self._on_assign, on_revoke=self._on_revoke)

    def poll(self, timeout_s: float, limit: int) -> Polled:
        self._fetch(0 if self._ahead.has_some else timeout_s)
        self._producer.poll(0)
        self._outside.poll(0)
        assignment = Assignment(tuple(self._gained), tuple(self._lost), self._starts)
        self._gained, self._lost, self._starts = [], [], {}
        if assignment.lost or assignment.gained:
            kept = {(place.topic, place.partition) for place in self._consumer.assignment()}
            self._ahead.keep(lambda place: (self._prefix + place.topic, place.partition) in kept)
        return Polled(assignment, self._ahead.take(limit))

    def _fetch(self, timeout_s: float) -> None:
        """Move what the client has fetched to where topics take turns.

        The first message is put there before the others are asked for: a rebalance among them clears what was read
        under the old assignment.
        """
        first = self._consumer.poll(timeout_s)
        if first is None:
            return
        self._read_ahead(first)
        if not self._ahead.is_full:
            for message in self._consumer.consume(_FETCH_RECORDS, 0):
                self._read_ahead(message)

    def _read_ahead(self, message: Any) -> None:
        if not is_notice(message):
            self._ahead.add(to_record(message, self._prefix))

    def pause(self, place: Place) -> None:
        self._ahead.pause(place)
        self._consumer.pause([self._partition(place)])

    def resume(self, place: Place) -> None:
        self._ahead.resume(place)
        self._consumer.resume([self._partition(place)])

    def seek(self, place: Place, offset: int) -> None:
        self._ahead.forget(place)
        target = self._partition(place)
        target.offset = offset
        self._consumer.seek(target)

    def send_now(self, records: Iterable[Outgoing]) -> None:
        for record in records:
            self._produce(self._outside, record, None)
        self._outside.poll(0)

    def commit(self, records: Iterable[Outgoing], positions: Mapping[Place, int]) -> None:
        self._failure = None
        records = list(records)
        check_sizes(records)
        offsets = [TopicPartition(self._prefix + place.topic, place.partition, at) for place, at in positions.items()]
        try:
            self._producer.begin_transaction()
            self._fill(records)
            if offsets:
                metadata = self._consumer.consumer_group_metadata()
                with self._overdue:
                    self._producer.send_offsets_to_transaction(offsets, metadata, CALL_TIMEOUT_S)
            with self._overdue:
                self._producer.commit_transaction(CALL_TIMEOUT_S)
        except KafkaException as error:
            self._transaction_failed(error)
        if self._failure is not None:
            raise OutcomeUnknown(f"a record of a committed transaction was not delivered: {self._failure}")

    def _fill(self, records: Iterable[Outgoing]) -> None:
        """Raises `Aborted` when the client finds the transaction failed while it is being filled."""
        try:
            for record in records:
                self._produce(self._producer, record, self._delivered)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:
                raise
            self._abort(error)

    def close(self) -> None:
        self._closing = True
        self._outside.flush(CALL_TIMEOUT_S)
        # an assignment that waits here is answered now: an answer from within the client's own close may wait for a
        # thread that is gone (https://github.com/confluentinc/librdkafka/issues/4884, open on 2026-11-30)
        self._consumer.poll(0)
        with self._overdue:
            self._consumer.close()
        self._overdue.close()

    def _produce(self, producer: Producer, record: Outgoing, report: Any) -> None:
        arguments: dict[str, Any] = {"key": record.key, "value": record.value, "headers": list(record.headers)}
        if record.partition is not None:
            arguments["partition"] = record.partition
        if report is not None:
            arguments["on_delivery"] = report
        while True:
            try:
                producer.produce(self._prefix + record.topic, **arguments)
            except BufferError:
                producer.poll(0.1)
            else:
                break
        self._unserved += 1
        if self._unserved >= _SERVE_EVERY:
            self._unserved = 0
            producer.poll(0)

    def _delivered(self, error: KafkaError | None, _message: object) -> None:
        if error is not None:
            self._failure = error

    def _transaction_failed(self, error: KafkaException) -> NoReturn:
        """Map a foreign error to the port's: fenced, to be done again, or unknown."""
        cause: KafkaError = error.args[0]
        if cause.code() in FENCED:
            raise Fenced(cause.str()) from error
        if cause.txn_requires_abort():
            self._abort(error)
        raise OutcomeUnknown(cause.str()) from error

    def _abort(self, error: KafkaException) -> NoReturn:
        try:
            with self._overdue:
                self._producer.abort_transaction(CALL_TIMEOUT_S)
        except KafkaException as second:
            if second.args[0].code() in FENCED:
                raise Fenced(second.args[0].str()) from second
            raise OutcomeUnknown(f"abort: {second.args[0]}") from second
        raise Aborted(error.args[0].str()) from error

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Positions are asked for before the first fetch: afterwards each question would wait behind a long one."""
        if self._closing:  # an assignment that was under way: there is nobody left to ask, and it must be answered
            consumer.unassign()
            return
        found = patiently("committed positions", lambda: consumer.committed(partitions, timeout=CALL_TIMEOUT_S))
        for place in found:
            if place.offset < 0:
                place.offset = self._first(place)
        consumer.assign(found)
        consumer.resume(found)  # the client keeps a pause over a revocation: nobody would ever end it
        self._ahead.clear()
        self._gained = sorted({place.partition for place in partitions})
        self._starts = {Place(p.topic.removeprefix(self._prefix), p.partition): p.offset for p in found}

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._ahead.clear()
        self._gained, self._starts = [], {}
        self._lost = sorted({*self._lost, *(place.partition for place in partitions)})

    def _first(self, place: TopicPartition) -> int:
        low, _ = patiently(
            f"first offset of {place.topic}",
            lambda: self._consumer.get_watermark_offsets(place, timeout=CALL_TIMEOUT_S),
        )
        return int(low)

    def _partition(self, place: Place) -> TopicPartition:
        return TopicPartition(self._prefix + place.topic, place.partition)
