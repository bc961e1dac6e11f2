"""What `nightmill up` can be asked for: the options, the services they name, and the commands that run them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nightmill.local.errors import LaptopError

KAFKA_LOCAL = "local"
KAFKA_DOCKER = "docker"
_LAST_PORT = 65_535
SERVICES = (
    "planner",
    "dispatcher",
    "provider_gateway",
    "validator",
    "publisher",
    "rate_governor",
    "ledger",
    "api",
)


def service_command(name: str) -> Sequence[str]:
    """Return the command line that runs one service in the foreground."""
    return [sys.executable, "-m", "nightmill.cli.main", "service", name]


def foreground_command(options: UpOptions) -> Sequence[str]:
    """Return the command line that runs the same `up` in the foreground."""
    command = [sys.executable, "-m", "nightmill.cli.main", "up", "--kafka", options.kafka]
    command += ["--home", str(options.home)] if options.home else []
    return command + (["--config", str(options.config)] if options.config else [])


def say(line: str) -> None:
    """Print one progress line at once."""
    with contextlib.suppress(OSError):  # a log on a full disk
        print(line, flush=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """What `nightmill up` was asked for.

    `kafka` is `local`, `docker` or `HOST:PORT`. `create_topics(bootstrap, environment)` makes what is missing and must
    be repeatable; the environment is the one that the services get. Ports of 0 are chosen. `local_model` is set when
    a pool asks for the local model, `local_embeddings` when one asks for the local embeddings model, which is left out
    where it is not installed, `embedded_ledger` when no ClickHouse server is configured.
    """

    create_topics: Callable[[str, Mapping[str, str]], None]
    home: Path | None = None
    kafka: str = KAFKA_LOCAL
    config: Path | None = None
    detach: bool = False
    services: tuple[str, ...] = SERVICES
    command: Callable[[str], Sequence[str]] = service_command
    foreground: Callable[[UpOptions], Sequence[str]] = foreground_command
    environment: Mapping[str, str] = field(default_factory=dict)
    local_model: bool = False
    local_embeddings: bool = False
    embedded_ledger: bool = True
    model_port: int = 0
    api_port: int = 0
    ready_timeout_s: float = 90.0
    say: Callable[[str], None] = say


def is_external(address: str) -> bool:
    """Whether `--kafka` names a broker that runs anyway. Raises `LaptopError` for what names none."""
    if address in (KAFKA_LOCAL, KAFKA_DOCKER):
        return False
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) <= _LAST_PORT:
        raise LaptopError(f"--kafka {address!r} is not local, docker or HOST:PORT", remedy="nightmill up --help")
    return True
