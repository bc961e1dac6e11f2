"""Measure the line beside plain clients and a durable peer, on the same simulator in the same run.

    python tests/bench [--only SCENARIO]... [--items N] [--repeat N] [--no-baselines] [--profile] [--stacks FOLDER]
                       [--report FILE]

Every scenario has installations of its own in temporary homes. No time is asserted: missed goals are told, and the
exit code is 1 only when a run was not complete and correct. `NIGHTMILL_TEST_KAFKA` (HOST:PORT) names a broker to use
instead of one of its own; it is not measured then.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # tests/, for `kit` and this package

from bench.line import NotStarted
from bench.report import problems, render
from bench.scenarios import SCENARIOS, Bench, Outcome, measure
from bench.tools import NotInstalled
from kit.simulator import Simulator


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return the exit code: 0, or 1 when something was not complete."""
    options = _parser().parse_args(arguments)
    # Without this a SIGTERM would leave the installation up.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(128 + signal.SIGTERM))
    outcomes, failures = _measure(options)
    report = render(outcomes, failures)
    print(report)
    if options.report is not None:
        options.report.write_text(report, encoding="utf-8")
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
    parser = argparse.ArgumentParser(prog="python tests/bench", description="Figures beside plain clients and a peer.")
    sizes = ", ".join(f"{name} {scenario.items:,}" for name, scenario in SCENARIOS.items())
    parser.add_argument("--only", action="append", choices=SCENARIOS, help="this scenario; may be given several times")
    parser.add_argument("--items", type=_positive, help=f"items of each run; without: {sizes}")
    parser.add_argument("--repeat", type=_positive, default=1, help="times; the report has medians (default 1)")
    parser.add_argument("--no-baselines", dest="baselines", action="store_false", help="the line alone")
    parser.add_argument("--profile", action="store_true", help="sample the services in a further run")
    parser.add_argument("--stacks", type=Path, help="as --profile, and keep the collapsed stacks in this folder")
    parser.add_argument("--report", type=Path, help="also write the report to this file")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number from 1")
    return int(text)


def _say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
