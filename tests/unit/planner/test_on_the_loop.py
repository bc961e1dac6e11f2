"""The planner on the real loop, over the memory log: two partitions, a process that ends in the middle, a lost disk."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nightmill.kernel.runtime.log import Log, Outgoing, Place
from nightmill.kernel.runtime.loop import Loop
from nightmill.kernel.runtime.memory import MemoryBroker
from nightmill.kernel.runtime.outbound import Outbound
from nightmill.kernel.runtime.transaction import Pace
from nightmill.kernel.wire.codec import codecs
from nightmill.kernel.wire.messages import BatchSealed, ItemPlanned
from unit.planner.makers import NOW_MS, Stage, jsonl, tickets

PARTITIONS = 2


def read_all(log: Log, message: type[Any]) -> list[Any]:
    """Every committed message of a topic."""
    codec = codecs()[message]
    found = []
    for number in range(PARTITIONS):
        reader = log.reader()
        reader.start(Place(codec.channel.name, number), 0)
        while records := reader.poll(0.0, 10_000):
            found += [codec.decode(record.value) for record in records if record.value is not None]
        reader.close()
    return found


class Member:
    """A planner process that can be ended without warning."""

    def __init__(self, log: Log, stage: Stage, state: Path) -> None:
        self._log, self._stage, self._state = log, stage, state
        self.now_ms = NOW_MS
        self._start()

    def step(self) -> None:
        self.now_ms += 5_000
        self._loop.step(self.now_ms)

    def kill(self, *, disk: bool) -> None:
        """Nothing is committed or closed in order; `disk` takes the local state as well."""
        self._loop.abandon()
        self._stage.restart()
        if disk:
            shutil.rmtree(self._state)
        self._start()

    def close(self) -> None:
        self._loop.close()

    def _start(self) -> None:
        pace = Pace(commit_every_ms=12_000)
        self._loop = Loop(
            self._stage.planner, self._log, instance="0", state_dir=self._state, clock_s=lambda: 0.0, pace=pace
        )


@pytest.mark.parametrize("kills", [(), (1,), (2, 3), (1, 4, 6, 9)])
def test_every_row_is_planned_once(tmp_path: Path, kills: Sequence[int]) -> None:
    """E1 M4: killed between commits, with and without its local copy."""
    log = MemoryBroker(PARTITIONS).log("test")
    stage = Stage(tmp_path / "blobs")
    job = stage.job(jsonl(tickets(6_500)))
    member = Member(log, stage, tmp_path / "state")
    write(log, "api", job)
    told = False
    for step in range(60):
        member.step()
        if step in kills:
            member.kill(disk=step % 2 == 0)
        sealed = read_all(log, BatchSealed)
        if sealed and not told:
            told = True
            write(log, "publisher", stage.control(sealed[0]))
    member.close()
    (message,) = read_all(log, BatchSealed)
    assert (message.refusal, message.planned, message.blocks) == (None, 6_500, 4)
    items = read_all(log, ItemPlanned)
    assert sorted(item.ordinal for item in items) == list(range(6_500))
    assert len({item.item_key for item in items}) == 6_500


def write(log: Log, service: str, message: Any) -> None:
    records: list[Outgoing] = Outbound(service, PARTITIONS).records([message])
    writer = log.writer()
    writer.write(records)
    writer.close()
