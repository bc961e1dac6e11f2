"""Keeps a set of processes alive: starts, watches, restarts with backoff, says what is ready, stops in waves.

Knows nothing of Kafka or services: a `Child` says how to start it and how to see that it is ready. One thread, which
sleeps until a child ends, a signal comes or a restart is due. The decisions are in `supervision`.
"""

from __future__ import annotations

import contextlib
import logging
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import FrameType

from nightmill.local.errors import LaptopError
from nightmill.local.home import Home, read_pid_file, write_pid_file
from nightmill.local.processes import is_alive, stop_all
from nightmill.local.status import ProcessState
from nightmill.local.supervision import failures_after, gives_up, restart_delay_s, stop_waves

log = logging.getLogger(__name__)

GRACE_S = 10.0
_STARTING_POLL_S = 0.05
_IDLE_POLL_S = 1.0
_MS = 1000
_SUPERVISOR = "supervisor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """One process to keep alive.

    `start` starts it and returns at once; `is_ready` is asked often and must be quick; `grace_s` is how long it may
    take to end after SIGTERM; `ended` is called with the exit code after each of its ends; `why` puts an end that
    nobody asked for into words.
    """

    name: str
    start: Callable[[], subprocess.Popen[bytes]]
    is_ready: Callable[[subprocess.Popen[bytes]], bool]
    grace_s: float = GRACE_S
    ended: Callable[[int], None] = lambda _: None
    why: Callable[[int], str] = lambda code: f"exit code {code}"


class Outcome(StrEnum):
    """How waiting for readiness ended."""

    READY = "ready"
    #: SIGTERM or SIGINT came first.
    STOPPED = "stopped"
    #: A process never got ready: it kept ending, or time was up.
    FAILED = "failed"


@dataclass(slots=True, kw_only=True)
class _Slot:
    child: Child
    process: subprocess.Popen[bytes] | None = None
    birth: str | None = None
    ready: bool = False
    was_ready: bool = False
    failures: int = 0
    starts: int = 0
    started_s: float = 0.0
    due_s: float = 0.0
    since_ms: int = 0
    why: str | None = None


class Supervisor:
    """Runs in the main thread of its process, inside `signals()`. `changed` is called after each visible change."""

    def __init__(self, home: Home, *, changed: Callable[[], None] = lambda: None) -> None:
        self._home = home
        self._changed = changed
        self._slots: dict[str, _Slot] = {}
        self._waker: socket.socket | None = None
        self._untold = False
        self.stopping = False

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """Take SIGTERM and SIGINT as a wish to stop, and wake at once when a child ends, for the block."""
        reading, writing = socket.socketpair()
        reading.setblocking(False)
        writing.setblocking(False)
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)}
        for number in before:
            signal.signal(number, self._on_signal)
        old_fd = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
        self._waker = reading
        try:
            yield
        finally:
            self._waker = None
            signal.set_wakeup_fd(old_fd)
            for number, handler in before.items():
                signal.signal(number, handler)
            reading.close()
            writing.close()

    def add(self, children: Iterable[Child]) -> None:
        """Start these children now and keep them alive from here on."""
        for child in children:
            slot = self._slots[child.name] = _Slot(child=child)
            self._start(slot)

    def states(self) -> tuple[ProcessState, ...]:
        """Return what `ps` shows of each child, in the order of their start."""
        return tuple(
            ProcessState(
                name=name,
                pid=slot.process.pid if slot.process else None,
                birth=slot.birth,
                ready=slot.ready,
                restarts=max(0, slot.starts - 1),
                since_ms=slot.since_ms,
                ended=slot.why,
            )
            for name, slot in self._slots.items()
        )

    def why(self, name: str) -> str | None:
        """Return why the child's last life ended by itself; None when none did."""
        return self._slots[name].why

    def not_ready(self) -> list[str]:
        """Return the names of the children that are not ready now."""
        return [name for name, slot in self._slots.items() if not slot.ready]

    def wait_ready(self, *, timeout_s: float) -> Outcome:
        """Block until every child has been ready; the children are watched and restarted meanwhile."""
        deadline = time.monotonic() + timeout_s
        while True:
            self._tick()
            if self.stopping:
                return Outcome.STOPPED
            if not self.not_ready():
                return Outcome.READY
            hopeless = any(gives_up(slot.failures, was_ready=slot.was_ready) for slot in self._slots.values())
            if hopeless or time.monotonic() >= deadline:
                return Outcome.FAILED
            self._sleep(_STARTING_POLL_S)

    def run_until_stopped(self) -> None:
        """Block, keeping every child alive, until SIGTERM or SIGINT."""
        while not self.stopping:
            self._tick()
            self._sleep(_STARTING_POLL_S if self.not_ready() else _IDLE_POLL_S)

    def stop(self) -> None:
        """Stop every child, wave by wave: SIGTERM to the whole wave, its grace, SIGKILL. Blocks until all are gone."""
        for wave in stop_waves(self._slots):
            slots = [self._slots[name] for name in wave]
            for slot in slots:
                if slot.process is not None:
                    log.info("process stopping", extra={"action": "process_stopping", "child": slot.child.name})
                    slot.process.terminate()
            deadline = time.monotonic() + max(slot.child.grace_s for slot in slots)
            for slot in slots:
                self._await_end(slot, deadline)

    def _tick(self) -> None:
        now_s = time.monotonic()
        if self._untold:
            self.tell()
        for slot in self._slots.values():
            if slot.process is None:
                if now_s >= slot.due_s:
                    self._start(slot)
            elif (code := slot.process.poll()) is not None:
                self._note_death(slot, code, now_s)
            elif not slot.ready and slot.child.is_ready(slot.process):
                slot.ready = slot.was_ready = True
                log.info("process ready", extra={"action": "process_ready", "child": slot.child.name})
                self.tell()

    def _start(self, slot: _Slot) -> None:
        slot.starts += 1
        slot.started_s = time.monotonic()
        slot.since_ms = int(time.time() * _MS)
        try:
            slot.process = slot.child.start()
            slot.birth = write_pid_file(self._home, slot.child.name, slot.process.pid)
        except (OSError, LaptopError) as error:
            self._start_failed(slot, error)
            return
        extra = {"action": "process_started", "child": slot.child.name, "child_pid": slot.process.pid}
        log.info("process started", extra=extra)
        self.tell()

    def _start_failed(self, slot: _Slot, error: Exception) -> None:
        """The disk or the system refused: no process without its pid file, or nobody could find it again."""
        if slot.process is not None:
            slot.process.kill()
            slot.process.wait()
            slot.process = None
        slot.failures = failures_after(slot.failures, alive_s=0.0)
        delay_s = restart_delay_s(slot.failures)
        slot.due_s = time.monotonic() + delay_s
        slot.why = f"could not be started: {error}"
        extra = {"action": "process_not_started", "child": slot.child.name, "why": slot.why, "restart_in_s": delay_s}
        log.warning("process not started", extra=extra)
        self.tell()

    def _note_death(self, slot: _Slot, code: int, now_s: float) -> None:
        slot.failures = failures_after(slot.failures, alive_s=now_s - slot.started_s)
        delay_s = restart_delay_s(slot.failures)
        slot.due_s = now_s + delay_s
        slot.why = slot.child.why(code)
        extra = {"action": "process_ended", "child": slot.child.name, "why": slot.why, "restart_in_s": delay_s}
        log.warning("process ended", extra=extra)
        self._forget(slot, code)
        self.tell()

    def _await_end(self, slot: _Slot, deadline: float) -> None:
        if slot.process is None:
            return
        try:
            code = slot.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            log.warning("process killed", extra={"action": "process_killed", "child": slot.child.name})
            slot.process.kill()
            code = slot.process.wait()
        self._forget(slot, code)
        self.tell()

    def tell(self) -> None:
        """Let the change be seen. A full disk does not end whoever keeps the others alive: it is told later."""
        try:
            self._changed()
        except OSError:
            self._untold = True
        else:
            self._untold = False

    def _forget(self, slot: _Slot, code: int) -> None:
        slot.process, slot.birth, slot.ready = None, None, False
        slot.since_ms = int(time.time() * _MS)
        with contextlib.suppress(OSError):
            _clean(self._home, [slot.child.name])
            slot.child.ended(code)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number != signal.SIGCHLD:
            self.stopping = True

    def _sleep(self, longest_s: float) -> None:
        due = [slot.due_s - time.monotonic() for slot in self._slots.values() if slot.process is None]
        patience_s = max(0.0, min([longest_s, *due]))
        if self._waker is None:
            time.sleep(patience_s)
        elif select.select([self._waker], [], [], patience_s)[0]:
            self._waker.recv(4096)


def stop_orphans(home: Home, *, grace_s: float = GRACE_S) -> list[str]:
    """Stop what a killed supervisor left running, wave by wave; returns the names. The caller holds the home's lock.

    A pid file counts only while a process with that pid and that time of birth runs.
    """
    names = [path.stem for path in sorted(home.run.glob("*.pid")) if path.stem != _SUPERVISOR]
    stopped = []
    for wave in stop_waves(names):
        marked = {name: pid for name in wave if (pid := read_pid_file(home, name)) and is_alive(*pid)}
        stop_all(list(marked.values()), grace_s=grace_s)
        stopped += list(marked)
        _clean(home, wave)
    return stopped


def _clean(home: Home, names: Sequence[str]) -> None:
    for name in names:
        home.pid_file(name).unlink(missing_ok=True)
        home.ready_file(name).unlink(missing_ok=True)
