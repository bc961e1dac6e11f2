"""Looks after the transactions of the laptop's broker: one that hangs is ended without a person.

Hanging ones come from a start after an end that was not in order: the first minutes of each life are watched closely.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from nightmill.kernel.runtime.kafka.hanging import end_hanging
from nightmill.kernel.runtime.kafka.requests import Refused
from nightmill.kernel.runtime.log import LogUnavailable
from nightmill.local.processes import is_alive

_CLOSELY_S = 5.0
_CLOSELY_FOR_S = 300.0
_SELDOM_S = 60.0


def start_mending(bootstrap: str, pid: int, birth: str | None) -> None:
    """Watch the broker at `bootstrap` in the background for as long as its process lives, or this one."""

    def lives() -> bool:
        return is_alive(pid, birth)

    threading.Thread(target=mend_while, args=(lives, bootstrap), name="mending", daemon=True).start()


def mend_while(
    lives: Callable[[], bool],
    bootstrap: str,
    *,
    clock_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Look every few seconds at first, then every minute. A broker that is away is looked at again later."""
    began_s = clock_s()
    while lives():
        sleep(_CLOSELY_S if clock_s() - began_s < _CLOSELY_FOR_S else _SELDOM_S)
        try:
            end_hanging(bootstrap, time.time_ns() // 1_000_000)
        except (OSError, Refused, LogUnavailable):
            # starting, stopping or busy: the next look finds the same
            continue
