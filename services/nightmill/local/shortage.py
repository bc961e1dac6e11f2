"""What this machine lacks while the laptop runs, and why a process ended: for `ps`, `doctor` and the supervisor.

Asked of the system at the moment of asking, since on a full disk nobody can write down that it is full.
"""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

from nightmill.local.home import Home, log_path
from nightmill.local.supervision import BROKER

#: below this a broker or a database refuses work sooner or later
LITTLE_BYTES = 64 * 1024**2
_TAIL_BYTES = 16 * 1024
_MIB = 1024**2
_LINES = 5
#: of the last lines of the broker's log, those that say what was wrong
_BROKER_SIGNS = ("No space left", "Shutdown broker because all log dirs", "Too many open files", "FATAL", "ERROR")
_LETTERS = 300


def short_places(home: Home) -> list[str]:
    """A sentence for each of the home's disks that is full or nearly so: place, free bytes, remedy."""
    seen: set[int] = set()
    found = []
    for folder in places(home):
        try:
            device, short = folder.stat().st_dev, shortage_of(folder)
        except OSError:
            continue
        if device not in seen and short is not None:
            found.append(short)
        seen.add(device)
    return found


def shortage_of(folder: Path) -> str | None:
    """The sentence for this folder's disk, when it is full or nearly so; `OSError` where there is no such folder."""
    free = shutil.disk_usage(folder).free
    if free >= LITTLE_BYTES:
        return None
    return f"{folder} has {free / _MIB:.1f} MiB free: free space there, what waits goes on by itself"


def places(home: Home) -> list[Path]:
    """The home and its folders, each of which may be a disk of its own."""
    below = (home.broker, home.root / "state", home.outbox, home.blobs, home.ledger, home.results, home.logs, home.run)
    return [home.root, *below]


def why_ended(home: Home, name: str, code: int) -> str:
    """Why a process ended, in one line: a full disk, its own last words, else its exit code and where to look."""
    words = _last_words(home, name)
    if code < 0 and words is None:
        ended = f"ended by {signal.Signals(-code).name}"
    else:
        ended = f"exit code {code}: {words}" if words else f"exit code {code}; nightmill logs {name}"
    short = short_places(home) if code != 0 else []
    return "; ".join([ended, *short])


def _last_words(home: Home, name: str) -> str | None:
    lines = _tail(log_path(home, name))
    if name == BROKER:
        return next((line[:_LETTERS] for sign in _BROKER_SIGNS for line in reversed(lines) if sign in line), None)
    for line in reversed(lines[-_LINES:]):
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if isinstance(said, dict) and said.get("level") in ("error", "critical") and said.get("reason"):
            return str(said["reason"])
        return None
    return None


def _tail(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            return file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
