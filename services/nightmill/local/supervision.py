"""The supervisor's decisions, without processes or clocks: when to start again, when to give up, what stops when."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

BROKER = "broker"
MODEL_SERVER = "model_server"
EMBEDDINGS_SERVER = "embeddings_server"
API = "api"

_STOP_RANK = {API: 0, MODEL_SERVER: 2, EMBEDDINGS_SERVER: 2, BROKER: 3}
_WORKER_RANK = 1

FIRST_DELAY_S = 0.2
LONGEST_DELAY_S = 10.0
STEADY_AFTER_S = 30.0
#: A process that ends this often without ever having been ready will not be ready the next time either.
STARTS_BEFORE_GIVING_UP = 5


class Phase(StrEnum):
    """Where a laptop stands, as `up --detach` and `ps` read it."""

    #: Entered by the supervisor's first write; left when all is ready, or when the start is given up.
    STARTING = "starting"
    #: Everything has been ready once; single processes may be on their way back.
    READY = "ready"
    #: A signal came, or the start was given up; ends with the supervisor.
    STOPPING = "stopping"


def failures_after(failures: int, *, alive_s: float) -> int:
    """Return how many failures in a row count after a process ended: a steady life wipes the slate."""
    return 1 if alive_s >= STEADY_AFTER_S else failures + 1


def restart_delay_s(failures: int) -> float:
    """Return the pause before the next start after `failures` >= 1 in a row: 0.2 s, doubling, 10 s at most."""
    # The exponent is bounded because 2.0**1100 overflows after a night of failures.
    return min(LONGEST_DELAY_S, FIRST_DELAY_S * 2.0 ** min(failures - 1, 10))


def gives_up(failures: int, *, was_ready: bool) -> bool:
    """Return whether the start as a whole has failed because this process never gets ready."""
    return not was_ready and failures >= STARTS_BEFORE_GIVING_UP


def stop_waves(names: Iterable[str]) -> list[list[str]]:
    """Return what to stop, wave by wave: no new work first, then the workers, then what they stand on."""
    waves: dict[int, list[str]] = {}
    for name in names:
        waves.setdefault(_STOP_RANK.get(name, _WORKER_RANK), []).append(name)
    return [waves[rank] for rank in sorted(waves)]


def progress_line(phase: Phase, ready: Iterable[str], waiting: Iterable[str]) -> str:
    """Return one line that says how far a start is."""
    done, open_ = sorted(ready), sorted(waiting)
    missing = f", waiting for {', '.join(open_)}" if open_ else ""
    return f"{phase}: {len(done)} of {len(done) + len(open_)} processes ready{missing}"
