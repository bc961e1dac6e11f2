"""The publisher under the real loop, on the memory log: what processes that are killed between two commits leave."""

import itertools
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nightmill.kernel.domain.lifecycle import BatchState
from nightmill.kernel.runtime.log import Log, Place
from nightmill.kernel.runtime.loop import Loop
from nightmill.kernel.runtime.memory import MemoryBroker
from nightmill.kernel.runtime.outbound import Outbound
from nightmill.kernel.runtime.transaction import Pace
from nightmill.kernel.wire.codec import codecs
from nightmill.kernel.wire.messages import BatchPublished, JobCompleted
from nightmill.publisher.results import current, read_rows
from nightmill.publisher.service import Publisher
from nightmill.publisher.targets import Targets
from unit.publisher.world import Immediately, World

PARTITIONS = 2


def write(log: Log, service: str, messages: Iterable[Any]) -> None:
    writer = log.writer()
    writer.write(Outbound(service, PARTITIONS).records(messages))
    writer.close()


def read(log: Log, kind: type[Any]) -> list[Any]:
    """Everything committed of a topic."""
    codec, reader = codecs()[kind], log.reader()
    for number in range(PARTITIONS):
        reader.start(Place(codec.channel.name, number), 0)
    found = [codec.decode(r.value) for r in reader.poll(0, 1_000) if r.value is not None]
    reader.close()
    return found


def run(world: World, log: Log, state: Path, steps: int, now_ms: "itertools.count[int]") -> None:
    """A process with an empty state folder that is killed after so many steps; every step commits."""
    service = Publisher(world.blobs, Targets(world.home / "results", world.blobs), Immediately())
    loop = Loop(service, log, instance="0", state_dir=state, clock_s=time.monotonic, pace=Pace(commit_every_ms=0))
    for _ in range(steps):
        loop.step(next(now_ms))
    loop.abandon()


def test_killed_after_few_steps_again_and_again_it_publishes_once(tmp_path: Path) -> None:
    """E1, Q5: each process lives so few steps that intent, pointer and commit fall into different ones."""
    for steps in (2, 3, 4):
        world = World(tmp_path / str(steps))
        log = MemoryBroker(PARTITIONS).log()
        now_ms = itertools.count(1_796_000_000_000, 1_000)
        write(log, "planner", [world.sealed(3)])
        write(log, "dispatcher", [world.settled(n) for n in (0, 1, 2, 1)])
        for process in range(12):
            run(world, log, tmp_path / f"{steps}-state-{process}", steps, now_ms)
        run(world, log, tmp_path / f"{steps}-last", 6, now_ms)
        assert [p.version for p in read(log, BatchPublished)] == [1]
        assert [n.state for n in read(log, JobCompleted)] == [BatchState.PUBLISHED]
        assert [row["label"] for row in read_rows(world.results)] == ["l0", "l1", "l2"]
        manifest = current(world.results)
        assert manifest is not None
        assert manifest["counts"]["accepted"] == 3
