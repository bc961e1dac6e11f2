"""The supervisor over real processes: it restarts, gives up, stops in order, and cleans up after a killed one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import TypeVar

from nightmill.local.home import Home, is_marked_ready, open_home, write_pid_file
from nightmill.local.processes import is_alive, stop_all
from nightmill.local.status import ProcessState, ps, read_state
from nightmill.local.supervision import STARTS_BEFORE_GIVING_UP, Phase
from nightmill.local.supervisor import stop_orphans

_T = TypeVar("_T")
_PROGRAM = Path(__file__).with_name("supervisor_program.py")


@contextmanager
def supervising(home: Home, *names: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(_PROGRAM), str(home.root), *names]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
            stop_orphans(home, grace_s=0.2)


def until(ask: Callable[[], _T | None]) -> _T:
    """Ask until there is an answer; the suite's own timeout ends a wait in vain."""
    while (answer := ask()) is None:
        sleep(0.02)
    return answer


def find(home: Home, name: str, *, restarts: int = 0) -> ProcessState | None:
    """Return the process once it is ready after this many restarts."""
    return next((one for one in ps(home) if one.name == name and one.ready and one.restarts == restarts), None)


def test_a_killed_child_comes_back_and_the_others_stay(tmp_path: Path) -> None:
    home = open_home(tmp_path / "home")
    with supervising(home, "planner", "validator"):
        victim, bystander = until(lambda: find(home, "planner")), until(lambda: find(home, "validator"))
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGKILL)
        reborn = until(lambda: find(home, "planner", restarts=1))
        assert reborn.pid != victim.pid
        assert reborn.alive
        assert find(home, "validator") == bystander


def test_a_stop_goes_in_waves_and_leaves_nothing(tmp_path: Path) -> None:
    home = open_home(tmp_path / "home")
    with supervising(home, "broker", "model_server", "planner", "api") as process:
        until(lambda: True if (state := read_state(home)) and state.phase is Phase.READY else None)
        before = ps(home)
        process.terminate()
        assert process.wait() == 0
        assert (home.root / "stopped").read_text().split() == ["api", "planner", "model_server", "broker"]
        assert len(before) == 4
        assert not any(one.alive for one in before)
        assert list(home.run.glob("*.pid")) == []
        assert list(home.run.glob("*.ready")) == []


def test_a_child_that_hears_no_stop_is_killed(tmp_path: Path) -> None:
    home = open_home(tmp_path / "home")
    with supervising(home, "stubborn", "planner") as process:
        stubborn = until(lambda: find(home, "stubborn"))
        until(lambda: find(home, "planner"))
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0
        assert not stubborn.alive
        assert (home.root / "stopped").read_text().split() == ["planner"]


def test_a_child_that_never_gets_ready_ends_the_start(tmp_path: Path) -> None:
    home = open_home(tmp_path / "home")
    with supervising(home, "planner", "dies") as process:
        assert process.stdout is not None
        assert process.stdout.read().split() == ["failed"]
        assert process.wait() == 0
    log = (home.logs / "dies.log").read_text()
    assert log.splitlines() == ["no such setting: colour"] * STARTS_BEFORE_GIVING_UP


def test_orphans_of_a_killed_supervisor_are_stopped_in_order(tmp_path: Path) -> None:
    home = open_home(tmp_path / "home")
    with supervising(home, "broker", "planner", "api") as process:
        until(lambda: True if (state := read_state(home)) and state.phase is Phase.READY else None)
        process.kill()
        process.wait()
        orphans = ps(home)
        assert all(one.alive for one in orphans)
        state = read_state(home)
        assert state is not None
        assert not state.supervised
        assert stop_orphans(home) == ["api", "planner", "broker"]
        assert not any(one.alive for one in orphans)
        assert (home.root / "stopped").read_text().split() == ["api", "planner", "broker"]
        assert stop_orphans(home) == []


def test_a_pid_that_the_system_gave_to_another_process_is_left_alone(tmp_path: Path) -> None:
    home = open_home(tmp_path / "home")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        write_pid_file(home, "planner", stranger.pid)
        pid_file = home.pid_file("planner")
        pid_file.write_text(pid_file.read_text().replace('"birth": "', '"birth": "9'))
        assert stop_orphans(home) == []
        assert stranger.poll() is None
        assert not pid_file.exists()
        stranger.kill()


def test_a_zombie_is_gone_and_a_ready_file_of_another_pid_says_nothing(tmp_path: Path) -> None:
    home = open_home(tmp_path / "home")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        birth = write_pid_file(home, "planner", process.pid)
        assert is_alive(process.pid, birth)
        assert not is_alive(process.pid, None)
        assert stop_all([(process.pid, birth)], grace_s=5.0) == []
        assert not is_alive(process.pid, birth)
    home.ready_file("planner").write_text(str(process.pid))
    assert is_marked_ready(home, "planner", process.pid)
    assert not is_marked_ready(home, "planner", process.pid + 1)
