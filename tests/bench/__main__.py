"""Measure the line beside plain clients and a durable peer, on the same simulator in the same run.

    python tests/bench [--only SCENARIO]... [--items N] [--repeat N] [--no-baselines] [--profile] [--stacks FOLDER]
                       [--report FILE]

Every scenario has installations of its own in temporary homes. No time is asserted: missed goals are told, and the
exit code is 1 only when a run was not complete and correct. `NIGHTMILL_TEST_KAFKA` (HOST:PORT) names a broker to use
instead of one of its own; it is not measured then.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # tests/, for `kit` and this package

from bench.line import NotStarted
from bench.report import problems, render
from bench.scenarios import SCENARIOS, Bench, Outcome, measure
from bench.tools import NotInstalled
from kit.program import end_on_sigterm, parser_of, positive, tell
from kit.simulator import Simulator


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return the exit code: 0, or 1 when something was not complete."""
    options = _parser().parse_args(arguments)
    end_on_sigterm()
    outcomes, failures = _measure(options)
    report = render(outcomes, failures)
    tell(report, options.report)
    return 1 if failures or problems(outcomes) else 0


def _measure(options: argparse.Namespace) -> tuple[list[Outcome], list[str]]:
    """What the scenarios found, and those that could not even begin; one does not keep the next from its turn."""
    outcomes: list[Outcome] = []
    failures: list[str] = []
    with Simulator() as simulator, tempfile.TemporaryDirectory(prefix="nightmill-bench-") as folder:
        stacks = options.stacks or (Path(folder, "stacks") if options.profile else None)
        bench = Bench(simulator=simulator, folder=Path(folder), baselines=options.baselines, stacks=stacks, say=_say)
        for name in options.repeat * list(dict.fromkeys(options.only or SCENARIOS)):
            try:
                outcomes.append(measure(name, bench, options.items))
            except (NotStarted, NotInstalled) as error:
                failures.append(f"{name}: {error}")
                _say(failures[-1])
    return outcomes, failures


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("bench", "Figures beside plain clients and a peer.")
    sizes = ", ".join(f"{name} {scenario.items:,}" for name, scenario in SCENARIOS.items())
    parser.add_argument("--only", action="append", choices=SCENARIOS, help="this scenario; may be given several times")
    parser.add_argument("--items", type=positive, help=f"items of each run; without: {sizes}")
    parser.add_argument("--repeat", type=positive, default=1, help="times; the report has medians (default 1)")
    parser.add_argument("--no-baselines", dest="baselines", action="store_false", help="the line alone")
    parser.add_argument("--profile", action="store_true", help="sample the services in a further run")
    parser.add_argument("--stacks", type=Path, help="as --profile, and keep the collapsed stacks in this folder")
    return parser


def _say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
