"""What a service waits for is told, kept fresh and taken back; a tick that finds something away undoes nothing else."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from conformance.recorder import NOW, Recorder, Stage, rows, run_until
from kit.disk import FULL
from nightmill.api.waiting import waiting_for
from nightmill.kernel.runtime.disk import DiskRefused, refusal
from nightmill.kernel.runtime.memory import MemoryBroker
from nightmill.kernel.runtime.service import Decision, Partition, Stall, Unavailable
from nightmill.kernel.runtime.stalls import FRESH_MS, Stalls
from nightmill.kernel.runtime.store import StateStore
from nightmill.kernel.wire.messages import StallReported

DISK = Stall(subject="staging", reason="no space left")
POOL = Stall(subject="pool a", pool="a", reason="pool a is paused", until_ms=9_000)


def test_a_stall_is_told_when_it_lasts_again_while_it_lasts_and_once_when_it_is_over() -> None:
    stalls = Stalls("publisher", "0")
    told = [(at_ms, stalls.due([DISK] if at_ms < 15_000 else [], at_ms)) for at_ms in range(0, 20_000, 500)]
    found = [(at_ms, report.reason, report.since_ms) for at_ms, reports in told for report in reports]
    # after 1 s, 10 s later, and when it was not met for more than 2 s after 14.5 s
    assert found == [(1_000, DISK.reason, 0), (11_000, DISK.reason, 0), (17_000, None, 0)]


def test_a_short_wait_is_not_told() -> None:
    stalls = Stalls("publisher", "0")
    assert [stalls.due([DISK] if at_ms < 500 else [], at_ms) for at_ms in range(0, 6_000, 250)] == [[]] * 24


@pytest.mark.parametrize("step_ms", [30_000, -30_000])
def test_a_clock_that_is_set_does_not_silence_a_stall(step_ms: int) -> None:
    stalls = Stalls("publisher", "0")
    stalls.due([DISK], 100_000)
    at_ms = 100_000 + step_ms
    told = [report for late_ms in range(0, 3_000, 500) for report in stalls.due([DISK], at_ms + late_ms)]
    assert told
    assert told[0].reason == DISK.reason


def reported(stall: Stall, *, at_ms: int, over: bool = False) -> StallReported:
    return StallReported(
        stall_id=stall.subject,
        service="s",
        instance="0",
        pool=stall.pool,
        reason=None if over else stall.reason,
        since_ms=at_ms,
        until_ms=stall.until_ms,
        reported_at_ms=at_ms,
    )


def test_a_job_waits_for_its_own_pools_and_for_what_everybody_needs() -> None:
    """O1: and for nothing that is over, or that nobody has repeated."""
    told = [reported(DISK, at_ms=2), reported(POOL, at_ms=1)]
    reasons = {pools: waits(told, pools) for pools in (("a", "b"), ("b",), None)}
    assert reasons == {("a", "b"): [POOL.reason, DISK.reason], ("b",): [DISK.reason], None: [POOL.reason, DISK.reason]}
    assert waits(told, ("a",), now_ms=FRESH_MS + 2) == [DISK.reason]
    assert waits([reported(DISK, at_ms=2, over=True)], None) == []


def waits(told: list[StallReported], pools: tuple[str, ...] | None, now_ms: int = 3) -> list[str]:
    return [each.reason for each in waiting_for(told, pools, now_ms, fresh_ms=FRESH_MS)]


@dataclass
class Away(Recorder):
    """A recorder whose ticks find something away."""

    away: bool = True
    tries: int = 0

    def on_tick(self, part: Partition) -> Decision:
        self.tries += 1
        if self.away:
            raise Unavailable("blob store: no space left")
        return super().on_tick(part)


def test_a_tick_that_finds_something_away_is_tried_again_and_loses_nothing(tmp_path: Path) -> None:
    """E1, O1: the process stays, the records of its transaction come again, the stall is told."""
    stage = Stage(MemoryBroker(partitions=2).log("test"), tmp_path)
    service = Away()
    loop = stage.loop(service)
    stage.plan("a")
    for _ in range(6):
        loop.step(next(NOW))
    assert 0 < service.tries <= 12
    assert stage.records("shard-dispatched") == []
    assert [record.key for record in stage.records("stall-reported")] == [b"dispatcher@0/tick"]
    service.away = False
    run_until(loop, lambda: "a" in rows(loop))
    assert len(stage.records("shard-dispatched")) == 1
    run_until(loop, lambda: len(stage.records("stall-reported")) > 1)
    loop.close()


FULL_STORE = """
import resource, sys
from pathlib import Path
from nightmill.kernel.runtime.store import StateStore
store = StateStore(Path(sys.argv[1]), [], [])
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
store.set_positions({str(number): number for number in range(1000)})
"""


def test_tables_that_can_not_be_written_end_the_process_with_the_place_and_the_remedy(tmp_path: Path) -> None:
    """E11, O1: in a process that may not make files longer."""
    command = [sys.executable, "-c", FULL_STORE, str(tmp_path / "0")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert f"DiskRefused: local tables in {tmp_path / '0'}: " in said
    assert any(sign in said for sign in FULL)
    assert "bytes are free there: raise the limit of file sizes" in said


def test_tables_that_another_process_uses_are_named(tmp_path: Path) -> None:
    store = StateStore(tmp_path / "0", [], [])
    with pytest.raises(DiskRefused, match=r"local tables in .*/0: .*stop the other process that uses it"):
        StateStore(tmp_path / "0", [], [])
    store.close()


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (28, "free space there"),
        (24, "ulimit -n"),
        (30, "make it writable"),
        (13, "mend its rights"),
        (5, "mend the disk"),
    ],
)
def test_what_a_disk_refuses_has_a_remedy(tmp_path: Path, number: int, remedy: str) -> None:
    said = refusal(tmp_path / "not" / "yet", OSError(number, os.strerror(number)))
    assert said.startswith(f"{tmp_path / 'not' / 'yet'}: {os.strerror(number)}; ")
    assert remedy in said
