"""What was measured, as Markdown tables."""

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.clients import BARE_POOL, SDK
from bench.line import LINE
from bench.workload import IN_FLIGHT, Run

#: processes that are no part of the line
_AROUND = ("client", "simulator")
_UNKNOWN = "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """All of one run of the benchmark. `runs` is by latency; shares of `idle` are of one core."""

    items: int
    load_before: float
    runs: Mapping[int, Sequence[Run]]
    cold_up_s: float
    warm_up_s: float
    idle: Mapping[str, float | None]
    idle_s: float
    peak_rss_mib: Mapping[str, float | None]
    external_broker: bool

    @property
    def problems(self) -> list[str]:
        """What was not complete or not correct."""
        return [
            f"{run.subject} at {latency_ms} ms: {run.problem}"
            for latency_ms, runs in self.runs.items()
            for run in runs
            if run.problem is not None
        ]


def render(figures: Figures) -> str:
    """The whole report."""
    parts = [_head(figures), *_speed(figures), *_cpu(figures), *_processes(figures)]
    if figures.problems:
        parts += ["## Not complete", "", *(f"- {problem}" for problem in figures.problems), ""]
    return "\n".join(parts)


def _head(figures: Figures) -> str:
    broker = "an external broker, which is not measured" if figures.external_broker else "a broker of its own"
    return (
        f"# Benchmark\n\n{figures.items:,} items of about 250 letters, {IN_FLIGHT} in flight, one simulator for all, "
        f"{broker}. {os.cpu_count()} cores ({_processor()}), Python {platform.python_version()}, "
        f"load before: {figures.load_before:.1f}.\n"
        "The line's time runs from the upload until the version is published and the ledger has every call; "
        "the other two keep nothing.\n"
    )


def _speed(figures: Figures) -> list[str]:
    rows = []
    for latency_ms, runs in figures.runs.items():
        rate = {run.subject: run.items_per_s for run in runs if run.problem is None}
        for run in runs:
            own = rate.get(run.subject)
            shares = [_ratio(own, rate.get(other)) for other in (BARE_POOL, SDK)]
            told = [_UNKNOWN, "incomplete"] if own is None else [f"{run.elapsed_s:.2f}", f"{own:,.0f}"]
            rows.append([f"{latency_ms} ms", run.subject, *told, *shares])
    return _table("Speed", ["latency", "subject", "seconds", "items/s", "to the bare pool", "to the SDK"], rows)


def _cpu(figures: Figures) -> list[str]:
    """One column a run of the line, and the baselines' own below."""
    lines = {latency_ms: _of(runs, LINE) for latency_ms, runs in figures.runs.items()}
    names = list(dict.fromkeys(name for run in lines.values() if run for name in run.cpu_s if name not in _AROUND))
    rows = [[name, *(_micros(run, [name]) for run in lines.values())] for name in names]
    rows.append(["**Nightmill, all**", *(_micros(run, names) for run in lines.values())])
    for subject in (BARE_POOL, SDK):
        rows.append([subject, *(_micros(_of(runs, subject), ["client"]) for runs in figures.runs.values())])
    for subject in (LINE, BARE_POOL, SDK):
        cells = [_micros(_of(runs, subject), ["simulator"]) for runs in figures.runs.values()]
        rows.append([f"simulator, serving: {subject}", *cells])
    return _table("CPU, µs per item", ["process", *(f"{latency_ms} ms" for latency_ms in lines)], rows)


def _processes(figures: Figures) -> list[str]:
    rows = [
        [name, _UNKNOWN if share is None else f"{share:.1%}", _mib(figures.peak_rss_mib.get(name))]
        for name, share in figures.idle.items()
    ]
    known = [share for share in figures.idle.values() if share is not None]
    memory = [mib for mib in figures.peak_rss_mib.values() if mib is not None]
    rows.append(["**all**", f"{sum(known):.1%}", _mib(sum(memory))])
    head = ["process", f"idle for {figures.idle_s:.0f} s, of a core", "peak RSS, MiB"]
    start = f"`nightmill up` until ready: {figures.cold_up_s:.1f} s in a new home, {figures.warm_up_s:.1f} s warm.\n"
    return [*_table("At rest", head, rows), start]


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    rule = ["---", *["---:" if title != "Speed" or column > 1 else "---" for column in range(1, len(head))]]
    return [f"## {title}", "", *(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows)), ""]


def _of(runs: Sequence[Run], subject: str) -> Run | None:
    return next((run for run in runs if run.subject == subject and run.problem is None), None)


def _micros(run: Run | None, names: Sequence[str]) -> str:
    """The sum over processes; unknown when one of them is."""
    used = [run.cpu_s.get(name) for name in names] if run else [None]
    known = [seconds for seconds in used if seconds is not None]
    return f"{sum(known) / run.items * 1e6:,.0f}" if run and len(known) == len(used) else _UNKNOWN


def _ratio(own: float | None, other: float | None) -> str:
    return _UNKNOWN if own is None or other is None else f"{own / other:.2f}"


def _mib(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:,.0f}"


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
