"""Each guard is needed: without it one of its seeds breaks what it protects, with it they pass (M3, E2, E11)."""

import pytest

from simulation.find import ALL
from simulation.guards import Guard
from simulation.seeds import Failure, run_seed
from simulation.world import Run

_MORE = 60  #: seeds that are tried when a change of the product has changed what the known ones lead to


@pytest.mark.parametrize("guard", ALL, ids=lambda guard: guard.name)
def test_a_seed_fails_without_the_guard(guard: Guard) -> None:
    seen: set[str] = set()
    for seed in (*guard.seeds, *range(_MORE)):
        with guard.off():
            outcome = run_seed(seed, guard.focus)
        if isinstance(outcome, Failure):
            seen.add(outcome.invariant)
            if outcome.invariant in guard.invariants:
                assert isinstance(run_seed(seed, guard.focus), Run)
                return
    pytest.fail(f"nothing needs {guard.where}: {seen or 'nothing'} fails without it")
