"""Run many seeds, or one again.

    python tests/simulation [--seeds 10000] [--first 0] [--seed N] [--processes 2]

Prints what failed with the command that replays it; the exit code is 1 when a seed failed.
"""

import argparse
import multiprocessing
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # tests/, for this package

from simulation.seeds import Failure, run_seed
from simulation.world import Run

_SHOWN = 5  #: failures printed whole
_EVERY = 500


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds; returns the exit code."""
    options = _parser().parse_args(arguments)
    seeds = [options.seed] if options.seed is not None else range(options.first, options.first + options.seeds)
    processes = 1 if len(seeds) == 1 else options.processes
    began_s, failures, runs = time.monotonic(), list[Failure](), list[Run]()
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for outcome in pool.imap_unordered(run_seed, seeds, chunksize=max(1, min(10, len(seeds) // processes))):
            if isinstance(outcome, Failure):
                failures.append(outcome)
                print(outcome.report if len(failures) <= _SHOWN else f"seed {outcome.seed}: {outcome.invariant}")
            else:
                runs.append(outcome)
            if (len(runs) + len(failures)) % _EVERY == 0:
                print(f"{len(runs) + len(failures)} seeds, {len(failures)} failed", flush=True)
    print(_summary(runs, failures, time.monotonic() - began_s))
    return 1 if failures else 0


def _summary(runs: Sequence[Run], failures: Sequence[Failure], took_s: float) -> str:
    count = len(runs) + len(failures)
    hours = sum(run.virtual_s for run in runs) / 3600
    figures = (
        f"{count} seeds, {len(failures)} failed: {hours:.1f} simulated hours, {sum(r.turns for r in runs):,} turns, "
        f"{sum(r.items for r in runs):,} items, {sum(r.calls for r in runs):,} calls, "
        f"{sum(r.batches for r in runs):,} provider batches in {took_s:.0f} s "
        f"({count / took_s:.1f} seeds/s)"
    )
    failed = "".join(f"\nmake simulate SEED={failure.seed}   {failure.invariant}" for failure in failures)
    digest = f"\ndigest of the run: {runs[0].digest}" if count == 1 and runs else ""
    return figures + failed + digest


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="simulation", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=300, help="how many (default: 300)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--processes", type=int, default=2)
    return parser


if __name__ == "__main__":
    sys.exit(main())
