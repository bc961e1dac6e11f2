"""The bulk lane's crash matrix: a gateway that dies, or sleeps, at every point from the intent to the last file.

The provider's books decide: no line is billed twice, whatever happened on our side.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

import pytest

from integration.bulk import (
    befalls,
    billed_lines,
    documents,
    make_config,
    open_submissions,
    pipeline,
    published,
)
from kit.line import QUICK, Line, now_ms
from kit.simulator import Simulator
from nightmill.kernel.domain.lifecycle import BatchState
from nightmill.kernel.runtime.log import Fenced
from nightmill.kernel.runtime.loop import Loop
from nightmill.kernel.runtime.memory import MemoryBroker
from nightmill.kernel.wire.messages import ProviderBatchRow
from nightmill.provider_gateway.bulk import errands as e
from nightmill.provider_gateway.bulk.worker import ThreadRunner


class Died(BaseException):
    """The process is gone in this moment."""


@dataclass
class FragileRunner:
    """Dies once at an errand of one kind: before it is begun, or when it was carried out and nobody knows yet."""

    inner: e.Runner
    kind: type[e.Errand]
    before: bool
    kinds: dict[int, type[e.Errand]] = field(default_factory=dict)

    def start(self, errand: e.Errand) -> int:
        if self.before and isinstance(errand, self.kind):
            raise Died
        number = self.inner.start(errand)
        self.kinds[number] = type(errand)
        return number

    def completed(self) -> Sequence[e.Ended]:
        ended = self.inner.completed()
        if any(self.kinds[each.number] is self.kind for each in ended):
            raise Died
        return ended

    def close(self) -> None:
        self.inner.close()


@dataclass
class SleepyRunner:
    """Holds every create back until it is woken, as a process that is paused between its decision and its request."""

    inner: e.Runner
    held: list[e.Errand] = field(default_factory=list)

    def start(self, errand: e.Errand) -> int:
        if isinstance(errand, e.Create):
            self.held.append(errand)
            return -len(self.held)
        return self.inner.start(errand)

    def completed(self) -> Sequence[e.Ended]:
        return self.inner.completed()

    def close(self) -> None:
        self.inner.close()


@pytest.fixture
def start_line(
    simulator: Simulator, tmp_path: Path, kind: str
) -> Iterator[Callable[[Callable[[e.Runner], e.Runner]], Line]]:
    """A line whose first gateway has the runner that is made of the real one; later lives have the real one."""
    lines: list[Line] = []

    def start(wrapped: Callable[[e.Runner], e.Runner]) -> Line:
        class Wrapping(Line):
            def make_runner(self, folder: Path) -> e.Runner:
                real = super().make_runner(folder)
                return real if lines else wrapped(real)

        line = Wrapping(tmp_path, make_config(simulator.base_url, kind))
        lines.append(line)
        return line

    yield start
    for line in lines:
        line.close()


ERRANDS = (e.Build, e.Upload, e.Create, e.Poll, e.Fetch, e.Read, e.Remove)
MATRIX = [
    pytest.param(provider, errand, before, id=f"{provider}-{'before' if before else 'after'}-{errand.__name__.lower()}")
    for provider in ("openai", "anthropic")
    for errand in ERRANDS
    for before in (True, False)
    if (provider, errand) != ("anthropic", e.Upload)  # its requests travel in the create
]


@pytest.mark.parametrize(("kind", "errand", "before"), MATRIX)
def test_a_gateway_that_dies_pays_nothing_twice(
    start_line: Callable[[Callable[[e.Runner], e.Runner]], Line],
    simulator: Simulator,
    errand: type[e.Errand],
    before: bool,
) -> None:
    """E1, E6, M4: whatever was done and not recorded is found again, and nothing is submitted a second time."""
    line = start_line(lambda real: FragileRunner(real, errand, before))
    job = line.submit(pipeline(), documents(40))
    with pytest.raises(Died):
        line.run_until(lambda: False)
    line.kill("provider_gateway")
    line.start("provider_gateway")
    notice = line.finish(job)
    assert notice.state is BatchState.PUBLISHED
    assert published(line) == Counter(f"d{i}" for i in range(40))
    assert len(billed_lines(simulator)) == 40
    assert notice.totals.cost_nano_usd == sum(row["billed_nano_usd"] for row in billed_lines(simulator))
    assert notice.totals.unknown_attempts == 0


@pytest.mark.parametrize(
    ("kind", "clock_stands"),
    [
        pytest.param("openai", False, id="openai, its clock went on"),
        pytest.param("openai", True, id="openai, its clock stood still"),
        pytest.param("anthropic", False, id="anthropic, its clock went on"),
    ],
)
def test_a_sleeper_that_wakes_after_a_take_over_creates_nothing(
    start_line: Callable[[Callable[[e.Runner], e.Runner]], Line],
    simulator: Simulator,
    tmp_path: Path,
    clock_stands: bool,
) -> None:
    """E1, E6: its time is over when it looks at the clock; were it not, its input is gone from the provider."""
    sleepy: list[SleepyRunner] = []

    def fall_asleep(real: e.Runner) -> e.Runner:
        sleepy.append(SleepyRunner(real))
        return sleepy[0]

    line = start_line(fall_asleep)
    job = line.submit(pipeline(), documents(40))
    line.run_until(lambda: bool(sleepy[0].held))
    asleep, gateway, slept_at_ms = line.loops.pop("provider_gateway"), line.gateway, now_ms()
    line.host = "other"
    line.start("provider_gateway")
    notice = line.finish(job)

    runner = ThreadRunner(
        tmp_path / "awake",
        blobs=line.blobs,
        authorizations={},
        clock_ms=(lambda: slept_at_ms) if clock_stands else now_ms,
        request_s=0.5,
    )
    numbers = [runner.start(errand) for errand in sleepy[0].held]
    ended: list[e.Ended] = []

    def all_ended() -> bool:
        ended.extend(runner.completed())
        return len(ended) == len(numbers)

    line.run_until(all_ended)
    assert {type(each.outcome) for each in ended} == {e.Refused if clock_stands else e.TooLate}
    with pytest.raises(Fenced):
        step_for_ever(asleep)
    asleep.abandon()
    gateway.close()
    runner.close()
    assert notice.state is BatchState.PUBLISHED
    assert published(line) == Counter(f"d{i}" for i in range(40))
    assert len(billed_lines(simulator)) == 40


def step_for_ever(loop: Loop) -> NoReturn:
    while True:
        loop.step(now_ms())


def test_downloads_that_another_process_has_done_with_leave_the_disk(
    simulator: Simulator, tmp_path: Path, kind: str
) -> None:
    """E6, M4: a process that lost a partition keeps nothing of it, and what is still to be read stays."""
    config, timing = make_config(simulator.base_url, kind), replace(QUICK, tidy=50)
    befalls(simulator, {"kind": "batch_stuck"})
    line = Line(tmp_path, config, broker=MemoryBroker(partitions=1), bulk_timing=timing)
    line.submit(pipeline(), documents(20))
    line.run_until(lambda: open_submissions(line) == 1)
    (part,) = line.loops["provider_gateway"].owned()
    (submission,) = [row.submission_id for row in part.table(ProviderBatchRow).index("batch_open")]
    (folder,) = tmp_path.glob("bulk-*")
    left, wanted = folder / "s-b1-output.results", folder / f"{submission}-error.results"
    for path in (left, wanted):
        path.write_bytes(b"{}")
    line.run_until(lambda: not left.exists())
    assert wanted.exists()
    line.close()
