"""An installation with a broker of its own, and what can be done to its processes."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chaos.plan import GATEWAY, SUPERVISOR, Fault, Kind
from chaos.watch import Watch, now_ms
from kit.laptop import Laptop
from nightmill.client import Client
from nightmill.local.home import Home
from nightmill.local.options import service_command
from nightmill.local.status import running_state

_UP_TIMEOUT_S = 300.0
_STOP_S = 20.0
#: a second instance that has left keeps its partitions until its session (6 s) has run out
_SESSION_S = 7.0


class NotStarted(Exception):
    """`nightmill up` failed; the text is what it said."""


class Installation:
    """`up`, faults, `down`. Every process of it is its own: no other test uses its broker."""

    def __init__(self, folder: Path, base_url: str, *, slots: int) -> None:
        self.laptop = Laptop(folder, base_url, slots=slots)
        self.home = Home(root=self.laptop.home)

    def up(self) -> None:
        """Start everything, or what a power cut left. Raises `NotStarted`."""
        arguments = ("up", "--detach", "--kafka", "local", "--config", self.laptop.config)
        done = self.laptop.cli(*arguments, timeout_s=_UP_TIMEOUT_S)
        if done.returncode != 0:
            raise NotStarted(done.stdout + done.stderr + self.laptop.log_tails())

    def down(self) -> None:
        """Stop everything in order, also what has lost its supervisor."""
        self.laptop.cli("down")

    def client(self) -> Client:
        """To be closed by the caller."""
        return Client(self.laptop.home)

    def pids(self) -> dict[str, int]:
        """All processes that run now, the supervisor first."""
        state = running_state(self.home)
        if state is None:
            return {}
        found = {each.name: each.pid for each in state.processes if each.pid is not None and each.alive}
        return {SUPERVISOR: state.supervisor_pid, **found}

    @contextmanager
    def befallen(self, fault: Fault, watch: Watch, *, pause_s: float) -> Iterator[list[int]]:
        """Carry the fault out, and undo in the end what it left; yields when a gateway's calls were cut off, if any."""
        match fault.kind:
            case Kind.KILL:
                yield self._kill(fault.victims, watch)
            case Kind.POWER_CUT:
                cut = self._kill(tuple(self.pids()), watch)
                self.up()
                yield cut
            case Kind.PAUSE:
                yield self._pause(fault.victims[0], pause_s)
            case Kind.ZOMBIE:
                name = fault.victims[0]
                with self._second(name) as second:
                    # it may start nothing any more, so its calls are lost now and not when it finds out
                    watch.killed(name, self.pids()[name], now_ms())
                    yield self._pause(name, pause_s, second)

    def keep_logs(self, folder: Path) -> Path:
        """Copy the logs to where they outlive the installation."""
        shutil.copytree(self.home.logs, folder / "logs", dirs_exist_ok=True)
        for name in ("broker.log", "broker.out"):
            if (self.home.broker / name).exists():
                shutil.copy(self.home.broker / name, folder / "logs" / name)
        return folder / "logs"

    def _kill(self, names: tuple[str, ...], watch: Watch) -> list[int]:
        """SIGKILL, all within a moment."""
        running = self.pids()
        pids = {name: running[name] for name in names if name in running}
        at_ms = now_ms()
        for pid in pids.values():
            os.kill(pid, signal.SIGKILL)
        for name, pid in pids.items():
            watch.killed(name, pid, at_ms)
        return [at_ms] if GATEWAY in pids else []

    def _pause(self, name: str, pause_s: float, start: "_Second | None" = None) -> list[int]:
        pid, at_ms = self.pids()[name], now_ms()
        os.kill(pid, signal.SIGSTOP)
        try:
            if start is not None:
                start.start()
            time.sleep(pause_s)
        finally:
            os.kill(pid, signal.SIGCONT)
        return [at_ms] if name == GATEWAY else []

    @contextmanager
    def _second(self, name: str) -> Iterator["_Second"]:
        second = _Second(self, name)
        try:
            yield second
        finally:
            second.stop()
            time.sleep(_SESSION_S)


class _Second:
    """A second instance of a service, as another host would run it."""

    def __init__(self, installation: Installation, name: str) -> None:
        self._installation, self._name = installation, name
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it joins the group and waits for the session of the other to run out."""
        laptop, state = self._installation.laptop, running_state(self._installation.home)
        assert state is not None, "nothing runs"
        own = {
            "NIGHTMILL_KAFKA": state.kafka,
            "NIGHTMILL_CONFIG": str(laptop.config),
            "NIGHTMILL_INSTANCE": "second",
        }
        with (self._installation.home.logs / f"{self._name}-second.log").open("ab") as output:
            command = service_command(self._name)
            self._process = subprocess.Popen(command, stdout=output, stderr=output, env=laptop.environment | own)

    def stop(self) -> None:
        """End it in order; nothing when it was not started."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
