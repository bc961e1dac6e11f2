"""All guards, and seeds that fail without one of them, for its entry in the list.

`PYTHONPATH=tests python -m simulation.find NAME,NAME,... FIRST COUNT` prints the first two of each.
"""

import sys
from collections.abc import Sequence

from simulation.bulk.guards import BULK_GUARDS
from simulation.guards import GUARDS, Guard
from simulation.lease_guards import LEASE_GUARDS
from simulation.seeds import Failure, run_seed

ALL = (*GUARDS, *LEASE_GUARDS, *BULK_GUARDS)


def find(guard: Guard, seeds: Sequence[int], wanted: int = 2) -> list[Failure]:
    """Seeds that fail without the guard."""
    found: list[Failure] = []
    with guard.off():
        for seed in seeds:
            outcome = run_seed(seed, guard.focus)
            if isinstance(outcome, Failure):
                found.append(outcome)
                if len(found) >= wanted:
                    break
    return found


if __name__ == "__main__":
    _first, _count = int(sys.argv[2]), int(sys.argv[3])
    for _guard in [guard for guard in ALL if guard.name in sys.argv[1].split(",")]:
        _found = find(_guard, range(_first, _first + _count))
        print(
            _guard.name,
            [(failure.seed, failure.invariant, failure.report.splitlines()[1][:90]) for failure in _found],
            flush=True,
        )
