"""Kill and stop processes of an installation in the middle of jobs, and judge what became of each job.

    python tests/chaos [--runs 40] [--items 2000] [--seed 1] [--only N ...] [--report FILE]

The installation is one of its own, with its own broker, in a temporary home; it serves run after run. Provider and
driver survive. Exit code 1 when a promise was broken; then the logs are kept and the report names the runs, which
`--only` with the same seed does again.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # tests/, for `kit` and this package

from chaos.installation import Installation, NotStarted
from chaos.plan import CYCLE, SHORT_CYCLE, Plan, plans
from chaos.report import line, render
from chaos.run import Limits, Result, Stuck, carry_out
from kit.program import end_on_sigterm, parser_of, positive, tell
from kit.simulator import Simulator

RUNS = 40
ITEMS = 2_000
SLOTS = 100


def main(arguments: Sequence[str] | None = None) -> int:
    """Do the runs, print the report and return the exit code."""
    options = _parser().parse_args(arguments)
    end_on_sigterm()
    wanted = [
        plan
        for plan in plans(options.runs, options.seed, SHORT_CYCLE if options.short else CYCLE)
        if not options.only or plan.number in options.only
    ]
    limits = Limits(items=options.items, pause_s=options.pause)
    results, stuck = _carry_out_all(wanted, limits, slots=options.slots)
    report = render(results, stuck, items=options.items, seed=options.seed)
    tell(report, options.report)
    return 1 if stuck or any(result.findings.broken for result in results) else 0


def _carry_out_all(wanted: Sequence[Plan], limits: Limits, *, slots: int) -> tuple[list[Result], dict[Plan, str]]:
    """One installation serves until a run breaks something; what follows a broken run gets a new one."""
    results: list[Result] = []
    stuck: dict[Plan, str] = {}
    left = list(wanted)
    with Simulator() as simulator:
        while left:
            with _installed(simulator, slots) as site:
                while left:
                    plan = left.pop(0)
                    _say(f"run {plan.number}: {plan.fault.name}, {plan.moment}")
                    try:
                        result = carry_out(plan, site, simulator, limits)
                    except (Stuck, NotStarted) as error:
                        stuck[plan] = str(error)
                        _say(f"run {plan.number}: stuck: {error}; logs: {_keep_logs(site, plan)}")
                        break
                    results.append(result)
                    _say(f"run {plan.number}: {line(result)}")
                    if result.findings.broken:
                        _say(f"run {plan.number}: logs: {_keep_logs(site, plan)}")
                        break
    return results, stuck


@contextmanager
def _installed(simulator: Simulator, slots: int) -> Iterator[Installation]:
    with tempfile.TemporaryDirectory(prefix="nightmill-chaos-") as folder:
        site = Installation(Path(folder), simulator.base_url, slots=slots)
        try:
            _say("nightmill up")
            site.up()
            yield site
        finally:
            site.down()


def _keep_logs(site: Installation, plan: Plan) -> Path:
    return site.keep_logs(Path(tempfile.mkdtemp(prefix=f"nightmill-chaos-run-{plan.number}-")))


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("chaos", "Jobs under real kills.")
    parser.add_argument("--runs", type=positive, default=RUNS, help=f"how many (default {RUNS})")
    parser.add_argument("--items", type=positive, default=ITEMS, help=f"items of each job (default {ITEMS:,})")
    parser.add_argument("--slots", type=positive, default=SLOTS, help=f"calls in flight (default {SLOTS})")
    parser.add_argument("--seed", type=int, default=1, help="decides faults and moments (default 1)")
    parser.add_argument("--pause", type=float, default=30.0, help="seconds that a stopped process stands still")
    parser.add_argument("--only", type=positive, nargs="+", help="only the runs of these numbers")
    parser.add_argument("--short", action="store_true", help="cycle through the six faults of the test suite")
    return parser


def _say(text: str) -> None:
    print(f"chaos: {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
