"""A whole laptop with a real broker of its own and two small services: up, kill, up again, down."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib import util
from pathlib import Path
from time import sleep
from types import ModuleType
from typing import TypeVar

import pytest
from confluent_kafka.admin import AdminClient

from nightmill.local.doctor import check_running
from nightmill.local.home import Home, open_home
from nightmill.local.kafka import answers
from nightmill.local.options import UpOptions
from nightmill.local.status import ProcessState, ps, read_state, running_state
from nightmill.local.supervision import Phase
from nightmill.local.up import down, up

_T = TypeVar("_T")
_PROGRAM = Path(__file__).parents[1] / "unit" / "local" / "laptop_program.py"
_TOPIC = "kept-over-restarts"


def load_program() -> ModuleType:
    spec = util.spec_from_file_location("laptop_program", _PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    opened = open_home(tmp_path / "home")
    yield opened
    down(opened.root)


def options(home: Home, kafka: str = "local") -> UpOptions:
    chosen = load_program().options_for(home.root, kafka, _TOPIC, detach=True)
    assert isinstance(chosen, UpOptions)
    return chosen


def until(ask: Callable[[], _T | None]) -> _T:
    """Ask until there is an answer; the suite's own timeout ends a wait in vain."""
    while (answer := ask()) is None:
        sleep(0.05)
    return answer


def process(home: Home, name: str) -> ProcessState:
    return next(one for one in ps(home) if one.name == name)


def reborn(home: Home, name: str) -> ProcessState | None:
    one = process(home, name)
    return one if one.ready and one.restarts == 1 else None


def topics(home: Home) -> set[str]:
    state = read_state(home)
    assert state is not None
    return set(AdminClient({"bootstrap.servers": state.kafka}).list_topics(timeout=10).topics)


def test_a_laptop_starts_survives_kills_and_goes_on_where_it_stopped(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    """A killed service and a killed broker come back; `down` and `up` keep topics, addresses and data."""
    assert up(options(home)) == 0
    assert "ready: 3 of 3 processes ready" in capsys.readouterr().out
    assert [one.name for one in ps(home)] == ["broker", "planner", "api"]
    assert _TOPIC in topics(home)
    assert check_running(home).detail.startswith("answers at 127.0.0.1:")

    for name in ("planner", "broker"):
        pid = process(home, name).pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        assert until(partial(reborn, home, name)).pid != pid
    assert process(home, "api").restarts == 0
    assert _TOPIC in topics(home)

    first = running_state(home)
    assert first is not None
    assert up(options(home)) == 0
    assert "already running" in capsys.readouterr().out

    assert down(home.root) == 0
    assert running_state(home) is None
    assert not any(one.alive for one in first.processes)
    assert not answers(first.kafka)
    assert (home.root / "stopped").read_text().split() == ["api", "planner"]

    assert up(options(home)) == 0
    second = running_state(home)
    assert second is not None
    assert (second.kafka, second.api_port) == (first.kafka, first.api_port)
    assert _TOPIC in topics(home)


def test_up_after_a_killed_supervisor_stops_its_orphans_first(home: Home) -> None:
    assert up(options(home)) == 0
    state = running_state(home)
    assert state is not None
    os.kill(state.supervisor_pid, signal.SIGKILL)
    until(lambda: True if running_state(home) is None else None)
    assert all(one.alive for one in state.processes)

    assert up(options(home)) == 0
    assert not any(one.alive for one in state.processes)
    assert all(one.ready for one in ps(home))
    assert (home.root / "stopped").read_text().split() == ["api", "planner"]
    assert _TOPIC in topics(home)


def test_down_after_a_killed_supervisor_leaves_nothing(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert up(options(home)) == 0
    state = running_state(home)
    assert state is not None
    os.kill(state.supervisor_pid, signal.SIGKILL)
    assert down(home.root) == 0
    assert "stopped what was left running: api, planner, broker" in capsys.readouterr().out
    assert not any(one.alive for one in state.processes)
    assert down(home.root) == 0
    assert "nothing runs in" in capsys.readouterr().out


def test_a_laptop_in_the_foreground_stops_in_order_on_ctrl_c(home: Home) -> None:
    command = [sys.executable, str(_PROGRAM), str(home.root), "local", _TOPIC]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as foreground:
        until(lambda: True if (state := read_state(home)) and state.phase is Phase.READY else None)
        before = ps(home)
        foreground.send_signal(signal.SIGINT)
        output, _ = foreground.communicate()
    assert foreground.returncode == 0
    assert output.splitlines()[-2:] == ["stopping", "stopped"]
    assert not any(one.alive for one in before)
    assert (home.root / "stopped").read_text().split() == ["api", "planner"]


def test_an_external_broker_is_used_and_left_alone(home: Home) -> None:
    from kit.broker import bootstrap

    assert up(options(home, bootstrap())) == 0
    assert [one.name for one in ps(home)] == ["planner", "api"]
    assert down(home.root) == 0
    assert answers(bootstrap())


def test_a_broker_that_is_not_there_is_named(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert up(options(home, "127.0.0.1:1")) == 2
    assert "no Kafka broker answers at 127.0.0.1:1" in capsys.readouterr().err
    assert ps(home) == []
