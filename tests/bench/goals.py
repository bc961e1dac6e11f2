"""What the figures must reach, and by how much they miss it.

Steps on the way to the design's own figures; the budget of CPU is by service, with a provider that takes no time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from bench.batch_script import BATCH_SCRIPT
from bench.clients import BARE_POOL, SDK
from bench.gateway_alone import GATEWAY
from bench.line import LINE
from bench.peer import PEER_SUBJECT
from bench.scenarios import Outcome
from bench.workload import Run

#: µs of CPU per item by process
BUDGET_US = {
    "planner": 60,
    "dispatcher": 170,
    "provider_gateway": 95,
    "validator": 85,
    "publisher": 70,
    "ledger": 75,
    "broker": 65,
}
#: 300 MB
_GATEWAY_MIB = 286
#: processes that are no part of the line
AROUND = ("client", "simulator")


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """`wanted` at least, or with `at_most` at most; `measured` None: a run was not complete."""

    text: str
    unit: str
    wanted: float
    measured: float | None
    at_most: bool = False

    @property
    def missed_by(self) -> float | None:
        """Share of `wanted` that is lacking or too much; None when it is reached or not known."""
        if self.measured is None:
            return None
        gap = self.measured - self.wanted if self.at_most else self.wanted - self.measured
        return gap / self.wanted if gap > 0 else None


def goals(outcomes: Sequence[Outcome]) -> list[Goal]:
    """The goals of the scenarios that were measured, over all repetitions of each."""
    by_scenario: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_scenario.setdefault(outcome.scenario, []).append(outcome)
    return [goal for name, found in by_scenario.items() for goal in _GOALS.get(name, _none)(found)]


def rate(outcomes: Sequence[Outcome], subject: str) -> float | None:
    """Median of items/s; None when a repetition was not complete or there was none."""
    runs = runs_of(outcomes, subject)
    return median(run.items_per_s for run in runs) if runs and all(run.problem is None for run in runs) else None


def cpu_us(runs: Sequence[Run], process: str) -> float | None:
    """Median µs of CPU per item of one process; None when it is not known of each run."""
    used = [run.cpu_s.get(process) for run in runs]
    known = [seconds / run.items * 1e6 for run, seconds in zip(runs, used, strict=True) if seconds is not None]
    return median(known) if known and len(known) == len(runs) else None


def line_cpu_us(runs: Sequence[Run]) -> float | None:
    """Median µs of CPU per item of all processes of the line; None when one is not known."""
    totals = [_line_cpu_s(run) for run in runs]
    known = [total / run.items * 1e6 for run, total in zip(runs, totals, strict=True) if total is not None]
    return median(known) if known and len(known) == len(runs) else None


def runs_of(outcomes: Sequence[Outcome], subject: str, items: int | None = None) -> list[Run]:
    """All repetitions of a subject, of one size if it is given."""
    runs = [run for outcome in outcomes for run in outcome.runs if run.subject == subject]
    return [run for run in runs if items is None or run.items == items]


def sizes_of(outcomes: Sequence[Outcome], subject: str) -> list[int]:
    return sorted({run.items for run in runs_of(outcomes, subject)})


def total(shares: Sequence[float | None]) -> float | None:
    known = [share for share in shares if share is not None]
    return sum(known) if known and len(known) == len(shares) else None


def ratio(own: float | None, other: float | None) -> float | None:
    return None if own is None or other is None else own / other


def _line_cpu_s(run: Run) -> float | None:
    return total([seconds for name, seconds in run.cpu_s.items() if name not in AROUND])


def _against(outcomes: Sequence[Outcome], subject: str, wanted: float) -> list[Goal]:
    """A goal only where the other was measured too."""
    if not runs_of(outcomes, subject):
        return []
    share = ratio(rate(outcomes, LINE), rate(outcomes, subject))
    return [Goal(text=f"{outcomes[0].scenario}: to {subject}", unit="×", wanted=wanted, measured=share)]


def _realtime_200(outcomes: Sequence[Outcome]) -> list[Goal]:
    return _against(outcomes, BARE_POOL, 0.9)


def _realtime_0(outcomes: Sequence[Outcome]) -> list[Goal]:
    own = Goal(text="realtime-0: end to end", unit="items/s", wanted=1_200, measured=rate(outcomes, LINE))
    others = [*_against(outcomes, SDK, 2.0), *_against(outcomes, PEER_SUBJECT, 1.0)]
    return [own, *others, *_simulator(outcomes, BARE_POOL, "chat calls", 4_000)]


def _bulk(outcomes: Sequence[Outcome]) -> list[Goal]:
    return [*_within_budget(outcomes), *_simulator(outcomes, BATCH_SCRIPT, "batch lines", 20_000)]


def _simulator(outcomes: Sequence[Outcome], subject: str, what: str, wanted: float) -> list[Goal]:
    """What the simulator does with one second of a core, for a client that asks for nothing else."""
    runs = runs_of(outcomes, subject)
    if not runs:
        return []
    text = f"{outcomes[0].scenario}: the simulator's {what}, of one core"
    return [Goal(text=text, unit="a second", wanted=wanted, measured=ratio(1e6, cpu_us(runs, "simulator")))]


def _within_budget(outcomes: Sequence[Outcome]) -> list[Goal]:
    name = outcomes[0].scenario
    runs, budget = runs_of(outcomes, LINE), sum(BUDGET_US.values())
    spent = line_cpu_us(runs)
    return [
        Goal(text=f"{name}: plan to publish", unit="items/s", wanted=2_000, measured=rate(outcomes, LINE)),
        Goal(text=f"{name}: CPU of the whole line", unit="µs/item", wanted=budget, measured=spent, at_most=True),
        *(
            Goal(text=f"{name}: {each}", unit="µs/item", wanted=most, measured=cpu_us(runs, each), at_most=True)
            for each, most in BUDGET_US.items()
        ),
    ]


def _growth(outcomes: Sequence[Outcome]) -> list[Goal]:
    first, *larger = sizes_of(outcomes, LINE)
    at_first = line_cpu_us(runs_of(outcomes, LINE, first))
    return [
        Goal(
            text=f"growth: CPU per item at {size:,} to that at {first:,}",
            unit="×",
            wanted=1.15,
            measured=ratio(line_cpu_us(runs_of(outcomes, LINE, size)), at_first),
            at_most=True,
        )
        for size in larger
    ]


def _bulk_memory(outcomes: Sequence[Outcome]) -> list[Goal]:
    """Whatever the number of result lines."""
    peaks = {
        size: [run.peak_rss_mib.get("provider_gateway") for run in runs_of(outcomes, GATEWAY, size)]
        for size in sizes_of(outcomes, GATEWAY)
    }
    return [
        Goal(
            text=f"bulk-memory: peak of the gateway over {size:,} result lines",
            unit="MiB",
            wanted=_GATEWAY_MIB,
            measured=max((mib for mib in found if mib is not None), default=None),
            at_most=True,
        )
        for size, found in peaks.items()
    ]


def _rest(outcomes: Sequence[Outcome]) -> list[Goal]:
    warm_s = median(outcome.up_s["warm"] for outcome in outcomes)
    idle = [total(list(outcome.idle.values())) for outcome in outcomes]
    known = [100 * share for share in idle if share is not None]
    share = median(known) if len(known) == len(outcomes) else None
    return [
        Goal(text="rest: up until ready, warm", unit="s", wanted=15, measured=warm_s, at_most=True),
        Goal(text="rest: idle CPU of everything", unit="% of a core", wanted=15, measured=share, at_most=True),
    ]


def _none(_outcomes: Sequence[Outcome]) -> list[Goal]:
    return []


_GOALS: dict[str, Callable[[Sequence[Outcome]], list[Goal]]] = {
    "realtime-200": _realtime_200,
    "realtime-0": _realtime_0,
    "instant": _within_budget,
    "bulk": _bulk,
    "bulk-memory": _bulk_memory,
    "growth": _growth,
    "rest": _rest,
}
