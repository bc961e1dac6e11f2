"""The home folder: everything one laptop installation keeps, private to its user, and used by one supervisor."""

from __future__ import annotations

import errno
import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from nightmill.local.errors import LaptopError
from nightmill.local.processes import birth_of, is_alive, try_lock
from nightmill.local.supervision import BROKER

_PRIVATE = 0o700
_PROBE_BYTES = 4096
_LAST_BREATH_S = 10.0
_LOOK_S = 0.05
_REMEDIES = {
    errno.ENOSPC: "free space there, or name a folder on another disk with --home",
    errno.EDQUOT: "free space there or raise the quota, or name a folder on another disk with --home",
    errno.EROFS: "it lies on a read-only disk: name a folder that can be written with --home",
    errno.ENOTDIR: "a file stands where a folder is wanted: name another folder with --home",
    errno.EEXIST: "a file stands where a folder is wanted: name another folder with --home",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The layout below one root folder. Makes nothing; `open_home` does."""

    root: Path

    @property
    def broker(self) -> Path:
        """The Kafka node's folder: data, settings, log."""
        return self.root / "broker"

    def state(self, service: str) -> Path:
        """The local tables of one service: a cache of Kafka that may be deleted."""
        return self.root / "state" / service

    @property
    def outbox(self) -> Path:
        """Staged provider answers."""
        return self.root / "outbox"

    @property
    def blobs(self) -> Path:
        """Content-addressed blocks."""
        return self.root / "blobs"

    @property
    def ledger(self) -> Path:
        """The embedded ClickHouse."""
        return self.root / "ledger"

    @property
    def results(self) -> Path:
        """Published datasets of the `files` target."""
        return self.root / "results"

    @property
    def logs(self) -> Path:
        """One log file a process."""
        return self.root / "logs"

    @property
    def run(self) -> Path:
        """Pid files, ready files, ports, the supervisor's state."""
        return self.root / "run"

    @property
    def token(self) -> Path:
        """The bearer token of the api (mode 600, made by the api)."""
        return self.root / "token"

    def ready_file(self, service: str) -> Path:
        """The file by which a process says that it is ready: it holds the process's pid."""
        return self.run / f"{service}.ready"

    def pid_file(self, name: str) -> Path:
        """The file by which a later supervisor finds the process again."""
        return self.run / f"{name}.pid"


def log_path(home: Home, name: str) -> Path:
    """Return the log of one process of the laptop: a service, `broker`, `supervisor` or a model server."""
    return home.broker / "broker.log" if name == BROKER else home.logs / f"{name}.log"


def default_root() -> Path:
    """Return the home that is used when none is named: `NIGHTMILL_HOME`, else the user's data folder."""
    return Path(os.environ.get("NIGHTMILL_HOME") or platformdirs.user_data_dir("nightmill", appauthor=False))


def open_home(root: Path | None = None) -> Home:
    """Return the home below `root`, with its folders made (mode 700); raise `LaptopError` if it cannot be written."""
    home = Home(root=(root or default_root()).expanduser().absolute())
    folders = [home.root, home.broker, home.root / "state", home.outbox, home.blobs, home.ledger]
    try:
        for folder in [*folders, home.results, home.logs, home.run]:
            folder.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        home.root.chmod(_PRIVATE)
        # A folder may exist on a disk that is full or read-only: only a write tells.
        with tempfile.NamedTemporaryFile(dir=home.run, prefix="probe-") as probe:
            probe.write(bytes(_PROBE_BYTES))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        raise LaptopError(
            f"cannot write to the home folder {home.root}: {error.strerror}",
            remedy=_REMEDIES.get(error.errno or 0, "fix its rights, or name another folder with --home"),
        ) from error
    return home


def lock_home(home: Home) -> int:
    """Take the home for one supervisor and return the lock's descriptor, which is freed when the process ends.

    Raises `LaptopError` when somebody has it; one who was killed lets go of it a moment after it counts as gone.
    """
    give_up_s = time.monotonic() + _LAST_BREATH_S
    while (descriptor := try_lock(home.root / "lock")) is None:
        holder = read_pid_file(home, "supervisor")
        if holder is None or is_alive(*holder) or time.monotonic() >= give_up_s:
            owner = f" by the supervisor with pid {holder[0]}" if holder else ""
            raise LaptopError(
                f"the home folder {home.root} is already in use{owner}",
                remedy=f"nightmill down --home {home.root}, or name another folder with --home",
            )
        time.sleep(_LOOK_S)
    return descriptor


def write_pid_file(home: Home, name: str, pid: int) -> str | None:
    """Remember a process by pid and time of birth; returns the birth mark (None when it is already gone)."""
    birth = birth_of(pid)
    replace_text(home.pid_file(name), json.dumps({"pid": pid, "birth": birth}))
    return birth


def read_pid_file(home: Home, name: str) -> tuple[int, str | None] | None:
    """Return (pid, birth mark) of a remembered process, or None; a torn or foreign file counts as none."""
    try:
        content = json.loads(home.pid_file(name).read_text(encoding="utf-8"))
        return int(content["pid"]), content["birth"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def mark_ready(home: Home, service: str) -> None:
    """Say, from inside a service's process, that it is ready."""
    replace_text(home.ready_file(service), str(os.getpid()))


def is_marked_ready(home: Home, service: str, pid: int) -> bool:
    """Return whether the process `pid` has said that it is ready; what an earlier process said does not count."""
    try:
        return home.ready_file(service).read_text(encoding="utf-8").strip() == str(pid)
    except OSError:
        return False


def replace_text(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old or the new text, never a half."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(path)
