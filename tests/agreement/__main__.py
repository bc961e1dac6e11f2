"""`python tests/agreement --attempts 100000`: bill and ledger, and every call whose usage was lost."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # `python tests/agreement` knows that folder alone

from agreement.report import lines, problems
from agreement.run import run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--listed", type=int, default=20, help="lost calls that are printed one by one; all stand in --list"
    )
    parser.add_argument("--list", type=Path, help="file for the whole list of lost calls")
    options = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="agreement-") as folder:
        outcome = run(Path(folder), options.attempts, seed=options.seed, say=lambda text: print(text, flush=True))
    told = lines(outcome)
    print(*told[: options.listed + told.index("") + 1], sep="\n")
    if options.list is not None:
        options.list.write_text("\n".join(told) + "\n")
    found = problems(outcome)
    print(*(f"PROBLEM {problem}" for problem in found[:50]), sep="\n")
    print(f"{time.monotonic() - started:.0f} s, seed {options.seed}: {'AGREED' if not found else 'NOT AGREED'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
