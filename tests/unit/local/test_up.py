"""What `up` and `down` say and refuse before anything starts."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nightmill.local.errors import LaptopError
from nightmill.local.home import Home, open_home
from nightmill.local.options import UpOptions, is_external
from nightmill.local.processes import birth_of
from nightmill.local.status import LaptopState, write_state
from nightmill.local.supervision import Phase
from nightmill.local.up import down, up

MINE, OTHER = Path("/srv/mine"), Path("/srv/other")


@pytest.fixture
def supervisor() -> Iterator[int]:
    """The pid of a process that lives as long as the test."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.communicate(b"\n")


def running(root: Path, pid: int, config: Path | None) -> Home:
    """A home in which `pid` counts as a supervisor with everything ready."""
    home = open_home(root)
    state = LaptopState(
        supervisor_pid=pid,
        supervisor_birth=birth_of(pid),
        phase=Phase.READY,
        kafka="127.0.0.1:9092",
        api_port=1,
        model_port=None,
        config=None if config is None else str(config),
        processes=(),
    )
    write_state(home, state)
    return home


def asked(home: Home, config: Path | None, said: list[str]) -> UpOptions:
    return UpOptions(create_topics=lambda *_: None, home=home.root, config=config, detach=True, say=said.append)


@pytest.mark.parametrize("config", [None, MINE])
def test_what_runs_already_is_said(tmp_path: Path, supervisor: int, config: Path | None) -> None:
    home, said = running(tmp_path, supervisor, MINE), list[str]()
    assert up(asked(home, config, said)) == 0
    assert said == ["already running: ready: 0 of 0 processes ready"]


@pytest.mark.parametrize("before", [None, MINE])
def test_other_settings_than_those_that_run_are_refused(
    tmp_path: Path, supervisor: int, before: Path | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """O1: they would be passed over without a word, for settings are read at the start."""
    home, said = running(tmp_path, supervisor, before), list[str]()
    assert up(asked(home, OTHER, said)) == 2
    told = capsys.readouterr().err
    assert f"not of {OTHER}" in told
    assert f"nightmill down --home {tmp_path}, then up" in told
    assert said == []


def test_down_makes_no_home(tmp_path: Path) -> None:
    """O1: a mistyped folder stays what it was."""
    said: list[str] = []
    for root in (tmp_path / "typo", tmp_path):
        assert down(root, say=said.append) == 0
    assert said == [f"nothing runs in {tmp_path / 'typo'}", f"nothing runs in {tmp_path}"]
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("address", ["nope", "host:", ":9092", "host:0", "host:65536", "host:x"])
def test_an_address_that_names_no_broker_is_refused(address: str) -> None:
    with pytest.raises(LaptopError, match="is not local, docker or HOST:PORT"):
        is_external(address)


def test_an_address_of_a_broker_is_taken() -> None:
    assert [is_external(each) for each in ("local", "docker", "host:65535")] == [False, False, True]


def test_without_maven_the_step_says_what_is_missing(tmp_path: Path) -> None:
    """O1: a message and a remedy, no traceback."""
    environment = {"PATH": str(tmp_path), "NIGHTMILL_CACHE": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "nightmill.local.jars"], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: Maven (mvn) is not on PATH")
    assert "→ install Maven" in done.stderr
    assert "Traceback" not in done.stderr
