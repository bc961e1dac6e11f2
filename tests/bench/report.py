"""What was measured, as Markdown: goals first, then each scenario's tables. Repeated figures are medians."""

import os
import platform
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from statistics import median

from bench.batch_script import BATCH_SCRIPT
from bench.clients import BARE_POOL, SDK
from bench.gateway_alone import GATEWAY
from bench.goals import AROUND, BUDGET_US, Goal, cpu_us, goals, line_cpu_us, rate, ratio, runs_of, sizes_of, total
from bench.line import LINE
from bench.peer import PEER_SUBJECT
from bench.profiling import Profile
from bench.scenarios import IDLE_S, SCENARIOS, Outcome
from bench.tables import number, percent, table
from bench.workload import IN_FLIGHT, Run

_BASELINES = (BARE_POOL, SDK, PEER_SUBJECT, BATCH_SCRIPT)
_TOP = 10
_THREADS = 5
#: more than this that others take is told in bold
_QUIET_CORES = 0.2
#: share of all disk space from which a folder or a topic is told
_COUNTS = 0.005


def render(outcomes: Sequence[Outcome], failures: Sequence[str] = ()) -> str:
    """The whole report; `failures` tells of scenarios that could not begin."""
    parts = [_head(), *_goals(goals(outcomes))]
    for name, scenario in SCENARIOS.items():
        found = [outcome for outcome in outcomes if outcome.scenario == name]
        if found:
            parts += [f"## {scenario.title}", "", *_scenario(found)]
    if wrong := [*problems(outcomes), *failures]:
        parts += ["## Not complete", "", *(f"- {problem}" for problem in wrong), ""]
    return "\n".join(parts)


def problems(outcomes: Sequence[Outcome]) -> list[str]:
    """What was not complete or not correct."""
    return [
        f"{outcome.scenario}: {run.subject}, {run.items:,} items: {run.problem}"
        for outcome in outcomes
        for run in outcome.runs
        if run.problem is not None
    ]


def _head() -> str:
    return (
        f"# Benchmark\n\n{os.cpu_count()} cores ({_processor()}), Python {platform.python_version()}; documents of "
        f"about 250 letters, {IN_FLIGHT} calls in flight, one simulator for all, a warm broker on the same cores.\n"
        "The line's time runs from the upload until the version is published and the ledger has every call; "
        "of the others only the peer keeps anything, its checkpoint file.\n"
    )


def _goals(found: Sequence[Goal]) -> list[str]:
    if not found:
        return []
    rows = [
        [goal.text, f"{'≤' if goal.at_most else '≥'} {_figure(goal.wanted)} {goal.unit}", _measured(goal)]
        for goal in found
    ]
    return ["## Goals", "", *table(["goal", "wanted", "measured"], rows, texts=2)]


def _measured(goal: Goal) -> str:
    if goal.measured is None:
        return "incomplete"
    told = _figure(goal.measured)
    return told if goal.missed_by is None else f"**{told}, missed by {goal.missed_by:.0%}**"


def _figure(value: float) -> str:
    return number(value, 2 if value < 10 else 1 if value < 100 else 0)


def _scenario(found: Sequence[Outcome]) -> list[str]:
    parts = [_before(found), *_speed(found), *_cpu(found), *_memory(found), *_disk(found)]
    if found[0].idle:
        parts += _rest(found)
    for service, profile in found[-1].profiles.items():
        parts += _profile(service, profile)
    return parts


def _before(found: Sequence[Outcome]) -> str:
    loads = ", ".join(f"{outcome.load_before:.1f}" for outcome in found)
    busy = max(outcome.busy_cores_before for outcome in found)
    told = f"Load before: {loads}; cores busy with other work before: {busy:.1f}"
    return f"**{told}: the figures suffer from it.**\n" if busy > _QUIET_CORES else f"{told}.\n"


def _speed(found: Sequence[Outcome]) -> list[str]:
    others = [subject for subject in _BASELINES if runs_of(found, subject)]
    rates = {subject: rate(found, subject) for subject in others}
    rows = []
    for subject in _subjects(found):
        for items in sizes_of(found, subject):
            runs = runs_of(found, subject, items)
            whole = all(run.problem is None for run in runs)
            own = median(run.items_per_s for run in runs) if whole else None
            seconds = median(run.elapsed_s for run in runs) if whole else None
            shares = [number(ratio(own, rates[other]), 2) for other in others]
            used = [line_cpu_us(runs) if subject not in _BASELINES else cpu_us(runs, "client")]
            used.append(cpu_us(runs, "simulator"))
            load = number(median(run.load_before for run in runs), 1)
            rows.append([subject, f"{items:,}", number(seconds, 2), number(own), *shares, *map(number, used), load])
    head = ["subject", "items", "seconds", "items/s", *(f"to {other}" for other in others)]
    return table([*head, "CPU, µs per item", "simulator's", "load before"], rows)


def _cpu(found: Sequence[Outcome]) -> list[str]:
    """By process, beside the budget where that is meant."""
    columns = _columns(found)
    budgeted = found[0].scenario in ("instant", "growth", "bulk")
    names = list(dict.fromkeys(name for runs in columns.values() for run in runs for name in run.cpu_s))
    rows = [
        [name, *(number(cpu_us(runs, name)) for runs in columns.values()), number(BUDGET_US.get(name))]
        for name in names
        if name not in AROUND
    ]
    spent = [number(line_cpu_us(runs)) for runs in columns.values()]
    rows.append(["**Nightmill, all**", *spent, number(sum(BUDGET_US.values()))])
    head = ["CPU, µs per item", *columns, "budget"]
    return table(head, rows) if budgeted else table(head[:-1], [row[:-1] for row in rows])


def _memory(found: Sequence[Outcome]) -> list[str]:
    columns = _columns(found)
    names = list(dict.fromkeys(name for runs in columns.values() for run in runs for name in run.peak_rss_mib))
    rows = [[name, *(number(_peak(runs, name)) for runs in columns.values())] for name in names]
    sums = [total([_peak(runs, name) for name in names]) for runs in columns.values()]
    return table(["peak RSS, MiB", *columns], [*rows, ["**all**", *map(number, sums)]])


def _disk(found: Sequence[Outcome]) -> list[str]:
    """Folders, then the broker's topics, which its folder has in it; what hardly counts is left out."""
    columns = _columns(found)
    names = dict.fromkeys(name for runs in columns.values() for run in runs for name in run.disk_bytes)
    each = {name: [_grown(runs, name) for runs in columns.values()] for name in names}
    sums = [sum(grown[column] for name, grown in each.items() if ":" not in name) for column in range(len(columns))]
    counting = {name: grown for name, grown in each.items() if max(grown) >= max(sums) * _COUNTS}
    ordered = sorted(counting.items(), key=lambda entry: (":" in entry[0], -max(entry[1])))
    rows = [[name, *map(number, grown)] for name, grown in ordered]
    return table(["disk, bytes per item", *columns], [["**all**", *map(number, sums)], *rows])


def _rest(found: Sequence[Outcome]) -> list[str]:
    names = found[0].idle
    rows = [[name, percent(_idle(found, name))] for name in names]
    rows.append(["**all**", percent(total([_idle(found, name) for name in names]))])
    starts = {kind: median(outcome.up_s[kind] for outcome in found) for kind in found[0].up_s}
    told = ", ".join(f"{kind} {seconds:.1f} s" for kind, seconds in starts.items())
    return [*table([f"idle for {IDLE_S:.0f} s", "of a core"], rows), f"`nightmill up` until ready: {told}.\n"]


def _profile(service: str, profile: Profile) -> list[str]:
    threads = sorted(profile.thread_share.items(), key=lambda entry: -entry[1])[:_THREADS]
    told = ", ".join(f"{name} {share:.0%}" for name, share in threads)
    own, inclusive = (list(shares.items())[:_TOP] for shares in (profile.self_share, profile.inclusive_share))
    rows = [[*_entry(first), *_entry(second)] for first, second in zip_longest(own, inclusive)]
    head = f"**{service}**: {profile.samples:,} samples; CPU by thread: {told}.\n"
    return [head, *table(["by itself", "share", "with what it calls", "share"], rows)]


def _entry(entry: tuple[str, float] | None) -> list[str]:
    return ["", ""] if entry is None else [f"`{entry[0]}`", percent(entry[1])]


def _columns(found: Sequence[Outcome]) -> Mapping[str, list[Run]]:
    """Runs of the line by what stands over their column."""
    own = [subject for subject in _subjects(found) if subject not in _BASELINES]
    return {
        f"{items:,} items" if subject in (LINE, GATEWAY) else subject.partition(", ")[2]: runs_of(found, subject, items)
        for subject in own
        for items in sizes_of(found, subject)
    }


def _subjects(found: Sequence[Outcome]) -> list[str]:
    return list(dict.fromkeys(run.subject for outcome in found for run in outcome.runs))


def _peak(runs: Sequence[Run], name: str) -> float | None:
    known = [mib for run in runs if (mib := run.peak_rss_mib.get(name)) is not None]
    return max(known, default=None)


def _grown(runs: Sequence[Run], name: str) -> float:
    return median(run.disk_bytes.get(name, 0) / run.items for run in runs)


def _idle(found: Sequence[Outcome], name: str) -> float | None:
    known = [share for outcome in found if (share := outcome.idle.get(name)) is not None]
    return median(known) if known else None


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
