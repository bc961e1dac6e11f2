"""What the laptop is made of: the broker, the model server and the services, each as a `Child` to supervise."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from nightmill.local import kafka
from nightmill.local.errors import LaptopError
from nightmill.local.home import Home, is_marked_ready, log_path
from nightmill.local.java import Java
from nightmill.local.mending import start_mending
from nightmill.local.model_server import is_healthy
from nightmill.local.processes import birth_of
from nightmill.local.shortage import shortage_of, why_ended
from nightmill.local.supervision import BROKER, EMBEDDINGS_SERVER, MODEL_SERVER
from nightmill.local.supervisor import Child

_ROTATE_BYTES = 8 * 1024 * 1024
_KEPT_LOGS = 3
_TAIL_LETTERS = 1200
_ANSWER_TIMEOUT_S = 0.5
#: an idle slot of a provider is lost, one whose lease comes late too, and every item passes the dispatcher three times
_PROMPT = frozenset({"dispatcher", "provider_gateway", "rate_governor"})
_NICE = 5  #: all others catch up


def log_tail(home: Home, name: str) -> str:
    """Return the last lines of a process's log; empty when it wrote none."""
    if name == BROKER:
        return kafka.log_tail(home.broker)
    try:
        return log_path(home, name).read_text(encoding="utf-8", errors="replace").rstrip()[-_TAIL_LETTERS:]
    except OSError:
        return ""


def broker_child(home: Home, place: kafka.BrokerPlace, *, java: Java, jars: Sequence[Path]) -> Child:
    """The Maven broker: ready when it answers; a restart uses the same ports, so that clients find it again."""
    return Child(
        name=BROKER,
        start=lambda: _start_broker(home, place, java=java, jars=jars),
        is_ready=lambda _: kafka.answers(place.bootstrap, timeout_s=_ANSWER_TIMEOUT_S),
        grace_s=kafka.STOP_TIMEOUT_S,
        why=lambda code: why_ended(home, BROKER, code),
        ended=lambda code: kafka.keep_class_archive(place, code),
    )


def model_server_child(home: Home, port: int) -> Child:
    """The local model: ready when its health page says so."""
    return _model_child(home, MODEL_SERVER, port)


def embeddings_server_child(home: Home, port: int) -> Child:
    """The local embeddings model, the same server in a process of its own."""
    return _model_child(home, EMBEDDINGS_SERVER, port, "--embeddings")


def _model_child(home: Home, name: str, port: int, *options: str) -> Child:
    command = [sys.executable, "-m", "nightmill.local.model_server", "--port", str(port), *options]
    return Child(
        name=name,
        start=lambda: start_logged(home, name, command, os.environ),
        is_ready=lambda _: is_healthy(port, timeout_s=_ANSWER_TIMEOUT_S),
    )


def service_child(home: Home, name: str, command: Sequence[str], environment: Mapping[str, str]) -> Child:
    """One service: ready when its process has written its own pid into its ready file (`home.mark_ready`)."""
    return Child(
        name=name,
        start=lambda: _start_service(home, name, command, environment),
        is_ready=lambda process: is_marked_ready(home, name, process.pid),
        why=lambda code: why_ended(home, name, code),
    )


def _start_broker(home: Home, place: kafka.BrokerPlace, *, java: Java, jars: Sequence[Path]) -> subprocess.Popen[bytes]:
    """Not on a full disk: there Kafka cuts its sound metadata log down to nothing, and then has no topics any more."""
    if (short := shortage_of(home.broker)) is not None:
        raise LaptopError(short, remedy="on a full disk Kafka would lose its topics")
    process = kafka.start_broker(place, java=java, jars=jars)
    start_mending(place.bootstrap, process.pid, birth_of(process.pid))
    return process


def _start_service(
    home: Home, name: str, command: Sequence[str], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    process = start_logged(home, name, command, environment)
    if name not in _PROMPT:
        with suppress(ProcessLookupError):  # it has ended already, and the supervisor will see that
            os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
    return process


def start_logged(
    home: Home, name: str, command: Sequence[str], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own whose output goes to its log, which is rotated by size first."""
    path = log_path(home, name)
    rotate(path)
    with path.open("ab") as output:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, start_new_session=True
        )


def rotate(path: Path, *, over_bytes: int = _ROTATE_BYTES) -> None:
    """Move a log that has grown too big to `.1`, older ones one number up; the oldest is dropped."""
    if not path.exists() or path.stat().st_size < over_bytes:
        return
    for number in range(_KEPT_LOGS - 1, 0, -1):
        older = path.with_name(f"{path.name}.{number}")
        if older.exists():
            older.replace(path.with_name(f"{path.name}.{number + 1}"))
    path.replace(path.with_name(f"{path.name}.1"))
