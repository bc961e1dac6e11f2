"""Starts, watches and kills the processes of `member.py`."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from conformance.member import Journal
from conformance.recorder import Stage
from kit.patience import PATIENCE_S
from nightmill.kernel.runtime.kafka import KafkaLog

_PAUSE_S = 0.05
_TESTS = Path(__file__).parents[1]


@dataclass
class Children:
    """Members of one installation, each a process; all are gone when `kill_all` returns."""

    bootstrap: str
    namespace: str
    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def stage(self) -> Stage:
        """The same installation, seen from the test."""
        return Stage(KafkaLog(self.bootstrap, self.namespace, 2), self.folder)

    def start(self, instance: str, *orders: str) -> None:
        """A first or further life of an instance, on the state it left."""
        command = [sys.executable, "-m", "conformance.member", self.bootstrap, self.namespace, instance]
        self.processes[instance] = subprocess.Popen(
            [*command, str(self.folder), *orders],
            env={**os.environ, "PYTHONPATH": str(_TESTS)},
            stdin=subprocess.DEVNULL,
        )

    def lines(self, instance: str) -> list[str]:
        """What an instance noted, over all its lives."""
        return Journal(self.folder / f"journal-{instance}").lines()

    def await_line(self, instance: str, line: str, *, times: int = 1) -> None:
        """Wait until an instance has noted `line` so many times."""
        await_true(lambda: self.lines(instance).count(line) >= times, f"{instance}: {line}")

    def await_end(self, instance: str) -> int:
        """Wait until a process has ended by itself; returns its code (-9 for SIGKILL)."""
        return self.processes[instance].wait(PATIENCE_S)

    def kill(self, instance: str) -> None:
        """`kill -9`."""
        self.processes[instance].kill()
        self.processes[instance].wait()

    def kill_all(self) -> None:
        for instance in self.processes:
            self.kill(instance)

    def keep_alive(self, instance: str, done: Callable[[], bool]) -> None:
        """What the supervisor does: start again what has ended, until `done`."""

        def turn() -> bool:
            if self.processes[instance].poll() is not None:
                self.start(instance)
            return done()

        await_true(turn, f"{instance} to get there")


def await_true(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(_PAUSE_S)
