"""What the memory log alone can be told to do: visibility that comes late, timeouts, doubts, rewinds, a broker away."""

from collections.abc import Iterator
from random import Random

import pytest

from nightmill.kernel.runtime.log import (
    Aborted,
    Fenced,
    LogUnavailable,
    OutcomeUnknown,
    Outgoing,
    Place,
    Record,
    Session,
    Timing,
)
from nightmill.kernel.runtime.memory import CommitPoint, MemoryBroker, MemoryLog, MemorySession

INPUT, OUTPUT = Place("in", 0), Place("out", 0)
START = 1_000_000


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker(partitions=2, now_ms=START)


@pytest.fixture
def log(broker: MemoryBroker) -> MemoryLog:
    return broker.log("test", Timing(session_timeout_ms=6_000, transaction_timeout_ms=10_000))


def joined(log: MemoryLog, instance: str = "0") -> MemorySession:
    session = log.session("group", instance, ["in"])
    session.poll(0, 10)
    return session


def out(value: bytes, partition: int = 0) -> Outgoing:
    return Outgoing("out", b"k", value, partition)


def committed(log: MemoryLog, place: Place = OUTPUT) -> list[bytes | None]:
    reader = log.reader()
    reader.start(place, 0)
    return [record.value for record in reader.poll(0, 100)]


def polls(session: Session, times: int) -> Iterator[Record]:
    for _ in range(times):
        yield from session.poll(0, 100).records


def test_markers_come_partition_by_partition(broker: MemoryBroker, log: MemoryLog) -> None:
    """A committed transaction may show in one partition and not yet in another; who asks behind it must wait."""
    session = joined(log)
    broker.held = True
    session.commit([out(b"a"), out(b"b", 1)], {INPUT: 0})
    log.writer().write([out(b"behind")])
    assert broker.unmarked() == [Place("test.out", 0), Place("test.out", 1)]
    assert committed(log) == committed(log, Place("out", 1)) == []
    broker.mark(Place("test.out", 0))
    assert committed(log) == [b"a", b"behind"]
    assert committed(log, Place("out", 1)) == []
    broker.mark()
    assert committed(log, Place("out", 1)) == [b"b"]


def test_positions_wait_for_their_marker(broker: MemoryBroker, log: MemoryLog) -> None:
    """M4: a new owner gets nothing until the positions of its predecessor are stable."""
    log.writer().write([Outgoing("in", b"k", b"1", 0)])
    session = joined(log)
    broker.held = True
    session.commit([], {INPUT: 1})
    log.rebalance("group")
    assert session.poll(0, 10).assignment.gained == ()
    broker.mark()
    assignment = session.poll(0, 10).assignment
    assert assignment.gained == (0, 1)
    assert assignment.starts[INPUT] == 1


@pytest.mark.parametrize("seed", range(20))
def test_by_chance_each_reader_sees_all_in_order(seed: int) -> None:
    """Late, each at its own pace, but never out of order and never something twice."""
    broker = MemoryBroker(partitions=1, now_ms=START, stagger=Random(seed))
    log = broker.log("test")
    session, reader = joined(log), log.reader()
    while not session._owned:
        session.poll(0, 10)
    reader.start(OUTPUT, 0)
    seen: list[bytes | None] = []
    for number in range(30):
        session.commit([out(b"%d" % number)], {INPUT: 0})
        seen.extend(record.value for record in reader.poll(0, 100))
    for _ in range(200):
        seen.extend(record.value for record in reader.poll(0, 100))
    assert seen == [b"%d" % number for number in range(30)]
    assert reader.position(OUTPUT) == reader.end(OUTPUT)


def test_an_old_transaction_is_aborted_and_its_owner_fenced(broker: MemoryBroker, log: MemoryLog) -> None:
    session = joined(log)
    transaction = session.write_open([out(b"lost")], {INPUT: 5})
    log.writer().write([out(b"behind")])
    broker.now_ms += 9_999
    assert committed(log) == []
    broker.now_ms += 1
    assert committed(log) == [b"behind"]
    with pytest.raises(Fenced):
        session.settle(transaction)
    with pytest.raises(Fenced):
        session.poll(0, 10)
    assert joined(log)._positions[Place("test.in", 0)] == 0


def test_a_silent_member_leaves_after_its_session_timeout(broker: MemoryBroker, log: MemoryLog) -> None:
    """A static member is expected back: until then nobody else gets what it had."""
    first, second = joined(log, "0"), joined(log, "1")
    first.poll(0, 10)
    second.close()
    broker.now_ms += 4_000
    assert first.poll(0, 10).assignment.gained == ()
    broker.now_ms += 4_000
    assert first.poll(0, 10).assignment.gained == (0, 1)
    with pytest.raises(Aborted):
        second.commit([out(b"late")], {INPUT: 1})


def test_a_member_that_comes_back_in_time_disturbs_nobody(log: MemoryLog) -> None:
    first, second = joined(log, "0"), joined(log, "1")
    first.poll(0, 10)
    again = log.session("group", "1", ["in"])
    assert again.poll(0, 10).assignment.gained == (1,)
    assert first.poll(0, 10).assignment.gained == ()
    with pytest.raises(Fenced):
        second.poll(0, 10)


def test_an_expired_zombie_does_not_drive_its_successor_out(broker: MemoryBroker, log: MemoryLog) -> None:
    zombie = joined(log)
    broker.now_ms += 7_000
    successor = joined(log)
    with pytest.raises(Fenced):
        zombie.poll(0, 10)
    successor.commit([out(b"mine")], {INPUT: 0})
    assert committed(log) == [b"mine"]


@pytest.mark.parametrize(
    ("point", "visible"), [(CommitPoint.BEFORE, []), (CommitPoint.WRITTEN, []), (CommitPoint.DONE, [b"x"])]
)
def test_a_commit_can_be_stopped_anywhere(
    broker: MemoryBroker, log: MemoryLog, point: CommitPoint, visible: list[bytes]
) -> None:
    """A crash or a doubt at each point of a commit; the successor sees what really happened."""

    def stop(session: MemorySession, at: CommitPoint) -> None:
        if at is point:
            raise OutcomeUnknown(f"{session.group}-{session.instance}: told to doubt")

    session = joined(log)
    broker.at_commit = stop
    with pytest.raises(OutcomeUnknown, match="group-0"):
        session.commit([out(b"x")], {INPUT: 0})
    broker.at_commit = None
    joined(log)
    assert committed(log) == visible


def test_a_pause_in_a_commit_that_outlives_the_timeout(broker: MemoryBroker, log: MemoryLog) -> None:
    """E1: a process that slept in its commit finds it aborted."""

    def sleep(_session: MemorySession, at: CommitPoint) -> None:
        if at is CommitPoint.WRITTEN:
            broker.now_ms += 30_000

    session = joined(log)
    broker.at_commit = sleep
    with pytest.raises(Fenced):
        session.commit([out(b"x")], {INPUT: 0})
    assert committed(log) == []


def test_rewound_positions_and_repeated_records(log: MemoryLog) -> None:
    log.writer().write([Outgoing("in", b"k", b"%d" % number, 0) for number in range(3)])
    session = joined(log)
    session.commit([], {INPUT: 3})
    log.rewind("group", INPUT, 1)
    assert [record.value for record in polls(session, 2)] == [b"1", b"2"]
    log.repeat(INPUT, 0)
    assert [record.value for record in polls(session, 2)] == [b"0"]


def test_lag_counts_records_and_no_markers(log: MemoryLog) -> None:
    """Every queue can be seen to drain."""
    producer = log.session("other", "0", [])
    producer.commit([Outgoing("in", b"k", b"1", 0)], {})
    producer.write_open([Outgoing("in", b"k", b"aborted", 0)])
    log.session("other", "0", [])
    assert log.lag("group", "in") == 1
    session = joined(log)
    session.commit([], {INPUT: 1})
    assert log.lag("group", "in") == 0


def test_a_broker_that_is_away_answers_nobody(broker: MemoryBroker, log: MemoryLog) -> None:
    session, writer, reader = joined(log), log.writer(), log.reader()
    writer.write([Outgoing("in", b"k", b"1", 0)])
    broker.down = True
    assert list(polls(session, 2)) == []
    for call in (lambda: writer.write([out(b"x")]), lambda: reader.end(OUTPUT), lambda: log.lag("group", "in")):
        with pytest.raises(LogUnavailable):
            call()
    with pytest.raises(OutcomeUnknown):
        session.commit([out(b"x")], {INPUT: 1})
    broker.down = False
    assert [record.value for record in polls(session, 1)] == [b"1"]
    assert committed(log) == []


def test_compaction_keeps_what_is_not_decided(log: MemoryLog) -> None:
    session = joined(log)
    session.commit([out(b"old"), out(b"new")], {})
    open_one = session.write_open([out(b"open")])
    log.compact(OUTPUT)
    assert committed(log) == [b"new"]
    session.settle(open_one)
    log.compact(OUTPUT)
    assert committed(log) == [b"open"]
