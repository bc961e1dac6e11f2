"""The broker of a laptop as a container: docker-compose.yml's Kafka, for users who have an engine and no Java."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from nightmill.local.assets import deploy_folder
from nightmill.local.errors import LaptopError

_ENGINE_TIMEOUT_S = 10
_COMPOSE_TIMEOUT_S = 600
_DIGEST_LETTERS = 10


def engine_answers() -> bool:
    """Return whether a Docker engine can be reached by the `docker` command."""
    if shutil.which("docker") is None:
        return False
    try:
        answer = subprocess.run(["docker", "info"], capture_output=True, timeout=_ENGINE_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return False
    return answer.returncode == 0


def compose_file() -> Path:
    """Return the docker-compose.yml of this installation: it lies beside the deploy folder."""
    return deploy_folder().parent / "docker-compose.yml"


def compose_command(root: Path, *verb: str) -> list[str]:
    """Return a docker compose command line; each home folder is a project of its own, with its own data volume."""
    project = f"nightmill-{hashlib.sha256(str(root).encode()).hexdigest()[:_DIGEST_LETTERS]}"
    return ["docker", "compose", "-f", str(compose_file()), "-p", project, *verb]


def start_container(root: Path, port: int) -> None:
    """Start the broker's container on the loopback port and block until compose has it running."""
    if not engine_answers():
        raise LaptopError("no Docker engine answers (docker info)", remedy="start Docker, or use --kafka local")
    _compose(root, port, "up", "--detach", "kafka")


def stop_container(root: Path, port: int) -> None:
    """Stop the broker's container in order; its data volume stays."""
    _compose(root, port, "stop", "kafka")


def _compose(root: Path, port: int, *verb: str) -> None:
    command = compose_command(root, *verb)
    environment = os.environ | {"NIGHTMILL_KAFKA_PORT": str(port)}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=_COMPOSE_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        raise LaptopError(
            f"docker compose {' '.join(verb)} failed: {done.stderr.strip()[-400:]}", remedy="see docker compose logs"
        )
