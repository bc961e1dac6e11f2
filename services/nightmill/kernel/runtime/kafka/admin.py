"""Creates the topics of an installation from the contract, and checks those that exist."""

import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from nightmill.kernel.runtime.kafka.client import BATCH_BYTES, CALL_TIMEOUT_S
from nightmill.kernel.runtime.log import LogUnavailable
from nightmill.kernel.runtime.sizes import DEAD_LETTER_ROOM_BYTES
from nightmill.kernel.wire.channel import Table, Topic
from nightmill.kernel.wire.topics import CHANNELS, TABLES

_HOUR_MS = 3_600_000
_COMPACTION = {
    "cleanup.policy": "compact",
    "segment.ms": str(_HOUR_MS),
    "max.compaction.lag.ms": str(6 * _HOUR_MS),
    "delete.retention.ms": str(24 * _HOUR_MS),
}
_DEAD_LETTER_RETENTION_H = 720
_PAUSE_S = 0.05


def topic_settings(channel: Topic | Table) -> dict[str, str]:
    """Broker settings of a topic or changelog."""
    if isinstance(channel, Table) or channel.cleanup == "compact":
        settings = dict(_COMPACTION)
    else:
        settings = {"cleanup.policy": "delete", "retention.ms": str((channel.retention_h or 168) * _HOUR_MS)}
    return {**settings, "max.message.bytes": _batch_limit(channel.max_bytes)}


def _batch_limit(record_bytes: int) -> str:
    """The broker measures whole batches, so a topic of small records must still take a full batch of them.

    The limit of a single record is kept by the writers (`sizes.py`).
    """
    return str(max(record_bytes, 2 * BATCH_BYTES))


def wanted_topics(namespace: str, partitions: int, replication: int) -> Iterator[NewTopic]:
    """Every topic of an installation: channels, their dead letters, and changelogs."""
    prefix = f"{namespace}." if namespace else ""
    everything: tuple[Topic | Table, ...] = (*CHANNELS, *TABLES)
    for channel in everything:
        yield _topic(prefix + channel.name, partitions, replication, topic_settings(channel))
    for channel in CHANNELS:
        # room for the original at its limit, and the reason beside it
        settings = {
            "cleanup.policy": "delete",
            "retention.ms": str(_DEAD_LETTER_RETENTION_H * _HOUR_MS),
            "max.message.bytes": _batch_limit(channel.max_bytes + DEAD_LETTER_ROOM_BYTES),
        }
        yield _topic(f"{prefix}{channel.name}-dlq", partitions, replication, settings)


def create_topics(bootstrap: str, namespace: str, partitions: int, replication: int = 1) -> int:
    """Create what is missing; returns how many were. An existing topic with another partition count is an error.

    Raises `LogUnavailable` when the broker does not answer, ValueError when partition counts differ.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    try:
        known = admin.list_topics(timeout=CALL_TIMEOUT_S).topics
        wanted = list(wanted_topics(namespace, partitions, replication))
        for topic in wanted:
            found = known.get(topic.topic)
            if found is not None and len(found.partitions) != partitions:
                raise ValueError(
                    f"topic {topic.topic} has {len(found.partitions)} partitions, not {partitions}: "
                    "the count of a keyed topic can not be changed; use another namespace or the old count"
                )
        missing = [topic for topic in wanted if topic.topic not in known]
        for future in admin.create_topics(missing, operation_timeout=CALL_TIMEOUT_S).values() if missing else ():
            _created(future)
        _await_topics(admin, {topic.topic for topic in missing})
    except KafkaException as error:
        raise LogUnavailable(f"broker {bootstrap}: {error.args[0]}") from error
    return len(missing)


def delete_topics(bootstrap: str, namespace: str) -> None:
    """Delete every topic of a namespace; for tests. Raises `LogUnavailable`."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    try:
        names = [name for name in admin.list_topics(timeout=CALL_TIMEOUT_S).topics if name.startswith(f"{namespace}.")]
        for future in admin.delete_topics(names).values() if names else ():
            future.result()
    except KafkaException as error:
        raise LogUnavailable(f"broker {bootstrap}: {error.args[0]}") from error


def _topic(name: str, partitions: int, replication: int, settings: dict[str, str]) -> NewTopic:
    return NewTopic(name, num_partitions=partitions, replication_factor=replication, config=settings)


def _await_topics(admin: AdminClient, names: set[str]) -> None:
    """A created topic is unknown to clients until the broker has taken in its own news: members would fail on it."""
    deadline_s = time.monotonic() + CALL_TIMEOUT_S
    while not names <= admin.list_topics(timeout=CALL_TIMEOUT_S).topics.keys():
        if time.monotonic() > deadline_s:
            raise LogUnavailable(f"created topics do not appear after {CALL_TIMEOUT_S:.0f} s")
        time.sleep(_PAUSE_S)


def _created(future: Any) -> None:
    try:
        future.result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
