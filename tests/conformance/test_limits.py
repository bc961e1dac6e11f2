"""What does not fit, what is gone, and what is not ours: on both logs."""

import base64
import time
from collections.abc import Iterator
from random import Random

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from conformance.recorder import HUGE, Recorder, Stage, rows, run_until
from kit.broker import bootstrap, namespace
from kit.messages import BATCH, JOB, item_planned, item_state_row, key_of
from nightmill.kernel.domain.lifecycle import ControlState, Reuse
from nightmill.kernel.runtime.kafka import KafkaLog
from nightmill.kernel.runtime.kafka.admin import create_topics, delete_topics
from nightmill.kernel.runtime.log import OffsetHole, Outgoing, Place, TooLarge, partition_of
from nightmill.kernel.runtime.memory import MemoryLog
from nightmill.kernel.runtime.service import Decision
from nightmill.kernel.runtime.table import Views
from nightmill.kernel.wire.codec import codecs
from nightmill.kernel.wire.messages import BatchControlled
from nightmill.kernel.wire.topics import BATCH_CONTROLLED, TABLES

CONTROL = BatchControlled(
    batch_id=BATCH,
    job_id=JOB,
    dataset_id="acme.tickets",
    generation=1,
    state=next(iter(ControlState)),
    pipeline_digest="p" * 64,
    manifest_digest="m" * 64,
    reuse=Reuse.ACCEPTED,
    priority=0,
    controlled_at_ms=1_796_000_000_000,
)


@pytest.mark.parametrize(
    ("source", "topic", "limit"),
    [("huge message", "shard-dispatched", 4194304), ("huge row", "dispatcher-item-state", 1048576)],
)
def test_a_record_whose_outcome_is_too_large_is_quarantined_alone(
    stage: Stage, source: str, topic: str, limit: int
) -> None:
    """E1: the one record goes to the dead letters with topic, size and limit named; its neighbours are done once."""
    service = Recorder()
    loop = stage.loop(service)
    stage.plan("before", source, "after", "later")
    run_until(loop, lambda: set(rows(loop)) == {"before", "after", "later"} and len(service.quarantined) == 1)
    run_until(loop, lambda: len(stage.records("item-planned-dlq")) == 1)
    stage.plan("last")
    run_until(loop, lambda: "last" in rows(loop))
    assert len(stage.records("shard-dispatched")) == 4
    (letter,) = stage.records("item-planned-dlq")
    reason = dict(letter.headers)["dlq-reason"].decode()
    assert f"a record for {topic} has 524" in reason
    assert f"its limit is {limit}" in reason
    loop.close()


def test_a_record_whose_row_can_not_be_encoded_is_quarantined_alone(stage: Stage) -> None:
    """E1: rows are encoded with the whole transaction; the one record is found, and its process lives on."""
    service = Recorder()
    loop = stage.loop(service)
    stage.plan("before", "unfit row", "after", "later")
    run_until(loop, lambda: set(rows(loop)) == {"before", "after", "later"} and len(service.quarantined) == 1)
    run_until(loop, lambda: len(stage.records("item-planned-dlq")) == 1)
    assert len(stage.records("shard-dispatched")) == 3
    assert "a row for dispatcher-item-state can not be encoded: TypeError" in service.quarantined[0]["reason"]
    loop.close()


def test_a_tick_that_is_too_large_ends_the_process_and_names_it(stage: Stage) -> None:
    """Nobody's record: a person is told, nothing is tried for ever and nothing of it shows."""
    service = Recorder()
    loop = stage.loop(service)
    run_until(loop, lambda: loop.partitions == [0, 1])
    service.ticks = [Decision(put=[item_state_row(item_planned("tick"), prefix=HUGE)])]
    with pytest.raises(TooLarge, match="dispatcher-item-state has 524"):
        run_until(loop, lambda: False)
    loop.abandon()
    assert stage.records("dispatcher-item-state") == []


def test_a_writer_stores_nothing_of_what_is_too_large(stage: Stage) -> None:
    writer = stage.log.writer()
    fits = Outgoing("item-planned", b"k", b"fits")
    with pytest.raises(TooLarge, match="item-planned has"):
        writer.write([fits, Outgoing("item-planned", b"k", HUGE.encode())])
    writer.close()
    assert stage.records("item-planned") == []


def test_many_small_records_fit_every_topic(stage: Stage) -> None:
    """The broker measures batches: a full one of small records must fit where a single large record does not."""
    topic = min(TABLES, key=lambda table: table.max_bytes).name
    chance = Random(7)
    session = stage.log.session("publisher", "0", ["item-settled"])
    records = [Outgoing(topic, b"%d" % i, base64.b64encode(chance.randbytes(600)), 0) for i in range(1_000)]
    session.commit(records, {})
    assert len(stage.records(topic)) == len(records)
    session.close()


def test_a_hole_in_the_input_is_an_alarm(stage: Stage) -> None:
    """E1: records that are gone before they were handled stop the service; it does not go on behind them."""
    first = Recorder()
    loop = stage.loop(first)
    same = [s for s in (f"s{i}" for i in range(40)) if partition_of(key_of(s).encode(), stage.log.partitions) == 0]
    stage.plan(*same[:2])
    run_until(loop, lambda: len(first.started) == 2)
    loop.close()
    stage.plan(*same[2:5])
    trim(stage, Place("item-planned", 0), before=4)
    second = Recorder()
    late = stage.loop(second)
    with pytest.raises(OffsetHole, match="item-planned"):
        run_until(late, lambda: False)
    late.abandon()
    assert second.seen == []


def test_two_installations_with_the_same_names_never_meet(stage: Stage, other: Stage) -> None:
    """E1: groups, transactional ids, positions, tables, views and dead letters carry the namespace."""
    services = (Recorder(), Recorder())
    loops = (stage.loop(services[0]), other.loop(services[1], state="other"))
    stage.plan("mine", "refuse")
    other.plan("theirs")
    writer = stage.log.writer()
    writer.write([Outgoing(BATCH_CONTROLLED.name, BATCH.encode(), codecs()[BatchControlled].encode(CONTROL))])
    writer.close()
    # taken in turn: had they one group or one transactional id, one of them would be fenced
    run_until(loops[0], lambda: "mine" in rows(loops[0]) and len(services[0].quarantined) == 1)
    run_until(loops[1], lambda: "theirs" in rows(loops[1]))
    stage.plan("mine too")
    run_until(loops[0], lambda: "mine too" in rows(loops[0]))
    assert set(rows(loops[0])) == {"mine", "mine too"}
    assert set(rows(loops[1])) == {"theirs"}
    assert len(other.records("shard-dispatched")) == 1
    assert other.records("item-planned-dlq") == []
    for place, known in ((stage, True), (other, False)):
        views = Views(place.log, [BATCH_CONTROLLED], time.monotonic)
        assert (views.by_message[BatchControlled].get(BATCH) is not None) is known
        views.close()
    for loop in loops:
        loop.close()


@pytest.fixture
def other(stage: Stage) -> Iterator[Stage]:
    """Another installation on the broker of `stage`."""
    if isinstance(stage.log, MemoryLog):
        yield Stage(stage.log.broker.log("other"), stage.folder)
        return
    name = namespace()
    create_topics(bootstrap(), name, partitions=2)
    yield Stage(KafkaLog(bootstrap(), name, 2), stage.folder)
    delete_topics(bootstrap(), name)


def trim(stage: Stage, place: Place, before: int) -> None:
    """Retention removes the records of a place before an offset."""
    if isinstance(stage.log, MemoryLog):
        stage.log.trim(place, before)
        return
    admin = AdminClient({"bootstrap.servers": bootstrap()})
    topic = f"{stage.namespace}.{place.topic}"
    for future in admin.delete_records([TopicPartition(topic, place.partition, before)]).values():
        future.result()
