"""Measure the realtime lane beside two plain clients, on the same simulator in the same run.

    python tests/bench [--items 10000 | --quick] [--out FILE]

First the plain clients, warm, while nothing of Nightmill runs; then an installation of its own in a temporary home: a
first `up`, a warm one, a small job to warm the broker, the same documents, and rest. No time is asserted: the exit
code is 1 only when a run was not complete and correct. `NIGHTMILL_TEST_KAFKA` (HOST:PORT) names a broker to use
instead.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # tests/, for `kit` and this package

from bench.clients import CLIENTS, run_client
from bench.line import Line, NotStarted, installed
from bench.report import Figures, render
from bench.usage import peak_rss_mib, snapshot
from bench.workload import IN_FLIGHT, Run, workload
from kit.simulator import Simulator

LATENCIES_MS = (200, 0)
ITEMS = 10_000
QUICK_ITEMS = 1_000
IDLE_S = 10.0
SETTLE_S = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return the exit code: 0, or 1 when something was not complete."""
    options = _parser().parse_args(arguments)
    # Without this a SIGTERM would leave the installation up.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(128 + signal.SIGTERM))
    try:
        figures = measure(options.items)
    except NotStarted as error:
        print(f"nightmill up failed:\n{error}", file=sys.stderr)
        return 1
    report = render(figures)
    print(report)
    if options.out is not None:
        options.out.write_text(report, encoding="utf-8")
    return 1 if figures.problems else 0


def measure(items: int) -> Figures:
    """All figures, one subject after the other."""
    load_before = os.getloadavg()[0]
    with Simulator() as simulator, tempfile.TemporaryDirectory(prefix="nightmill-bench-") as folder:
        for subject in CLIENTS:  # the SDK imports most of itself at its first call
            run_client(subject, workload("warm-up", IN_FLIGHT), simulator)
        runs = {latency_ms: _run_clients(simulator, latency_ms, items) for latency_ms in LATENCIES_MS}
        with installed(Path(folder), simulator) as line:
            _say("nightmill up, in a new home")
            cold_up_s = line.up()
            line.down()
            _say("nightmill up, warm")
            warm_up_s = line.up()
            _prepare(simulator, 0)
            _tell("warm-up", line.run(workload("warm-up", IN_FLIGHT)))
            for latency_ms in LATENCIES_MS:
                _prepare(simulator, latency_ms)
                run = line.run(workload(_name(latency_ms), items))
                runs[latency_ms].append(run)
                _tell(f"{latency_ms} ms", run)
                if run.problem is not None:  # what it left to do would disturb the next
                    _say(f"ends of the logs:{line.log_tails()}")
                    break
            _say("at rest")
            time.sleep(SETTLE_S)
            idle = _idle(line)
            return Figures(
                items=items,
                load_before=load_before,
                runs=runs,
                cold_up_s=cold_up_s,
                warm_up_s=warm_up_s,
                idle=idle,
                idle_s=IDLE_S,
                peak_rss_mib={name: peak_rss_mib(pid) for name, pid in line.pids().items()},
                external_broker=line.external is not None,
            )


def _run_clients(simulator: Simulator, latency_ms: int, items: int) -> list[Run]:
    runs = []
    for subject in CLIENTS:
        _prepare(simulator, latency_ms)
        runs.append(run_client(subject, workload(_name(latency_ms), items), simulator))
        _tell(f"{latency_ms} ms", runs[-1])
    return runs


def _prepare(simulator: Simulator, latency_ms: int) -> None:
    simulator.set_scenario({"latency": {"fixed_ms": latency_ms}})
    simulator.reset()


def _name(latency_ms: int) -> str:
    return f"bench-{latency_ms}-ms"


def _idle(line: Line) -> dict[str, float | None]:
    """Shares of one core that each process uses while there is nothing to do."""
    before = snapshot(line.pids())
    time.sleep(IDLE_S)
    used = snapshot(line.pids()).since(before)
    return {name: None if seconds is None else seconds / IDLE_S for name, seconds in used.items()}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python tests/bench", description="Figures beside two plain clients.")
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("--items", type=_positive, default=ITEMS, help=f"items of each run (default {ITEMS:,})")
    quick = f"{QUICK_ITEMS:,} items of each run"
    amount.add_argument("--quick", dest="items", action="store_const", const=QUICK_ITEMS, help=quick)
    parser.add_argument("--out", type=Path, help="also write the report to this file")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number from 1")
    return int(text)


def _tell(what: str, run: Run) -> None:
    _say(f"{what}: {run.subject}: {run.problem or f'{run.items_per_s:,.0f} items/s'}")


def _say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
