"""A service that does what its input says, and a stage of a log and loops to run it on."""

import itertools
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kit.messages import item_planned, item_state_row
from kit.patience import PATIENCE_S
from nightmill.kernel.domain.lifecycle import Lane
from nightmill.kernel.runtime.log import Log, Outgoing, Place, Record
from nightmill.kernel.runtime.loop import Loop
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
from nightmill.kernel.wire.values import replace

NOW = itertools.count(1_796_000_000_000, 1_000)
HUGE = "x" * (5 << 20)  #: more than any topic takes


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
    crashes: str = ""  #: the source id at which this life ends

    def on_item_planned(self, message: ItemPlanned, part: Partition) -> Decision | Wait:
        if message.source_id == self.crashes:
            raise RuntimeError("told to crash")
        match message.source_id:
            case "wait" if self.waiting:
                return Wait("told to wait")
            case "refuse":
                raise ContractViolation("told to refuse")
            case "away" if self.waiting:
                raise Unavailable("told to be away")
            case "crash":
                raise RuntimeError("told to crash")
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
        self.seen.append(message.source_id)
        return self._decide(message, shard_of(message, part.now_ms))

    def _decide(self, message: ItemPlanned, shard: ShardDispatched) -> Decision:
        match message.source_id:
            case "huge message":
                return Decision(send=[replace(shard, pool=HUGE)])
            case "huge row":
                return Decision(put=[item_state_row(message, prefix=HUGE)])
            case "unfit row":
                return Decision(put=[replace(item_state_row(message), tries="never")])  # type: ignore[arg-type]
            case "unfit":
                return Decision(send=[replace(shard, dispatched_at_ms="never")])  # type: ignore[arg-type]
            case "delete":
                return Decision(delete=[Delete(row=ItemStateRow, key=message.item_key)])
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


def shard_of(planned: ItemPlanned, now_ms: int) -> ShardDispatched:
    """What a `Recorder` sends for an item."""
    return ShardDispatched(
        shard_id=planned.item_key,
        pool="p",
        lane=Lane.REALTIME,
        job_id=planned.job_id,
        pipeline_digest=planned.pipeline_digest,
        attempts=(),
        dispatched_at_ms=now_ms,
    )


@dataclass
class Stage:
    """A log, a folder for state, and loops on them."""

    log: Log
    folder: Path
    namespace: str = ""
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


def run_until(loop: Loop, done: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while not done():
        loop.step(next(NOW), 0.05)
        assert time.monotonic() < deadline, "waited in vain"


def rows(loop: Loop) -> dict[str, ItemStateRow]:
    found = [row for part in loop.owned() for row in part.table(ItemStateRow).prefix("")]
    return {row.source_id: row for row in found}
