"""run/state.json: what the supervisor says about itself and its processes, for `ps` and `up --detach`."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace

from nightmill.local.home import Home, replace_text
from nightmill.local.processes import is_alive
from nightmill.local.supervision import Phase, progress_line

_FILE = "state.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """One supervised process as `ps` shows it. `pid` is None while it waits for its next start."""

    name: str
    pid: int | None
    birth: str | None
    ready: bool
    restarts: int
    since_ms: int
    #: why its last life ended by itself; None when none did
    ended: str | None = None

    @property
    def alive(self) -> bool:
        """Whether the process runs at this moment: asked of the system, not of the file."""
        return self.pid is not None and is_alive(self.pid, self.birth)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaptopState:
    """The whole file: the supervisor, where it stands, what it serves and its processes."""

    supervisor_pid: int
    supervisor_birth: str | None
    phase: Phase
    kafka: str
    api_port: int
    model_port: int | None
    embeddings_port: int | None = None
    #: the config folder that `up` was given; None: none was named
    config: str | None = None
    processes: tuple[ProcessState, ...]

    @property
    def supervised(self) -> bool:
        """Whether the supervisor that wrote the file is still there."""
        return is_alive(self.supervisor_pid, self.supervisor_birth)

    def progress(self) -> str:
        """Return one line about how far the start is."""
        ready = [process.name for process in self.processes if process.ready]
        return progress_line(self.phase, ready, {process.name for process in self.processes} - set(ready))


def write_state(home: Home, state: LaptopState) -> None:
    """Replace the file, readers see the old or the new one."""
    replace_text(home.run / _FILE, json.dumps(asdict(state), indent=1))


def read_state(home: Home) -> LaptopState | None:
    """Return what the last supervisor wrote, or None when there never was one (or its file is no longer readable)."""
    try:
        content = json.loads((home.run / _FILE).read_text(encoding="utf-8"))
        processes = tuple(ProcessState(**process) for process in content.pop("processes"))
        return LaptopState(processes=processes, **(content | {"phase": Phase(content["phase"])}))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def ps(home: Home) -> list[ProcessState]:
    """Return the processes that the last `up` of this home started; a dead one is not ready, whatever was written."""
    state = read_state(home)
    if state is None:
        return []
    return [process if process.alive else replace(process, ready=False) for process in state.processes]


def running_state(home: Home) -> LaptopState | None:
    """Return the state of the supervisor that runs now, or None when none does."""
    state = read_state(home)
    return state if state is not None and state.supervised and state.supervisor_pid != os.getpid() else None
