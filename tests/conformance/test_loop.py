"""The loop on both logs: atomic commits, restore, waiting, quarantine, staging that has to wait, killing records."""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kit.broker import bootstrap, namespace
from kit.messages import item_planned, item_state_row, key_of
from nightmill.kernel.domain.lifecycle import Lane
from nightmill.kernel.runtime.kafka import KafkaLog
from nightmill.kernel.runtime.kafka.admin import create_topics, delete_topics
from nightmill.kernel.runtime.log import Log, Outgoing, Place, Record, partition_of
from nightmill.kernel.runtime.loop import Loop
from nightmill.kernel.runtime.memory import MemoryBroker
from nightmill.kernel.runtime.service import (
    NOTHING,
    ContractViolation,
    Decision,
    Delete,
    Index,
    Partition,
    Service,
    Unavailable,
    Wait,
)
from nightmill.kernel.runtime.transaction import Pace
from nightmill.kernel.wire.codec import codecs
from nightmill.kernel.wire.messages import AttemptJudged, ItemPlanned, ItemStateRow, ShardDispatched

NOW = itertools.count(1_796_000_000_000, 1_000)


@dataclass
class Recorder(Service):
    """A service that keeps what it is asked for as rows, and does what a record's source id says."""

    name: str = "dispatcher"
    indexes: tuple[Index, ...] = (
        Index(name="ready", row=ItemStateRow, key=lambda row: row.source_id.encode()),
        Index(name="all", row=ItemStateRow, key=lambda row: row.source_id.encode(), in_memory=False),
    )
    waiting: bool = False
    staging_away: bool = False
    started: list[object] = field(default_factory=list)
    quarantined: list[Mapping[str, str]] = field(default_factory=list)
    ticks: list[Decision] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)

    def on_item_planned(self, message: ItemPlanned, part: Partition) -> Decision | Wait:
        match message.source_id:
            case "wait" if self.waiting:
                return Wait("told to wait")
            case "refuse":
                raise ContractViolation("told to refuse")
            case "away" if self.waiting:
                raise Unavailable("told to be away")
            case "crash":
                raise RuntimeError("told to crash")
            case "delete":
                return Decision(delete=[Delete(row=ItemStateRow, key=message.item_key)])
        self.seen.append(message.source_id)
        shard = ShardDispatched(
            shard_id=message.item_key,
            pool="p",
            lane=Lane.REALTIME,
            job_id=message.job_id,
            pipeline_digest=message.pipeline_digest,
            attempts=(),
            dispatched_at_ms=part.now_ms,
        )
        return Decision(send=[shard], put=[item_state_row(message)], effects=[message.source_id])

    def on_attempt_judged(self, message: AttemptJudged, part: Partition) -> Decision:
        return NOTHING

    def on_tick(self, part: Partition) -> Decision:
        return self.ticks.pop() if self.ticks else NOTHING

    def on_flush(self, part: Partition) -> Decision:
        if self.staging_away:
            raise Unavailable("told to be away")
        return NOTHING

    def on_quarantined(self, topic: str, headers: Mapping[str, str], reason: str, part: Partition) -> Decision:
        self.quarantined.append({**headers, "reason": reason})
        return NOTHING

    def start(self, effects: object) -> None:
        self.started.extend(effects)  # type: ignore[arg-type]


@dataclass
class Stage:
    """A log, a folder for state, and loops on them."""

    log: Log
    folder: Path
    loops: list[Loop] = field(default_factory=list)

    def loop(self, service: Service, *, instance: str = "0", state: str = "state") -> Loop:
        loop = Loop(
            service,
            self.log,
            instance=instance,
            state_dir=self.folder / state,
            clock_s=time.monotonic,
            pace=Pace(commit_every_ms=0),
        )
        self.loops.append(loop)
        return loop

    def plan(self, *sources: str) -> None:
        self.write(*(item_planned(source) for source in sources))

    def write(self, *messages: ItemPlanned) -> None:
        codec = codecs()[ItemPlanned]
        writer = self.log.writer()
        for m in messages:
            writer.write([Outgoing("item-planned", codec.key(m), codec.encode(m), headers=codec.headers(m))])
        writer.close()

    def records(self, topic: str) -> list[Record]:
        reader = self.log.reader()
        places = [Place(topic, number) for number in range(self.log.partitions)]
        ends = {place: reader.end(place) for place in places}
        for place in places:
            reader.start(place, 0)
        found: list[Record] = []
        while any(reader.position(place) < ends[place] for place in places):
            found.extend(reader.poll(0.2, 1000))
        reader.close()
        return found


def run_until(loop: Loop, done: Callable[[], bool], patience_s: float = 40.0) -> None:
    deadline = time.monotonic() + patience_s
    while not done():
        loop.step(next(NOW), 0.05)
        assert time.monotonic() < deadline, "waited in vain"


@pytest.fixture(params=["memory", "kafka"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    if request.param == "memory":
        yield Stage(MemoryBroker(partitions=2).log("test"), tmp_path)
        return
    name = namespace()
    create_topics(bootstrap(), name, partitions=2)
    yield Stage(KafkaLog(bootstrap(), name, 2), tmp_path)
    delete_topics(bootstrap(), name)


def rows(loop: Loop) -> dict[str, ItemStateRow]:
    found = [row for part in loop.owned() for row in part.table(ItemStateRow).prefix("")]
    return {row.source_id: row for row in found}


def test_messages_rows_positions_and_effects(stage: Stage) -> None:
    """E1: what a handler decides is visible together, its effects start after the commit, and nothing comes twice."""
    service = Recorder()
    loop = stage.loop(service)
    stage.plan("a", "b", "c")
    run_until(loop, lambda: len(service.started) == 3)
    assert set(rows(loop)) == {"a", "b", "c"}
    assert len(stage.records("shard-dispatched")) == 3
    assert len(stage.records("dispatcher-item-state")) == 3
    loop.close()
    successor = Recorder()
    again = stage.loop(successor)
    stage.plan("d")
    run_until(again, lambda: successor.seen == ["d"])
    assert set(rows(again)) == {"a", "b", "c", "d"}
    again.close()


def test_restore_after_the_local_state_is_gone(stage: Stage) -> None:
    """M4: rows and both kinds of index come back from the changelog alone."""
    service = Recorder()
    loop = stage.loop(service)
    stage.plan("a", "b", "c", "c2")
    run_until(loop, lambda: len(service.seen) == 4)
    loop.close()
    fresh = stage.loop(Recorder(), state="elsewhere")
    run_until(fresh, lambda: fresh.partitions == [0, 1])
    assert set(rows(fresh)) == {"a", "b", "c", "c2"}
    for name in ("ready", "all"):
        found = [row.source_id for part in fresh.owned() for row in part.table(ItemStateRow).index(name, start=b"b")]
        assert sorted(found) == ["b", "c", "c2"]
    fresh.close()


def test_a_tombstone_removes_the_row_everywhere(stage: Stage) -> None:
    loop = stage.loop(Recorder())
    stage.plan("a")
    run_until(loop, lambda: set(rows(loop)) == {"a"})
    part = next(p for p in loop.owned() if list(p.table(ItemStateRow).prefix("")))
    key = next(iter(part.table(ItemStateRow).prefix(""))).item_key
    stage.write(item_planned("delete", key=key))
    run_until(loop, lambda: rows(loop) == {})
    loop.close()
    fresh = stage.loop(Recorder(), state="elsewhere")
    run_until(fresh, lambda: fresh.partitions == [0, 1])
    assert rows(fresh) == {}
    fresh.close()


@pytest.mark.parametrize("source", ["wait", "away"])
def test_wait_holds_one_place_and_lets_the_others_flow(stage: Stage, source: str) -> None:
    """A record that must wait comes again; records behind it keep their order, other partitions go on."""
    service = Recorder(waiting=True)
    loop = stage.loop(service)
    number = partition_of(key_of(source).encode(), stage.log.partitions)
    same: list[str] = []
    others: list[str] = []
    for name in (f"s{i}" for i in range(40)):
        (same if partition_of(key_of(name).encode(), stage.log.partitions) == number else others).append(name)
    stage.plan(source, same[0], others[0])
    run_until(loop, lambda: others[0] in service.seen)
    stage.plan(same[1], others[1])
    run_until(loop, lambda: others[1] in service.seen)
    assert not {source, same[0], same[1]} & set(service.seen)
    service.waiting = False
    run_until(loop, lambda: same[1] in service.seen)
    assert [s for s in service.seen if s in (source, same[0], same[1])] == [source, same[0], same[1]]
    loop.close()


def test_quarantine_keeps_the_original_bytes_and_tells_the_service(stage: Stage) -> None:
    """A poisoned record goes to the dead-letter topic with its bytes, headers and the reason; the rest flows."""
    service = Recorder()
    loop = stage.loop(service)
    writer = stage.log.writer()
    writer.write([Outgoing("item-planned", b"poison", b"\x00\x00\x00\x00\x63junk", headers=[("item", b"poison")])])
    writer.close()
    stage.plan("refuse", "good")
    run_until(loop, lambda: service.seen == ["good"] and len(service.quarantined) == 2)
    run_until(loop, lambda: len(stage.records("item-planned-dlq")) == 2)
    letters = {r.key: r for r in stage.records("item-planned-dlq")}
    poison = letters[b"poison"]
    assert poison.value == b"\x00\x00\x00\x00\x63junk"
    headers = dict(poison.headers)
    assert headers["item"] == b"poison"
    assert headers["dlq-topic"] == b"item-planned"
    assert b"schema number 99" in headers["dlq-reason"]
    assert {q["reason"] for q in service.quarantined} >= {"told to refuse"}
    loop.close()


def test_a_crash_in_a_handler_loses_nothing(stage: Stage) -> None:
    """E1: the process ends, nothing of the open transaction shows, and at the second kill the record is quarantined."""
    stage.plan("good", "crash")
    for _ in range(2):
        loop = stage.loop(Recorder())
        with pytest.raises(RuntimeError, match="told to crash"):
            run_until(loop, lambda: False)
        loop.abandon()
    service = Recorder()
    loop = stage.loop(service)
    run_until(loop, lambda: len(service.quarantined) == 1 and "good" in rows(loop))
    assert "twice" in service.quarantined[0]["reason"]
    assert set(rows(loop)) == {"good"}
    assert len(stage.records("shard-dispatched")) == 1
    loop.close()


def test_staging_that_is_away_holds_the_commit_and_loses_nothing(stage: Stage) -> None:
    """The ledger with its database down: positions stay, input stops, and all goes on when it is back."""
    service = Recorder(staging_away=True)
    loop = stage.loop(service)
    stage.plan("a")
    run_until(loop, lambda: service.seen == ["a"])
    stage.plan("b")
    for _ in range(10):
        loop.step(next(NOW), 0.05)
    assert service.started == []
    assert stage.records("shard-dispatched") == []
    service.staging_away = False
    run_until(loop, lambda: service.started == ["a", "b"])
    loop.close()


def test_a_zombie_is_fenced_ticks_included(stage: Stage) -> None:
    """E1: an instance that was replaced can commit nothing that its ticks decide."""
    zombie_service = Recorder()
    zombie = stage.loop(zombie_service, state="zombie")
    run_until(zombie, lambda: zombie.partitions == [0, 1])
    successor = stage.loop(Recorder(), state="successor")
    run_until(successor, lambda: successor.partitions == [0, 1])
    zombie_service.ticks = [Decision(put=[item_state_row(item_planned("zombie"))])]
    with pytest.raises(Exception, match="joined|fenced|Fenced|epoch"):
        run_until(zombie, lambda: False)
    assert stage.records("dispatcher-item-state") == []
    successor.close()
    zombie.abandon()
