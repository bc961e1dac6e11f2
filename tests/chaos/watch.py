"""Looks at the processes of an installation all the time: who died when, and when everything was ready again."""

import threading
import time
from types import TracebackType
from typing import Self

from nightmill.local.home import Home
from nightmill.local.processes import is_alive
from nightmill.local.status import LaptopState, read_state
from nightmill.local.supervision import Phase

_LOOK_S = 0.05


def now_ms() -> int:
    """Epoch milliseconds of this machine, which is the provider's and the ledger's clock too."""
    return time.time_ns() // 1_000_000


class Watch:
    """Watches from entry to exit, in a thread of its own."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[int, str | None]] = {}
        self._deaths: dict[tuple[str, int], int] = {}
        self._ready = False
        self._ready_since_ms: int | None = None
        self._unready_seen = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> Self:
        self._look()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def killed(self, name: str, pid: int, at_ms: int) -> None:
        """Somebody knows the moment of a death better than a look can tell."""
        with self._lock:
            self._deaths[(name, pid)] = at_ms

    def deaths(self, name: str) -> list[int]:
        """When processes of this name died, in epoch ms."""
        with self._lock:
            return sorted(at_ms for (died, _), at_ms in self._deaths.items() if died == name)

    def ready_since_ms(self) -> int | None:
        """Since when all processes are ready; None when one is not now, 0 when all have been from the beginning."""
        with self._lock:
            if not self._ready:
                return None
            return self._ready_since_ms if self._unready_seen else 0

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_S):
            self._look()

    def _look(self) -> None:
        state, at_ms = read_state(self._home), now_ms()
        ready = state is not None and _all_ready(state)
        with self._lock:
            for each in () if state is None else state.processes:
                if each.pid is not None:
                    self._note(each.name, each.pid, each.birth, at_ms)
            for name, (pid, birth) in self._seen.items():
                if not is_alive(pid, birth):
                    self._deaths.setdefault((name, pid), at_ms)
            if ready and not self._ready:
                self._ready_since_ms = at_ms
            self._unready_seen = self._unready_seen or not ready
            self._ready = ready

    def _note(self, name: str, pid: int, birth: str | None, at_ms: int) -> None:
        before = self._seen.get(name)
        if before is not None and before[0] != pid:
            self._deaths.setdefault((name, before[0]), at_ms)
        self._seen[name] = (pid, birth)


def _all_ready(state: LaptopState) -> bool:
    whole = state.phase is Phase.READY and state.supervised
    return whole and all(each.ready and each.alive for each in state.processes)
