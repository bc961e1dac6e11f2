"""The broker of a laptop: one real Apache Kafka node (KRaft) as a Java process on loopback.

Formats its folder once, starts, waits until the broker answers with itself as a live member, and stops in order.
The first run trains a class-data archive when it ends, which later runs start from (about a second faster); an
archive that does not fit is ignored by Java, so it is never a reason to fail.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import struct
import subprocess
import time
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from nightmill.local.assets import kafka_folder
from nightmill.local.errors import LaptopError
from nightmill.local.jars import jars_folder
from nightmill.local.java import Java
from nightmill.local.processes import LOOPBACK

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
_FORMAT_TIMEOUT_S = 120
# The first compiler alone: measured on two cores, the second one doubled the CPU per record for the first 15 s.
_MEMORY = ("-Xmx512m", "-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_POLL_S = 0.1
_METADATA = 3
_LOG_TAIL_LETTERS = 600
#: Java ends with 128 + SIGTERM after an orderly stop.
_CLEAN_EXITS = (0, 143)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlace:
    """Where one broker lives: its folder (data, settings, log) and its two loopback ports."""

    folder: Path
    port: int
    controller_port: int

    @property
    def bootstrap(self) -> str:
        """`HOST:PORT` for clients."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def data(self) -> Path:
        """The folder of Kafka's own files."""
        return self.folder / "data"

    @property
    def log(self) -> Path:
        """The broker's log: warnings and errors."""
        return self.folder / "broker.log"


def render_settings(base: str, place: BrokerPlace) -> str:
    """Return the settings file of one broker: the shared settings, then its listeners, voter and data folder."""
    own = {
        "listeners": f"BROKER://{LOOPBACK}:{place.port},CONTROLLER://{LOOPBACK}:{place.controller_port}",
        "advertised.listeners": f"BROKER://{LOOPBACK}:{place.port}",
        "controller.quorum.voters": f"1@{LOOPBACK}:{place.controller_port}",
        # A backslash is an escape in a properties file.
        "log.dirs": str(place.data).replace("\\", "\\\\"),
    }
    return base.rstrip() + "\n\n" + "".join(f"{key}={value}\n" for key, value in own.items())


def java_command(
    *, java: Java, jars: Sequence[Path], options: Sequence[str], main: str, arguments: Sequence[str]
) -> list[str]:
    """Return the command line of a Java program; every jar is named, since a wildcard voids a class-data archive."""
    class_path = os.pathsep.join(str(jar) for jar in jars)
    return [str(java.executable), *_MEMORY, *options, "-cp", class_path, main, *arguments]


def start_broker(place: BrokerPlace, *, java: Java, jars: Sequence[Path]) -> subprocess.Popen[bytes]:
    """Start the broker in a session of its own, so that a Ctrl-C in the terminal does not reach it. Does not wait."""
    place.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings = place.folder / "server.properties"
    base = (kafka_folder() / "server.properties").read_text(encoding="utf-8")
    settings.write_text(render_settings(base, place), encoding="utf-8")
    _format(place, settings, java=java, jars=jars)
    command = java_command(
        java=java,
        jars=jars,
        options=[*_logging(place), *_class_archive(place, java)],
        main="kafka.Kafka",
        arguments=[str(settings)],
    )
    with (place.folder / "broker.out").open("wb") as output:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=place.folder, start_new_session=True
        )


def wait_ready(bootstrap: str, process: subprocess.Popen[bytes] | None, *, timeout_s: float = READY_TIMEOUT_S) -> None:
    """Block until a broker at `bootstrap` names at least one live member; raise `LaptopError` if it dies or is late."""
    deadline = time.monotonic() + timeout_s
    while not answers(bootstrap):
        if process is not None and process.poll() is not None:
            raise LaptopError(
                f"the broker ended with code {process.returncode} while starting",
                remedy="see broker.out and broker.log in its folder",
            )
        if time.monotonic() >= deadline:
            raise LaptopError(
                f"no Kafka broker answers at {bootstrap} after {timeout_s:.0f} s",
                remedy="check the address and its log",
            )
        time.sleep(_POLL_S)


def answers(bootstrap: str, *, timeout_s: float = 2.0) -> bool:
    """Return whether a Kafka broker answers at `HOST:PORT` and is not fenced. One small metadata request, no client."""
    host, _, port = bootstrap.rpartition(":")
    # Request header v1 (api, version, correlation id, client id), then an empty list of topics.
    client = b"nightmill"
    body = struct.pack(f">hhih{len(client)}si", _METADATA, 1, 1, len(client), client, 0)
    try:
        with socket.create_connection((host, int(port)), timeout=timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            head = _receive(connection, 12)
    except OSError:
        return False
    # Length, correlation id, number of live brokers.
    return len(head) == 12 and struct.unpack(">iii", head)[2] > 0


def stop_broker(place: BrokerPlace, process: subprocess.Popen[bytes], *, timeout_s: float = STOP_TIMEOUT_S) -> None:
    """Stop in order: SIGTERM, wait for the clean shutdown, SIGKILL when it does not come. Blocks until it is gone."""
    process.terminate()
    try:
        code = process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    keep_class_archive(place, code)


def keep_class_archive(place: BrokerPlace, code: int) -> None:
    """Put the class-data archive of a first run where later runs look for it, if that run ended in order."""
    for trained in place.folder.glob("*.jsa"):
        if code in _CLEAN_EXITS:
            # The cache may lie on another disk.
            shutil.move(trained, scratch := jars_folder() / f"{trained.name}.{os.getpid()}")
            scratch.replace(jars_folder() / trained.name)
        else:
            trained.unlink()


def log_tail(folder: Path) -> str:
    """Return the end of what the broker in this folder printed or logged, for an error message."""
    for path in (folder / "broker.out", folder / "broker.log"):
        if path.exists() and (text := path.read_text(encoding="utf-8", errors="replace").strip()):
            return text[-_LOG_TAIL_LETTERS:]
    return ""


def _format(place: BrokerPlace, settings: Path, *, java: Java, jars: Sequence[Path]) -> None:
    if (place.data / "meta.properties").exists():
        return
    arguments = ["format", "--ignore-formatted", "-t", _cluster_id(), "-c", str(settings)]
    command = java_command(
        java=java, jars=jars, options=_logging(place), main="kafka.tools.StorageTool", arguments=arguments
    )
    done = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_FORMAT_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        reason = (done.stderr or done.stdout).strip()[-_LOG_TAIL_LETTERS:]
        raise LaptopError(f"cannot format the broker's folder {place.data}: {reason}", remedy="check disk and rights")


def _cluster_id() -> str:
    """A new id; one that begins with a dash would be taken for an option."""
    while (drawn := urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")).startswith("-"):
        continue
    return drawn


def _logging(place: BrokerPlace) -> list[str]:
    return [
        f"-Dlog4j2.configurationFile={kafka_folder() / 'log4j2.properties'}",
        f"-Dnightmill.kafka.log={place.log}",
    ]


def _class_archive(place: BrokerPlace, java: Java) -> list[str]:
    # An archive fits one Java only.
    of_java = hashlib.sha256(str(java.executable.resolve()).encode()).hexdigest()[:8]
    name = f"java-{java.major}-{of_java}.jsa"
    ready = jars_folder() / name
    if ready.exists():
        return ["-Xshare:auto", f"-XX:SharedArchiveFile={ready}"]
    return [f"-XX:ArchiveClassesAtExit={place.folder / name}"]


def _receive(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count and (part := connection.recv(count - len(received))):
        received += part
    return received
