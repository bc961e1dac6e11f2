"""Kill and stop processes of an installation in the middle of jobs, and judge what became of each job.

    python tests/chaos [--bulk] [--runs N] [--items N] [--seed 1] [--only N ...] [--report FILE]

The installation is one of its own, with its own broker, in a temporary home; it serves run after run. Provider and
driver survive. Exit code 1 when a promise was broken; then the logs are kept and the report names the runs, which
`--only` with the same seed does again.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # tests/, for `kit` and this package

from chaos.bulk import command as bulk
from chaos.installation import NotStarted
from chaos.plan import CYCLE, SHORT_CYCLE, Plan, plans
from chaos.report import line, render
from chaos.run import Limits, Result, Stuck, carry_out
from chaos.site import installed, keep_logs, say
from kit.program import end_on_sigterm, parser_of, positive, tell
from kit.simulator import Simulator

RUNS = 40
ITEMS = 2_000
SLOTS = 100


def main(arguments: Sequence[str] | None = None) -> int:
    """Do the runs, print the report and return the exit code."""
    options = _parser().parse_args(arguments)
    end_on_sigterm()
    if options.bulk:
        return bulk.main(options)
    wanted = [
        plan
        for plan in plans(options.runs or RUNS, options.seed, SHORT_CYCLE if options.short else CYCLE)
        if not options.only or plan.number in options.only
    ]
    items = options.items or ITEMS
    limits = Limits(items=items, pause_s=options.pause)
    results, stuck = _carry_out_all(wanted, limits, slots=options.slots)
    report = render(results, stuck, items=items, seed=options.seed)
    tell(report, options.report)
    return 1 if stuck or any(result.findings.broken for result in results) else 0


def _carry_out_all(wanted: Sequence[Plan], limits: Limits, *, slots: int) -> tuple[list[Result], dict[Plan, str]]:
    """One installation serves until a run breaks something; what follows a broken run gets a new one."""
    results: list[Result] = []
    stuck: dict[Plan, str] = {}
    left = list(wanted)
    with Simulator() as simulator:
        while left:
            with installed(simulator, slots=slots) as site:
                while left:
                    plan = left.pop(0)
                    say(f"run {plan.number}: {plan.fault.name}, {plan.moment}")
                    try:
                        result = carry_out(plan, site, simulator, limits)
                    except (Stuck, NotStarted) as error:
                        stuck[plan] = str(error)
                        say(f"run {plan.number}: stuck: {error}; logs: {keep_logs(site, str(plan.number))}")
                        break
                    results.append(result)
                    say(f"run {plan.number}: {line(result)}")
                    if result.findings.broken:
                        say(f"run {plan.number}: logs: {keep_logs(site, str(plan.number))}")
                        break
    return results, stuck


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("chaos", "Jobs under real kills.")
    parser.add_argument("--runs", type=positive, help=f"how many (default {RUNS}; --bulk: {bulk.RUNS})")
    sizes = f"items of each job (default {ITEMS:,}; --bulk: {bulk.ITEMS:,})"
    parser.add_argument("--bulk", action="store_true", help="batch jobs, and kills of the gateway alone")
    parser.add_argument("--items", type=positive, help=sizes)
    parser.add_argument("--slots", type=positive, default=SLOTS, help=f"calls in flight (default {SLOTS})")
    parser.add_argument("--seed", type=int, default=1, help="decides faults and moments (default 1)")
    parser.add_argument("--pause", type=float, default=30.0, help="seconds that a stopped process stands still")
    parser.add_argument("--only", type=int, nargs="+", help="only the runs of these numbers")
    parser.add_argument("--short", action="store_true", help="cycle through the six faults of the test suite")
    return parser


if __name__ == "__main__":
    sys.exit(main())
