"""Reading whole partitions outside a group, and writing outside a transaction.

A committed consumer is told the last stable offset where it asks for the end; a second, uncommitted one is asked for
the high watermark, or a restore would miss committed rows whose markers lag.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from nightmill.kernel.runtime.kafka.client import CALL_TIMEOUT_S, CONSUMER, PRODUCER, is_transport, patiently, to_record
from nightmill.kernel.runtime.log import LogUnavailable, Outgoing, Place, Record
from nightmill.kernel.runtime.sizes import check_sizes


class KafkaReader:
    """Reads whole partitions without a group; knows how far it is by end-of-partition notices."""

    def __init__(self, client: dict[str, Any], prefix: str) -> None:
        self._prefix = prefix
        self._positions: dict[Place, int] = {}
        settings = {**client, **CONSUMER, "group.id": f"{prefix}reader", "auto.offset.reset": "earliest"}
        self._consumer = Consumer({**settings, "enable.partition.eof": True})
        self._watermarks = Consumer({**settings, "isolation.level": "read_uncommitted"})

    def end(self, place: Place) -> int:
        """Raises `LogUnavailable`."""
        where = TopicPartition(self._prefix + place.topic, place.partition)
        _, high = patiently(
            f"end of {place.topic}",
            lambda: self._watermarks.get_watermark_offsets(where, timeout=CALL_TIMEOUT_S),
        )
        return int(high)

    def start(self, place: Place, offset: int) -> None:
        self._positions[place] = offset
        self._consumer.incremental_assign([TopicPartition(self._prefix + place.topic, place.partition, offset)])

    def poll(self, timeout_s: float, limit: int) -> Sequence[Record]:
        records = []
        first = self._consumer.poll(timeout_s)
        for message in [] if first is None else [first, *self._consumer.consume(limit - 1, 0)]:
            error = message.error()
            if error is None:
                record = to_record(message, self._prefix)
                self._positions[record.place] = record.offset + 1
                records.append(record)
            elif error.code() == KafkaError._PARTITION_EOF:
                place = Place(str(message.topic()).removeprefix(self._prefix), int(message.partition() or 0))
                self._positions[place] = max(self._positions[place], int(message.offset() or 0))
            elif not error.retriable() and not is_transport(error):
                raise LogUnavailable(f"reading {message.topic()}: {error.str()}")
        return records

    def position(self, place: Place) -> int:
        return self._positions[place]

    def close(self) -> None:
        self._consumer.close()
        self._watermarks.close()


class KafkaWriter:
    """Writes single records and waits for the broker's word."""

    def __init__(self, client: dict[str, Any], prefix: str) -> None:
        self._prefix = prefix
        self._producer = Producer({**client, **PRODUCER, "linger.ms": 0, "delivery.timeout.ms": 9000})

    def write(self, records: Iterable[Outgoing]) -> None:
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: object) -> None:
            if error is not None:
                failures.append(error)

        records = list(records)
        check_sizes(records)
        for record in records:
            where: dict[str, Any] = {} if record.partition is None else {"partition": record.partition}
            self._producer.produce(
                self._prefix + record.topic,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                on_delivery=delivered,
                **where,
            )
        if self._producer.flush(CALL_TIMEOUT_S) > 0 or failures:
            raise LogUnavailable(str(failures[0] if failures else "the broker did not answer in time"))

    def close(self) -> None:
        self._producer.flush(CALL_TIMEOUT_S)
