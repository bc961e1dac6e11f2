"""Small tools for processes of this machine: is it still that one, stop it, free ports, file locks.

A pid alone proves nothing, since the system gives it away again. So a process is remembered with the time of its
start, and only a process with both is taken to be ours.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

LOOPBACK = "127.0.0.1"
_POLL_S = 0.05


def birth_of(pid: int) -> str | None:
    """Return a mark of the start of the running process `pid`, or None when there is none (a zombie is none)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None if Path("/proc/self").exists() else _birth_from_ps(pid)
    state, start_ticks = fields[0], fields[19]
    return None if state in "ZX" else start_ticks


def _birth_from_ps(pid: int) -> str | None:
    answer = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False, timeout=10
    )
    state, _, started = answer.stdout.strip().partition(" ")
    return None if not state or state.startswith("Z") else started.strip()


def is_alive(pid: int, birth: str | None) -> bool:
    """Return whether `pid` runs and is the process that `birth_of` marked with `birth`."""
    return birth is not None and birth_of(pid) == birth


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal; a process that is already gone is no error."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def stop_all(marked: Sequence[tuple[int, str | None]], *, grace_s: float) -> list[int]:
    """Stop processes in parallel: SIGTERM, up to `grace_s` of patience, then SIGKILL. Blocks until all are gone.

    Returns the pids that had to be killed. For processes that are not children of the caller; a child must be
    reaped by its parent's own `Popen`, but a zombie already counts as gone.
    """
    left = [(pid, birth) for pid, birth in marked if is_alive(pid, birth)]
    for pid, _ in left:
        send(pid, signal.SIGTERM)
    left = _wait_gone(left, grace_s)
    for pid, _ in left:
        send(pid, signal.SIGKILL)
    _wait_gone(left, grace_s)
    return [pid for pid, _ in left]


def _wait_gone(marked: list[tuple[int, str | None]], patience_s: float) -> list[tuple[int, str | None]]:
    deadline = time.monotonic() + patience_s
    left = marked
    while left := [(pid, birth) for pid, birth in left if is_alive(pid, birth)]:
        if time.monotonic() >= deadline:
            break
        time.sleep(_POLL_S)
    return left


def descriptor_limit() -> int:
    """Return how many files and connections a process that this one starts may open, after `raise_descriptor_limit`."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


def raise_descriptor_limit(most: int) -> None:
    """Let this process and those it starts open `most` files, or as many as the system allows without a person."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most if hard == resource.RLIM_INFINITY else min(most, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def free_port() -> int:
    """Return a loopback port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def port_is_free(port: int) -> bool:
    """Return whether this process could listen on the loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def try_lock(path: Path) -> int | None:
    """Take the lock file without waiting: its descriptor (closing it, or dying, gives it back), or None if taken."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file for the block; waits for whoever holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
