"""The runs as Markdown: what they are, a summary by kind of fault, one row each, and what was broken."""

import os
from collections.abc import Mapping, Sequence
from statistics import median

from chaos.plan import Plan
from chaos.run import Result

_NONE = "–"
_HEAD = """# Real kills

`make chaos` runs jobs on an installation of its own (a real broker, eight services, chDB) against the provider
simulator: 200 ms a call, and a few calls in a hundred fail. In the middle of each job something happens to the
processes, at a moment that the seed decides. Afterwards the provider's books, the ledger and the published results are
compared.

- **kill**: `kill -9` of one process or of two at once; the supervisor starts them again. **power cut**: `kill -9` of
  all, the broker and the supervisor too, then `nightmill up`. **pause**: the process is stopped for 30 s, its session
  runs out, and it goes on. **zombie**: the same, and a second instance has taken over when it goes on.
- **lost**: documents without a result or another outcome. **published twice**: documents with more than one result.
- **paid twice**: items for which the provider billed an answer that there was no reason to ask for again. Reasons are
  an answer that failed validation, and one that the provider itself kept back after billing it.
- **in flight**: calls that were open when a gateway died or stood still, or answered less than 0.25 s before. Each call
  that was paid again must be one of them. A gateway also dies of other causes than a kill of its own: of a broker that
  stays away during a commit, or when it comes back as a zombie.
- **unknown**: attempts of which the ledger says that their outcome is not known, and how many of them were reset **by
  the provider**.
- Not in the table, and checked in each run: tokens of each known attempt are the provider's bill of that call exactly,
  no attempt was called twice, every call is in the ledger, and the job's total is the sum of its attempts.
- **next settled**, **standstill**: from the fault to the next item with an outcome, and the longest time without one
  from then on. **ready**: from the fault until all processes are ready; – when none was missing.
"""
_COUNTS = ("lost", "published twice", "paid twice", "in flight", "unknown", "by the provider")
_TIMES = ("next settled s", "standstill s", "ready s")


def render(results: Sequence[Result], stuck: Mapping[Plan, str], *, items: int, seed: int) -> str:
    """The whole report."""
    head = ("run", "fault", "moment", "state", *_COUNTS, *_TIMES, "job s")
    parts = [
        _HEAD,
        f"{len(results) + len(stuck)} runs of {items:,} items, seed {seed}, {os.cpu_count()} cores.",
        "",
        *table(("fault", "runs", *_COUNTS, *(f"{name}, median (max)" for name in _TIMES)), _summary(results)),
        *table(head, [_row(each) for each in results]),
    ]
    problems = [f"- run {plan.number} ({plan.fault.name}, {plan.moment}): {text}" for plan, text in stuck.items()]
    problems += [f"- run {e.plan.number} ({e.plan.fault.name}): {text}" for e in results for text in e.findings.broken]
    return "\n".join(parts + (["Broken:", "", *problems, ""] if problems else ["No run broke a promise.", ""]))


def line(result: Result) -> str:
    """A run in one line, as it goes."""
    found = result.findings
    verdict = "; ".join(found.broken) or "kept"
    times = ", ".join(f"{name} {text}" for name, text in zip(_TIMES, _times(result), strict=True))
    return f"{verdict}; paid twice {found.paid_twice} of {found.in_flight} in flight, unknown {found.unknown}, {times}"


def _row(result: Result) -> list[str]:
    plan = result.plan
    head = [str(plan.number), plan.fault.name, str(plan.moment), result.findings.state]
    return [*head, *map(str, _counts(result)), *_times(result), f"{result.job_s:.1f}"]


def _summary(results: Sequence[Result]) -> list[list[str]]:
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.plan.fault.group, []).append(result)
    groups["all"] = list(results)
    return [_summed(name, members) for name, members in groups.items() if members]


def _summed(name: str, members: Sequence[Result]) -> list[str]:
    counts = [sum(column) for column in zip(*map(_counts, members), strict=True)]
    spans = [[ms for ms in column if ms is not None] for column in zip(*map(_spans_ms, members), strict=True)]
    times = [f"{_seconds(int(median(span)))} ({_seconds(max(span))})" if span else _NONE for span in spans]
    return [name, str(len(members)), *map(str, counts), *times]


def _counts(result: Result) -> tuple[int, ...]:
    found = result.findings
    unknown = (found.unknown, found.unknown_by_provider)
    return (found.lost, found.published_twice, found.paid_twice, found.in_flight, *unknown)


def _spans_ms(result: Result) -> tuple[int | None, ...]:
    return result.findings.next_settled_ms, result.findings.standstill_ms, result.ready_ms


def _times(result: Result) -> list[str]:
    return [_seconds(ms) for ms in _spans_ms(result)]


def _seconds(ms: int | None) -> str:
    return _NONE if ms is None else f"{ms / 1000:.1f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table, and an empty one."""
    rule = ["---"] * len(head)
    return [*(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows)), ""]
