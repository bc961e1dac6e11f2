"""Where the deploy files of this installation lie: beside the code in a checkout, inside the package in a wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def deploy_folder() -> Path:
    """Return the `deploy` folder that belongs to this code."""
    packaged = _PACKAGE / "_data" / "deploy"
    return packaged if packaged.is_dir() else _PACKAGE.parents[1] / "deploy"


def kafka_folder() -> Path:
    """Return the folder with the broker's pom.xml, server.properties and log4j2.properties."""
    return deploy_folder() / "kafka"
