"""What is measured: one function a scenario, each with installations of its own, so that none disturbs another."""

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from bench.batch_script import run_batch_script
from bench.clients import CLIENTS, run_client
from bench.gateway_alone import gateway_alone
from bench.line import LINE, Line, NotStarted, Way, installed
from bench.peer import run_peer
from bench.profiling import NotSampled, Profile, Sampler
from bench.usage import busy_cores, load_now, snapshot
from bench.workload import IN_FLIGHT, Run, Workload, workload
from kit.simulator import Simulator

AGAIN = "Nightmill, unchanged input"

IDLE_S = 20.0
_SETTLE_S = 5.0
_LOOK_S = 2.0
#: a broker and services that have just started are slower for some seconds
_WARM_UP_ITEMS = 5_000
#: a profile needs no more to be told from chance
_PROFILE_ITEMS = 20_000
#: what growth begins with, as parts of its largest run
_SMALLER = (30, 3)
_TENFOLD = (100, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What all scenarios share. `stacks` is where profiles leave their samples; None: no profiles."""

    simulator: Simulator
    folder: Path
    baselines: bool
    stacks: Path | None
    say: Callable[[str], None]

    def told(self, run: Run) -> Run:
        rate = f"{run.items:,} items, {run.items_per_s:,.0f} items/s"
        self.say(f"{run.subject}: {run.problem or rate} (load before {run.load_before:.1f})")
        return run


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one scenario found. Shares of `idle` are of one core.

    `load_before` and `busy_cores_before` are the machine's while nothing of the benchmark was at work.
    """

    scenario: str
    load_before: float = 0.0
    busy_cores_before: float = 0.0
    runs: tuple[Run, ...] = ()
    up_s: Mapping[str, float] = field(default_factory=dict)
    idle: Mapping[str, float | None] = field(default_factory=dict)
    profiles: Mapping[str, Profile] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """`measure(bench, items)` takes as long as it takes; `items` here is the full size."""

    title: str
    items: int
    measure: Callable[[Bench, int], Outcome]


def _realtime(bench: Bench, items: int, *, latency_ms: int) -> Outcome:
    """The baselines first, while nothing of Nightmill runs."""
    name = f"realtime-{latency_ms}"
    work = workload(name, items)
    runs = []
    for subject, run in _baselines(bench):
        run(workload(f"warm-up {subject}", IN_FLIGHT))  # the SDK imports most of itself at its first call
        _prepare(bench, latency_ms)
        runs.append(bench.told(run(work)))
    with _warm_line(bench, items, way=Way.REALTIME) as line:
        _prepare(bench, latency_ms)
        runs.append(bench.told(line.run(work)))
        profiles = _profiles(bench, line, name, runs[-1])
    return Outcome(scenario=name, runs=tuple(runs), profiles=profiles)


def _instant(bench: Bench, items: int) -> Outcome:
    with _warm_line(bench, items, way=Way.INSTANT) as line:
        run = bench.told(line.run(workload("instant", items)))
        profiles = _profiles(bench, line, "instant", run)
    return Outcome(scenario="instant", runs=(run,), profiles=profiles)


def _bulk(bench: Bench, items: int) -> Outcome:
    """The provider's books say whether anything was paid twice."""
    work = workload("bulk", items)
    runs = []
    if bench.baselines:
        _prepare(bench, 0)
        runs.append(bench.told(run_batch_script(work, folder=bench.folder, simulator=bench.simulator)))
    with _warm_line(bench, items, way=Way.BULK) as line:
        _prepare(bench, 0)
        run = line.run(work)
        billed = bench.simulator.ledger()["billed"]["calls"]
        if run.problem is None and billed != items:
            run = replace(run, problem=f"the provider bills {billed} lines for {items} items")
        runs.append(bench.told(run))
        profiles = _profiles(bench, line, "bulk", run)
    return Outcome(scenario="bulk", runs=tuple(runs), profiles=profiles)


def _bulk_memory(bench: Bench, items: int) -> Outcome:
    """One process through three sizes, smallest first."""
    sizes = [*(max(1, items // part) for part in _TENFOLD), items]
    _prepare(bench, 0)
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder, gateway_alone(Path(folder), bench.simulator) as alone:
        runs = _until_one_fails(bench.told(alone.run(size)) for size in sizes)
    return Outcome(scenario="bulk-memory", runs=runs)


def _growth(bench: Bench, items: int) -> Outcome:
    """Three jobs, one after the other in one installation: it has to bear what earlier jobs left too."""
    sizes = [*(max(1, items // part) for part in _SMALLER), items]
    with _warm_line(bench, items, way=Way.INSTANT) as line:
        runs = _until_one_fails(bench.told(line.run(workload(f"growth-{size}", size))) for size in sizes)
    return Outcome(scenario="growth", runs=runs)


def _again(bench: Bench, items: int) -> Outcome:
    work = workload("again", items)
    with _warm_line(bench, items, way=Way.INSTANT) as line:
        runs = _until_one_fails(bench.told(line.run(work, subject=subject)) for subject in (LINE, AGAIN))
    return Outcome(scenario="again", runs=runs)


def _rest(bench: Bench, items: int) -> Outcome:
    """Starts, and what is used while there is nothing to do; a job before, so that there is something to keep."""
    with _line(bench, way=Way.REALTIME) as line:
        up_s = {"in a new home": line.up()}
        line.down()
        up_s["warm"] = line.up()
        _prepare(bench, 0)
        run = bench.told(line.run(workload("rest", items)))
        time.sleep(_SETTLE_S)
        before = snapshot(line.pids())
        time.sleep(IDLE_S)
        used = snapshot(line.pids()).since(before)
    idle = {name: None if seconds is None else seconds / IDLE_S for name, seconds in used.items()}
    return Outcome(scenario="rest", runs=(run,), up_s=up_s, idle=idle)


SCENARIOS = {
    "realtime-200": Scenario(
        title="Realtime, a provider that takes 200 ms", items=30_000, measure=partial(_realtime, latency_ms=200)
    ),
    "realtime-0": Scenario(
        title="Realtime, a provider that answers at once", items=15_000, measure=partial(_realtime, latency_ms=0)
    ),
    "instant": Scenario(title="Without a provider: answers made inside the gateway", items=150_000, measure=_instant),
    "bulk": Scenario(title="Bulk: a Batch API that answers at once", items=150_000, measure=_bulk),
    "bulk-memory": Scenario(title="Bulk: memory of the gateway", items=1_000_000, measure=_bulk_memory),
    "growth": Scenario(title="Growth, without a provider", items=300_000, measure=_growth),
    "again": Scenario(title="A second run over an unchanged input", items=100_000, measure=_again),
    "rest": Scenario(title="Start and rest", items=2_000, measure=_rest),
}


def measure(name: str, bench: Bench, items: int | None) -> Outcome:
    """One scenario, in its full size without `items`. Raises `NotStarted` and `NotInstalled`."""
    scenario = SCENARIOS[name]
    load_before, busy = load_now(), busy_cores(_LOOK_S)
    bench.say(f"--- {name}: load {load_before:.1f}, {busy:.1f} cores busy with other work")
    outcome = scenario.measure(bench, items or scenario.items)
    return replace(outcome, load_before=load_before, busy_cores_before=busy)


@contextmanager
def _line(bench: Bench, *, way: Way) -> Iterator[Line]:
    """An installation that is down; its folders vanish at the end."""
    with (
        tempfile.TemporaryDirectory(dir=bench.folder) as folder,
        installed(Path(folder), bench.simulator, way=way) as line,
    ):
        yield line


@contextmanager
def _warm_line(bench: Bench, items: int, *, way: Way) -> Iterator[Line]:
    """An installation that is up and has done a job."""
    with _line(bench, way=way) as line:
        line.up()
        _prepare(bench, 0)
        warm = bench.told(line.run(workload("warm-up", min(items, _WARM_UP_ITEMS)), subject=f"{LINE}, warm-up"))
        if warm.problem is not None:
            raise NotStarted(f"the first job failed: {warm.problem}{line.log_tails()}")
        yield line


def _baselines(bench: Bench) -> Iterator[tuple[str, Callable[[Workload], Run]]]:
    if bench.baselines:
        for subject in CLIENTS:
            yield subject, partial(run_client, subject, simulator=bench.simulator)
        yield "peer", partial(run_peer, folder=bench.folder, simulator=bench.simulator)


def _until_one_fails(runs: Iterable[Run]) -> tuple[Run, ...]:
    """What a failed run left to do would disturb the next."""
    done: list[Run] = []
    for run in runs:
        done.append(run)
        if run.problem is not None:
            break
    return tuple(done)


def _profiles(bench: Bench, line: Line, name: str, measured: Run) -> Mapping[str, Profile]:
    """A further job under the sampler, apart from what was measured."""
    if bench.stacks is None or measured.problem is not None:
        return {}
    sampler = Sampler(bench.stacks / name)
    services = {service: pid for service, pid in line.pids().items() if service not in ("broker", "supervisor")}
    work = workload(f"{name}-profile", min(measured.items, _PROFILE_ITEMS))
    with sampler.sampling(services):
        bench.told(line.run(work, subject=f"{LINE}, sampled"))
    try:
        return sampler.profiles()
    except NotSampled as error:
        bench.say(str(error))
        return {}


def _prepare(bench: Bench, latency_ms: int) -> None:
    bench.simulator.set_scenario({"latency": {"fixed_ms": latency_ms}})
    bench.simulator.reset()
