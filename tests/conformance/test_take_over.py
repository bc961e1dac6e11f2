"""An instance dies in the middle of its work: another takes over, nothing is lost and nothing is there twice."""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from conformance.children import Children
from conformance.recorder import Recorder, Stage, rows, run_until
from kit.broker import bootstrap
from kit.messages import item_planned, item_state_row, key_of
from nightmill.kernel.runtime.log import Outgoing, partition_of
from nightmill.kernel.runtime.memory import CommitPoint, MemoryBroker, MemoryLog, MemorySession
from nightmill.kernel.wire.codec import codecs
from nightmill.kernel.wire.messages import ItemStateRow

TABLE = "dispatcher-item-state"
START_MS = 1_796_000_000_000


class Died(BaseException):
    """The process is gone."""


def die_when_written(session: MemorySession, point: CommitPoint) -> None:
    if session.instance == "1" and point is CommitPoint.WRITTEN:
        raise Died


def test_take_over_after_a_kill_in_a_commit(
    children: Children, record_property: Callable[[str, object], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """E1, M4: `kill -9` when the broker has all of a transaction but its end; another process finishes the work once.

    The dead one's session (6 s) and its transaction (10 s) must time out first; the time it took is told, not judged.
    """
    children.start("0")
    children.start("1", "die-in-commit")
    children.await_line("0", "owns [0]")
    children.await_line("1", "owns [1]")
    stage = children.stage
    sources = [f"s{i}" for i in range(20)]
    numbers = {s: partition_of(key_of(s).encode(), 2) for s in sources}
    assert set(numbers.values()) == {0, 1}
    stage.plan(*sources)
    assert children.await_end("1") == -9
    died = time.monotonic()
    assert children.lines("1")[-1] == "in commit"
    dead = [s for s in sources if numbers[s] == 1]
    for source in dead:
        children.await_line("0", f"committed {source}")
    took_s = time.monotonic() - died
    record_property("take_over_s", round(took_s, 1))
    with capsys.disabled():
        print(f"\ntake-over after kill -9 in a commit: {took_s:.1f} s")
    lines = children.lines("0")
    assert lines.index("owns [0, 1]") < lines.index(f"handling {dead[0]}")
    assert Counter(record.key for record in stage.records("shard-dispatched")) == {
        key_of(source).encode(): 1 for source in sources
    }
    assert len(stage.records(TABLE)) == len(sources)


def test_take_over_by_the_clock_of_the_memory_broker(tmp_path: Path) -> None:
    """E1: the model of the above, to the second: 10 s for the transaction, since its positions are pending so long."""
    broker = MemoryBroker(partitions=2, now_ms=START_MS)
    stage = Stage(broker.log("test"), tmp_path)
    survivor, dying = stage.loop(Recorder(), instance="0"), stage.loop(Recorder(), instance="1", state="dying")
    run_until(survivor, lambda: survivor.partitions == [0])
    run_until(dying, lambda: dying.partitions == [1])
    broker.at_commit = die_when_written
    sources = [f"s{i}" for i in range(20)]
    stage.plan(*sources)
    with pytest.raises(Died):
        run_until(dying, lambda: False)
    dying.abandon()
    broker.at_commit = None
    while survivor.partitions != [0, 1]:
        broker.now_ms += 1_000
        survivor.step(broker.now_ms)
        assert broker.now_ms < START_MS + 60_000
    assert broker.now_ms == START_MS + 10_000
    run_until(survivor, lambda: set(rows(survivor)) == set(sources))
    assert Counter(record.key for record in stage.records("shard-dispatched")) == {
        key_of(source).encode(): 1 for source in sources
    }
    survivor.close()


def test_restore_goes_to_the_high_watermark_past_a_dead_owners_transaction(stage: Stage) -> None:
    """M4: rows behind a transaction that nobody will end belong to the table; its own rows do not."""
    hanging, behind = item_planned("hanging"), item_planned("behind")
    codec = codecs()[ItemStateRow]
    left_open = Outgoing(TABLE, hanging.item_key.encode(), codec.encode(item_state_row(hanging)), 0)
    owner = leave_open(stage, left_open)
    writer = stage.log.writer()
    writer.write([Outgoing(TABLE, behind.item_key.encode(), codec.encode(item_state_row(behind)), 0)])
    writer.close()
    loop = stage.loop(Recorder())
    run_until(loop, lambda: loop.partitions == [0, 1])
    assert set(rows(loop)) == {"behind"}
    loop.close()
    del owner


def test_a_commit_of_a_dead_owner_that_was_decided_is_restored(stage: Stage) -> None:
    """M4: what a dead owner committed is in its successor's tables and is not handled again."""
    service = Recorder()
    first = stage.loop(service)
    stage.plan("a", "b")
    run_until(first, lambda: len(service.started) == 2)
    first.abandon()
    second_service = Recorder()
    second = stage.loop(second_service, state="another machine")
    stage.plan("c")
    run_until(second, lambda: second_service.seen == ["c"])
    assert set(rows(second)) == {"a", "b", "c"}
    second.close()


def leave_open(stage: Stage, record: Outgoing) -> object:
    """Write a record in a transaction and never end it, as a dead process does. Keep what is returned."""
    if isinstance(stage.log, MemoryLog):
        broker = stage.log.broker
        session = stage.log.session("dead", "0", [])
        session.write_open([record])

        def pass_time(seconds: float) -> None:
            broker.now_ms += int(seconds * 1000)

        broker.on_wait = pass_time
        return session
    producer = Producer(
        {
            "bootstrap.servers": bootstrap(),
            "transactional.id": f"{stage.namespace}.dead-0",
            "transaction.timeout.ms": 10_000,
            "delivery.timeout.ms": 9_000,
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(f"{stage.namespace}.{record.topic}", key=record.key, value=record.value, partition=0)
    assert producer.flush(30) == 0
    return producer
