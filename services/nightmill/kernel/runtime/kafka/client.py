"""Client settings and the meaning of its errors, shared by the session, the reader and the administrator.

Settings are those measured on a real broker. Three deserve a word: `retry.backoff.ms=5` (with the default of 100 a
transaction waits 40-105 ms for its predecessor's markers instead of 10), `partitioner=murmur2_random` (the default is
CRC32, which no other client shares), and `metadata.recovery.strategy=none` (by default a client that has lost all
brokers forgets them, except for the group's coordinator, and its next transaction waits for that one without end:
https://github.com/confluentinc/librdkafka/issues/5511, open on 2026-11-29).
"""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from nightmill.kernel.runtime.log import Fenced, LogUnavailable, OffsetHole, Place, Record

CALL_TIMEOUT_S = 10.0
BATCH_BYTES = 262144
_PAUSE_S = 0.05

_Result = TypeVar("_Result")

PRODUCER = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 5,
    "batch.size": BATCH_BYTES,
    "compression.type": "lz4",
    "partitioner": "murmur2_random",
    "message.max.bytes": 4 << 20,
    "retry.backoff.ms": 5,
    "retry.backoff.max.ms": 50,
    "metadata.recovery.strategy": "none",
    "queue.buffering.max.messages": 200000,
}
CONSUMER = {
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": 500,
    "queued.max.messages.kbytes": 32768,
    "max.poll.interval.ms": 300000,
    "fetch.message.max.bytes": 4 << 20,
}
FENCED = {KafkaError._FENCED, KafkaError.FENCED_INSTANCE_ID, KafkaError.INVALID_PRODUCER_EPOCH}


def patiently(what: str, call: Callable[[], _Result]) -> _Result:
    """The result of a metadata call, tried again while the broker moves leaders or is away for a moment.

    Blocks for at most about 20 s. Raises `LogUnavailable`.
    """
    deadline_s = time.monotonic() + CALL_TIMEOUT_S
    while True:
        try:
            return call()
        except KafkaException as error:
            if time.monotonic() > deadline_s:
                raise LogUnavailable(f"{what}: {error.args[0].str()}") from error
            time.sleep(_PAUSE_S)


def to_record(message: Any, prefix: str) -> Record:
    return Record(
        Place(message.topic().removeprefix(prefix), message.partition()),
        message.offset(),
        message.key(),
        message.value(),
        message.headers() or (),
        message.timestamp()[1],
    )


def is_notice(message: Any) -> bool:
    """Whether a polled message is only news of the client; raises the port's error where it is a failure."""
    error = message.error()
    if error is None:
        return False
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        raise OffsetHole(f"{message.topic()}[{message.partition()}]: {error.str()}")
    if error.code() in FENCED or error.fatal():
        raise Fenced(error.str())
    if error.retriable() or is_transport(error) or error.code() == KafkaError._PARTITION_EOF:
        return True
    raise LogUnavailable(f"{message.topic()}: {error.str()}")


def is_transport(error: KafkaError) -> bool:
    return error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT)
