"""Hands out a real Kafka broker; the suites do not know which. Or one of a test's own, to be stopped and killed.

`NIGHTMILL_TEST_KAFKA` (HOST:PORT) if set; else a container where a Docker engine answers; else the Maven broker. The
last two are started once for a whole pytest run: its worker processes share a folder in which each leaves a file with
its pid, and the last one to leave stops the broker. What a killed run left behind is stopped by the next one.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from nightmill.local import docker, kafka
from nightmill.local.assets import kafka_folder
from nightmill.local.jars import resolve_jars
from nightmill.local.java import find_java
from nightmill.local.processes import LOOPBACK, birth_of, free_port, is_alive, locked, stop_all

_IMAGE = "apache/kafka:4.4.0"
_PREFIX = "nightmill-test-broker-"
_numbers = itertools.count(1)


@functools.cache
def bootstrap() -> str:
    """Return `HOST:PORT` of the broker of this test run; the first call may block while it starts."""
    if external := os.environ.get("NIGHTMILL_TEST_KAFKA"):
        kafka.wait_ready(external, None, timeout_s=10.0)
        return external
    with _locked():
        _stop_abandoned()
        return _join(_root() / f"{_PREFIX}{os.getuid()}-{_run_uid()}")


def namespace() -> str:
    """Return a prefix for topics, groups and transactional ids that no other test, worker or run has."""
    return f"t{uuid.uuid4().hex[:8]}-{next(_numbers)}"


class OwnBroker:
    """A broker that one test owns. It comes back with the same data at the same address."""

    def __init__(self, folder: Path) -> None:
        self._place = kafka.BrokerPlace(folder=folder, port=free_port(), controller_port=free_port())
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def bootstrap(self) -> str:
        """`HOST:PORT` for clients."""
        return self._place.bootstrap

    def start(self) -> None:
        """Block until it answers."""
        self._process = kafka.start_broker(self._place, java=find_java(), jars=resolve_jars())
        kafka.wait_ready(self._place.bootstrap, self._process)

    def kill(self) -> None:
        """As a power cut of the process: SIGKILL, and wait until it is gone."""
        self.send(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()

    def send(self, number: signal.Signals) -> None:
        """Send it a signal: SIGSTOP makes it deaf, SIGCONT lets it go on."""
        assert self._process is not None
        self._process.send_signal(number)


@contextmanager
def own_broker(folder: Path) -> Iterator[OwnBroker]:
    """A broker with its data in `folder`; it is gone at the end, whatever state it was left in."""
    broker = OwnBroker(folder)
    try:
        yield broker
    finally:
        broker.kill()


def _root() -> Path:
    return Path(tempfile.gettempdir())


def _locked() -> AbstractContextManager[None]:
    # One lock for all runs of this user, outside their folders: who waits for it must not see its folder vanish.
    return locked(_root() / f"{_PREFIX}{os.getuid()}.lock")


def _run_uid() -> str:
    return os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"{os.getpid()}-{birth_of(os.getpid())}"


def _join(folder: Path) -> str:
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / f"user-{os.getpid()}").write_text(birth_of(os.getpid()) or "", encoding="utf-8")
    atexit.register(_leave, folder)
    described = _read(folder)
    if not described or not kafka.answers(str(described["bootstrap"])):
        described = _start_container() if docker.engine_answers() else _start_maven(folder)
        (folder / "broker.json").write_text(json.dumps(described), encoding="utf-8")
    return str(described["bootstrap"])


def _leave(folder: Path) -> None:
    with _locked():
        (folder / f"user-{os.getpid()}").unlink(missing_ok=True)
        if not _users(folder):
            _stop(folder)


def _stop_abandoned() -> None:
    for folder in _root().glob(f"{_PREFIX}{os.getuid()}-*"):
        if not _users(folder):
            _stop(folder)


def _users(folder: Path) -> list[Path]:
    files = {file: file.read_text(encoding="utf-8") for file in folder.glob("user-*")}
    return [file for file, birth in files.items() if is_alive(int(file.name.removeprefix("user-")), birth)]


def _start_maven(folder: Path) -> Mapping[str, object]:
    place = kafka.BrokerPlace(
        folder=folder / f"broker-{uuid.uuid4().hex[:6]}", port=free_port(), controller_port=free_port()
    )
    process = kafka.start_broker(place, java=find_java(), jars=resolve_jars())
    try:
        kafka.wait_ready(place.bootstrap, process)
    except BaseException:
        kafka.stop_broker(place, process)
        raise
    birth = birth_of(process.pid)
    # Another worker may stop it: this one must not be asked at exit why it never waited.
    process.returncode = 0
    return {"bootstrap": place.bootstrap, "pid": process.pid, "birth": birth}


def _start_container() -> Mapping[str, object]:
    from testcontainers.core.config import testcontainers_config
    from testcontainers.core.container import DockerContainer

    # Its reaper would stop the container with the worker that started it, while others still use it.
    testcontainers_config.ryuk_disabled = True
    port = free_port()
    address = f"{LOOPBACK}:{port}"
    container = (
        DockerContainer(_IMAGE)
        .with_volume_mapping(str(kafka_folder() / "server.properties"), "/mnt/shared/config/server.properties", "ro")
        .with_env("KAFKA_LISTENERS", f"BROKER://:{port},CONTROLLER://{LOOPBACK}:19093")
        .with_env("KAFKA_ADVERTISED_LISTENERS", f"BROKER://{address}")
        .with_env("KAFKA_CONTROLLER_QUORUM_VOTERS", f"1@{LOOPBACK}:19093")
        .with_bind_ports(port, port)
        .start()
    )
    kafka.wait_ready(address, None)
    return {"bootstrap": address, "container": container.get_wrapped_container().id}


def _read(folder: Path) -> Mapping[str, object] | None:
    try:
        described = json.loads((folder / "broker.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return described if isinstance(described, dict) else None


def _stop(folder: Path) -> None:
    match _read(folder):
        case {"pid": int(pid), "birth": str(birth)}:
            stop_all([(pid, birth)], grace_s=kafka.STOP_TIMEOUT_S)
        case {"container": str(container)}:
            subprocess.run(["docker", "rm", "--force", "--volumes", container], capture_output=True, check=False)
    shutil.rmtree(folder, ignore_errors=True)
