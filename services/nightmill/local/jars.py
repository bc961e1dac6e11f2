"""The broker's jars: copied by Maven once into the user's cache folder, keyed by the digest of pom.xml.

A changed pom is another folder, so an upgrade never mixes versions. The folder appears by a rename, so a copy that
was cut off is never taken for a whole one.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from nightmill.local.assets import kafka_folder
from nightmill.local.cache import cache_folder
from nightmill.local.errors import LaptopError
from nightmill.local.processes import locked

_MAVEN_TIMEOUT_S = 600
_DIGEST_LETTERS = 16


def jars_folder() -> Path:
    """Return this pom's folder of the cache, made when missing."""
    digest = hashlib.sha256((kafka_folder() / "pom.xml").read_bytes()).hexdigest()[:_DIGEST_LETTERS]
    return cache_folder(f"kafka-{digest}")


def cached_jars() -> list[Path]:
    """Return the jars that are already there, in a stable order; empty when Maven has not copied them yet."""
    return sorted((jars_folder() / "libs").glob("*.jar"))


def find_maven() -> str | None:
    """Return the path of `mvn`, or None."""
    return shutil.which("mvn")


def resolve_jars() -> list[Path]:
    """Return the broker's jars, copying them first when needed. Blocks for as long as the download takes, ~30 s.

    Safe to call from several processes at once: one copies, the others wait.
    """
    cache = jars_folder()
    with locked(cache / "lock"):
        if not cached_jars():
            _copy_jars(cache / "libs")
    return cached_jars()


def _copy_jars(target: Path) -> None:
    maven = find_maven()
    if maven is None:
        raise LaptopError(
            "Maven (mvn) is not on PATH and the broker's jars are not cached yet",
            remedy="install Maven, or use --kafka docker or --kafka HOST:PORT",
        )
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="copy-") as scratch:
        # Maven writes beside the pom, which may be read-only in an installed package: work on a copy.
        pom = shutil.copy(kafka_folder() / "pom.xml", scratch)
        libs = Path(scratch) / "libs"
        command = [maven, "-B", "-q", "-f", pom, "dependency:copy-dependencies", f"-DoutputDirectory={libs}"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_MAVEN_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise LaptopError(
                f"Maven did not finish within {_MAVEN_TIMEOUT_S} s", remedy="check the network and try again"
            ) from error
        if done.returncode != 0 or not libs.is_dir():
            reason = next((line for line in done.stdout.splitlines() if "ERROR" in line), done.stderr.strip()[-300:])
            raise LaptopError(
                f"Maven could not copy the broker's jars: {reason}", remedy="check network and disk space"
            )
        libs.rename(target)


def main() -> int:
    """Copy the jars when needed, and say how many there are. Returns an exit code."""
    try:
        print(f"{len(resolve_jars())} jars of the broker")
    except LaptopError as error:
        print(f"error: {error.message}\n  → {error.remedy}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
