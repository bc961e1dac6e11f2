"""Transactions that hang on a real broker: their end is taken out of a partition's log, as if it had never come.

That is what a broker is left with that was started again after its disk was full.
"""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kit.broker import OwnBroker
from nightmill.kernel.runtime.kafka.hanging import OLD_MS, end_hanging
from nightmill.kernel.runtime.kafka.lasting import lasting
from nightmill.kernel.runtime.kafka.requests import Node
from nightmill.local.transactions import check_transactions

_T = TypeVar("_T")
_PATIENCE_S = 60.0
#: of a batch that ends a transaction: 61 bytes of its head, one record with a key of 4 and a value of 6 bytes
_END_BYTES = 78
TOPICS = ("kept", "dropped", "orphaned")
GROUP = "readers"


@pytest.fixture
def producers(broker: OwnBroker, tmp_path: Path) -> dict[str, Producer]:
    """One committed to `kept`, one aborted in `dropped` after a commit, the third is unknown; what they did is open."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic(name, 1) for name in TOPICS]).values():
        future.result()
    found = {name: begun(broker.bootstrap, name) for name in TOPICS}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP})
    place = TopicPartition("kept", 0, 1)
    found["kept"].send_offsets_to_transaction([place], consumer.consumer_group_metadata(), _PATIENCE_S)
    consumer.close()
    found["kept"].commit_transaction(_PATIENCE_S)
    # its record is older than the end of the transaction before, which was committed
    found["dropped"].commit_transaction(_PATIENCE_S)
    write(found["dropped"], "dropped", b"again")
    found["dropped"].abort_transaction(_PATIENCE_S)
    # the end of a transaction is in the logs some time after the client knows of it
    until(lambda: len(open_in(broker)) == 1 or None)
    broker.kill()
    data = next(tmp_path.rglob("meta.properties")).parent
    cut(data, "kept-0", "dropped-0", "__consumer_offsets-*")
    [known] = {log.parent for log in data.glob("__transaction_state-*/*.log") if b"orphaned" in log.read_bytes()}
    shutil.rmtree(known)
    broker.start()
    return found


def begun(address: str, name: str) -> Producer:
    """A producer with an open transaction that has one record in the topic `name`."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": name, "log_level": 2})
    producer.init_transactions(_PATIENCE_S)
    write(producer, name, name.encode())
    return producer


def write(producer: Producer, topic: str, value: bytes) -> None:
    """The beginning of a transaction, on the broker."""
    producer.begin_transaction()
    producer.produce(topic, value, partition=0)
    producer.flush(_PATIENCE_S)


def cut(data: Path, *patterns: str) -> None:
    """Take the last batch of these logs away, and with it what is remembered of it elsewhere."""
    for log in [log for pattern in patterns for log in data.glob(f"{pattern}/*.log") if log.stat().st_size]:
        with log.open("r+b") as file:
            file.truncate(log.stat().st_size - _END_BYTES)
        for remembered in log.parent.glob("*.snapshot"):
            remembered.unlink()


def until(ask: Callable[[], _T | None]) -> _T:
    deadline_s = time.monotonic() + _PATIENCE_S
    while (answer := ask()) is None:
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    return answer


def open_in(broker: OwnBroker) -> dict[str, int]:
    """Topics with an open transaction, and when its last record was written."""
    with Node(broker.bootstrap) as node:
        return {each.topic: each.last_at_ms for each in node.open_transactions(node.partitions())}


def committed_records(broker: OwnBroker, topic: str) -> list[bytes | None]:
    """All of a topic, as a reader of committed records sees it; it must get past the end."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "r", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes | None] = []
    while (message := until(lambda: consumer.poll(0.1))).error() is None:
        found.append(message.value())
    _, high = consumer.get_watermark_offsets(TopicPartition(topic, 0))
    assert message.offset() == high
    consumer.close()
    return found


def position(broker: OwnBroker) -> int | None:
    """Where the group stands; None while that can not be asked for because a transaction of it is open."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP, "log_level": 2})
    place = TopicPartition("kept", 0)

    def ask() -> int | KafkaError | None:
        try:
            return int(consumer.committed([place], timeout=2)[0].offset)
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            # the group's coordinator takes a moment to begin
            return cause if cause.code() == KafkaError._TIMED_OUT else None

    answer = until(ask)
    consumer.close()
    return answer if isinstance(answer, int) else None


def test_hanging_transactions_get_the_end_that_their_coordinator_decided(
    broker: OwnBroker, producers: dict[str, Producer]
) -> None:
    """E1: after a start nobody waits for ever; what was committed shows, what was not does not; once."""
    everything = {*TOPICS, "__consumer_offsets"}
    until(lambda: open_in(broker).keys() == everything or None)
    assert position(broker) is None
    written_ms = open_in(broker).values()
    assert end_hanging(broker.bootstrap, min(written_ms) + OLD_MS - 1) == [], "none of them is old"
    now_ms = max(written_ms) + OLD_MS
    assert {each.topic: each.commit for each in lasting(broker.bootstrap, now_ms) if each.hangs} == {
        "kept": True,
        "__consumer_offsets": True,
        "dropped": False,
        "orphaned": False,
    }
    checks = check_transactions(broker.bootstrap, is_mended=False, now_ms=now_ms)
    words = {topic: next(each.line() for each in checks if f" {topic}[0]" in each.line()) for topic in TOPICS}
    assert "hangs for 15 s" in words["dropped"]
    assert words["dropped"].endswith("abort --topic dropped --partition 0 --start-offset 2")
    assert "do not abort it" in words["kept"]
    assert open_in(broker).keys() == everything, "the doctor changes nothing"
    ended = end_hanging(broker.bootstrap, now_ms)
    assert {each.topic for each in ended} == everything
    assert len(ended) == len(everything)
    assert {topic: committed_records(broker, topic) for topic in TOPICS} == {
        "kept": [b"kept"],
        "dropped": [b"dropped"],
        "orphaned": [],
    }
    until(lambda: position(broker) == 1 or None)
    assert end_hanging(broker.bootstrap, now_ms) == []
    assert open_in(broker) == {}
    (check,) = check_transactions(broker.bootstrap, is_mended=False, now_ms=now_ms)
    assert check.ok, check.line()
    # it could have begun its next transaction where its last one was ended
    producers["kept"].begin_transaction()
    producers["kept"].produce("kept", b"late", partition=0)
    with pytest.raises(KafkaException, match="fenced"):
        producers["kept"].commit_transaction(_PATIENCE_S)


def test_what_is_still_to_be_ended_by_its_coordinator_is_left_alone(broker: OwnBroker) -> None:
    """However old its records are: it was open while the broker was away, or its producer is slow."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("kept", 1)])["kept"].result()
    producer = begun(broker.bootstrap, "kept")
    (slow,) = lasting(broker.bootstrap, time.time_ns() // 1_000_000 + 60_000)
    assert (slow.topic, slow.hangs, slow.commit) == ("kept", False, None)
    assert slow.age_ms >= 60_000
    assert lasting(broker.bootstrap, time.time_ns() // 1_000_000, older_ms=600_000) == []
    assert end_hanging(broker.bootstrap, time.time_ns() // 1_000_000 + OLD_MS) == []
    producer.commit_transaction(_PATIENCE_S)
    # its end is in the log some time after the client knows of it
    until(lambda: open_in(broker) == {} or None)
    assert committed_records(broker, "kept") == [b"kept"]
