"""One suite over both logs: what the runtime relies on holds on a real broker and on the memory model alike."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from kit.broker import bootstrap, namespace
from kit.patience import PATIENCE_S
from nightmill.kernel.runtime.kafka import KafkaLog
from nightmill.kernel.runtime.kafka.admin import create_topics, delete_topics
from nightmill.kernel.runtime.log import Aborted, Fenced, Log, Outgoing, Place, Reader, Record, Session, partition_of
from nightmill.kernel.runtime.memory import MemoryBroker

INPUTS = ["item-planned", "attempt-judged"]
OUTPUT = "shard-dispatched"
TABLE = "dispatcher-item-state"


@dataclass
class Bench:
    """A log, another installation's log on the same broker, and what a test needs around them."""

    log: Log
    stranger: Log

    def session(self, instance: str) -> Session:
        return self.log.session("dispatcher", instance, INPUTS)

    def fill(self, topic: str, *keys: str) -> None:
        writer = self.log.writer()
        writer.write([Outgoing(topic, key.encode(), b"v-" + key.encode()) for key in keys])
        writer.close()

    def read_all(self, topic: str) -> list[Record]:
        """Every committed record of a topic, up to its high watermark."""
        reader = self.log.reader()
        try:
            return drain(reader, [Place(topic, number) for number in range(self.log.partitions)])
        finally:
            reader.close()


def drain(reader: Reader, places: list[Place]) -> list[Record]:
    ends = {place: reader.end(place) for place in places}
    for place in places:
        reader.start(place, 0)
    records: list[Record] = []
    deadline = time.monotonic() + PATIENCE_S
    while any(reader.position(place) < ends[place] for place in places):
        records.extend(reader.poll(0.2, 1000))
        assert time.monotonic() < deadline, "the reader did not reach the high watermark"
    return records


def poll_until(session: Session, done: Callable[[list[Record], set[int]], bool]) -> tuple[list[Record], set[int]]:
    """Poll until `done(records, owned)`; partition numbers are followed through assignments."""
    records: list[Record] = []
    owned: set[int] = set()
    deadline = time.monotonic() + PATIENCE_S
    while not done(records, owned):
        polled = session.poll(0.2, 500)
        owned = (owned - set(polled.assignment.lost)) | set(polled.assignment.gained)
        records.extend(polled.records)
        assert time.monotonic() < deadline, f"waited in vain; owned {owned}, {len(records)} records"
    return records, owned


def shared(sessions: dict[str, Session]) -> dict[str, set[int]]:
    """Poll two members in turn until each owns one partition number; who owns which."""
    seen: dict[str, set[int]] = {name: set() for name in sessions}
    deadline = time.monotonic() + PATIENCE_S
    while any(len(numbers) != 1 for numbers in seen.values()):
        for name, session in sessions.items():
            change = session.poll(0.2, 500).assignment
            seen[name] = (seen[name] - set(change.lost)) | set(change.gained)
        assert time.monotonic() < deadline, seen
    return seen


@pytest.fixture(params=["memory", "kafka"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    if request.param == "memory":
        broker = MemoryBroker(partitions=2)
        yield Bench(broker.log("test"), broker.log("other"))
        return
    names = (namespace(), namespace())
    for name in names:
        create_topics(bootstrap(), name, partitions=2)
    yield Bench(*(KafkaLog(bootstrap(), name, 2) for name in names))
    for name in names:
        delete_topics(bootstrap(), name)


def test_messages_rows_and_positions_commit_together(bench: Bench) -> None:
    """E1, M4: after a commit, a successor reads the outputs, the rows and starts behind the inputs."""
    bench.fill("item-planned", *(f"k{i}" for i in range(20)))
    session = bench.session("0")
    records, _ = poll_until(session, lambda found, _: len(found) >= 20)
    positions = {record.place: record.offset + 1 for record in records}
    session.commit([Outgoing(OUTPUT, b"s", b"shard"), Outgoing(TABLE, b"k", b"row", 1)], positions)
    session.close()
    assert [r.value for r in bench.read_all(OUTPUT)] == [b"shard"]
    assert [(r.place.partition, r.value) for r in bench.read_all(TABLE)] == [(1, b"row")]
    successor = bench.session("0")
    bench.fill("item-planned", "late")
    again: list[Record] = []
    starts: dict[Place, int] = {}
    deadline = time.monotonic() + PATIENCE_S
    while not again:
        polled = successor.poll(0.2, 500)
        starts.update(polled.assignment.starts)
        again.extend(polled.records)
        assert time.monotonic() < deadline
    assert [r.key for r in again] == [b"late"]
    assert {place: starts[place] for place in positions} == positions
    successor.close()


def test_uncommitted_work_is_done_again(bench: Bench) -> None:
    """E1: what was read but not committed comes again."""
    bench.fill("item-planned", "a", "b", "c")
    session = bench.session("0")
    poll_until(session, lambda found, _: len(found) >= 3)
    session.close()
    successor = bench.session("0")
    records, _ = poll_until(successor, lambda found, _: len(found) >= 3)
    assert sorted(r.key or b"" for r in records) == [b"a", b"b", b"c"]
    successor.close()


def test_a_zombie_is_fenced_and_its_work_invisible(bench: Bench) -> None:
    """E1: an instance that was replaced can commit nothing, not even a tick without input."""
    zombie = bench.session("0")
    poll_until(zombie, lambda _, owned: owned == {0, 1})
    successor = bench.session("0")
    poll_until(successor, lambda _, owned: owned == {0, 1})
    with pytest.raises((Fenced, Aborted)):
        zombie.commit([Outgoing(OUTPUT, b"z", b"zombie")], {Place("item-planned", 0): 0})
    successor.commit([Outgoing(OUTPUT, b"s", b"successor")], {Place("item-planned", 0): 0})
    assert [r.value for r in bench.read_all(OUTPUT)] == [b"successor"]
    successor.close()


def test_two_instances_own_the_same_numbers_of_every_topic(bench: Bench) -> None:
    """Tables need it: partition p of all topics is on one member."""
    first, second = bench.session("0"), bench.session("1")
    seen = shared({"0": first, "1": second})
    deadline = time.monotonic() + PATIENCE_S
    for topic in INPUTS:
        bench.fill(topic, *(f"{topic}-{i}" for i in range(20)))
    got: dict[str, list[Record]] = {"0": [], "1": []}
    while sum(len(found) for found in got.values()) < 40:
        for name, session in (("0", first), ("1", second)):
            got[name].extend(session.poll(0.2, 500).records)
        assert time.monotonic() < deadline
    for name in ("0", "1"):
        assert {r.place.partition for r in got[name]} == seen[name]
        assert {r.place.topic for r in got[name]} == set(INPUTS)
    first.close()
    second.close()


def test_keys_go_where_murmur2_says(bench: Bench) -> None:
    """Co-partitioning with every other client: murmur2 of the key, as Java and Faust compute it."""
    keys = [f"key-{i}" for i in range(50)]
    bench.fill("item-planned", *keys)
    for record in bench.read_all("item-planned"):
        assert record.key is not None
        assert record.place.partition == partition_of(record.key, bench.log.partitions)


def test_headers_keys_and_tombstones_survive(bench: Bench) -> None:
    session = bench.session("0")
    poll_until(session, lambda _, owned: owned == {0, 1})
    row = Outgoing(TABLE, b"k", b"row", 0, [("item", b"k")])
    session.commit([row, Outgoing(TABLE, b"k", None, 0)], {Place("item-planned", 0): 0})
    first, second = bench.read_all(TABLE)
    assert list(first.headers) == [("item", b"k")]
    assert (second.key, second.value) == (b"k", None)
    session.close()


def test_a_paused_place_brings_nothing_and_goes_on_where_it_was(bench: Bench) -> None:
    """Wait: one topic's partition is held, the others flow."""
    session = bench.session("0")
    poll_until(session, lambda _, owned: owned == {0, 1})
    for number in (0, 1):
        session.pause(Place("item-planned", number))
    bench.fill("item-planned", "held-1", "held-2")
    bench.fill("attempt-judged", "flows")
    records, _ = poll_until(session, lambda found, _: len(found) >= 1)
    for _ in range(5):
        records.extend(session.poll(0.1, 500).records)
    assert [r.key for r in records] == [b"flows"]
    for number in (0, 1):
        session.resume(Place("item-planned", number))
    records, _ = poll_until(session, lambda found, _: len(found) >= 2)
    assert sorted(r.key or b"" for r in records) == [b"held-1", b"held-2"]
    session.close()


def test_a_pause_ends_with_the_assignment(bench: Bench) -> None:
    """E1: who was waiting when its group changed hands starts anew, and does not stand still for ever."""
    first = bench.session("0")
    poll_until(first, lambda _, owned: owned == {0, 1})
    for topic in INPUTS:
        for number in (0, 1):
            first.pause(Place(topic, number))
    second = bench.session("1")
    (kept,) = shared({"0": first, "1": second})["0"]
    keys = [f"k{i}" for i in range(20)]
    ours = {key.encode() for key in keys if partition_of(key.encode(), bench.log.partitions) == kept}
    bench.fill("item-planned", *keys)
    records, _ = poll_until(first, lambda found, _: len(found) >= len(ours))
    assert {record.key for record in records} == ours
    first.close()
    second.close()


def test_seek_brings_records_again(bench: Bench) -> None:
    """After an aborted transaction the inputs since the last commit come once more."""
    bench.fill("item-planned", *(f"k{i}" for i in range(6)))
    session = bench.session("0")
    records, _ = poll_until(session, lambda found, _: len(found) >= 6)
    for place in {record.place for record in records}:
        session.seek(place, 0)
    again, _ = poll_until(session, lambda found, _: len(found) >= 6)
    assert sorted(r.key or b"" for r in again) == sorted(r.key or b"" for r in records)
    session.close()


def test_lag_counts_what_is_not_committed(bench: Bench) -> None:
    """E4: the planner's release looks at it."""
    assert bench.log.lag("dispatcher", "item-planned") == 0
    bench.fill("item-planned", *(f"k{i}" for i in range(10)))
    assert bench.log.lag("dispatcher", "item-planned") == 10
    session = bench.session("0")
    records, _ = poll_until(session, lambda found, _: len(found) >= 10)
    session.commit([], {record.place: record.offset + 1 for record in records})
    assert bench.log.lag("dispatcher", "item-planned") == 0
    session.close()


def test_installations_on_one_broker_never_meet(bench: Bench) -> None:
    """Everything of an installation carries its namespace."""
    bench.fill("item-planned", "mine")
    assert bench.stranger.lag("dispatcher", "item-planned") == 0
    session = bench.stranger.session("dispatcher", "0", INPUTS)
    polled = [record for _ in range(5) for record in session.poll(0.2, 10).records]
    assert polled == []
    session.close()


def test_a_member_that_comes_back_in_time_disturbs_nobody(bench: Bench) -> None:
    """Static membership: a restarted instance gets what it had, and the others keep theirs without a pause."""
    first, second = bench.session("0"), bench.session("1")
    seen = shared({"0": first, "1": second})
    deadline = time.monotonic() + PATIENCE_S
    second.close()
    again = bench.session("1")
    changes = []
    owned: set[int] = set()
    while not owned:
        changes.append(first.poll(0.1, 500).assignment)
        owned |= set(again.poll(0.1, 500).assignment.gained)
        assert time.monotonic() < deadline
    for _ in range(10):
        changes.append(first.poll(0.1, 500).assignment)
    assert owned == seen["1"]
    assert not any(change.gained or change.lost for change in changes)
    first.close()
    again.close()


def test_a_session_can_be_closed_while_its_assignment_is_under_way(bench: Bench) -> None:
    """An orderly stop right after a start ends, and what is assigned later goes to the successor."""
    for instance in ("0", "1"):
        session = bench.session(instance)
        time.sleep(1.5)  # the assignment comes and nobody polls for it
        session.close()
    successor, other = bench.session("0"), bench.session("1")
    seen = shared({"0": successor, "1": other})
    assert seen["0"] | seen["1"] == {0, 1}, "a member that has left still holds a number"
    successor.close()
    other.close()
