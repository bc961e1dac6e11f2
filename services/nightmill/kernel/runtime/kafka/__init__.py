"""The log on Apache Kafka: the only room that knows confluent-kafka."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from nightmill.kernel.runtime.kafka.client import CALL_TIMEOUT_S, CONSUMER, patiently
from nightmill.kernel.runtime.kafka.reader import KafkaReader, KafkaWriter
from nightmill.kernel.runtime.kafka.session import KafkaSession
from nightmill.kernel.runtime.log import Timing

__all__ = ["KafkaLog"]


class KafkaLog:
    """One installation's topics on a broker; `namespace` is the prefix that keeps installations apart."""

    def __init__(self, bootstrap: str, namespace: str, partitions: int, timing: Timing | None = None) -> None:
        self.partitions = partitions
        self._bootstrap = bootstrap
        self._prefix = f"{namespace}." if namespace else ""
        self._timing = timing or Timing()

    def session(self, group: str, instance: str, topics: Sequence[str]) -> "KafkaSession":
        return KafkaSession(self._client(), self._prefix, group, instance, topics, self._timing)

    def reader(self) -> "KafkaReader":
        return KafkaReader(self._client(), self._prefix)

    def writer(self) -> "KafkaWriter":
        return KafkaWriter(self._client(), self._prefix)

    def lag(self, group: str, topic: str) -> int:
        """Raises `LogUnavailable`."""
        consumer = Consumer({**self._client(), **CONSUMER, "group.id": self._prefix + group})
        places = [TopicPartition(self._prefix + topic, number) for number in range(self.partitions)]
        lag = 0
        try:
            for place in patiently(f"positions of {group}", lambda: consumer.committed(places, timeout=CALL_TIMEOUT_S)):
                low, high = patiently(f"ends of {topic}", partial(consumer.get_watermark_offsets, place))
                lag += high - max(place.offset, low)
        finally:
            consumer.close()
        return lag

    def _client(self) -> dict[str, Any]:
        return {"bootstrap.servers": self._bootstrap, "log_level": 2, "allow.auto.create.topics": False}
