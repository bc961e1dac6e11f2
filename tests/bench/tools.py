"""Programs that the benchmark needs and the product does not: each in an environment of its own in the user's cache.

Made by uv at the first use and kept; what they depend on never meets what the product depends on.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import platformdirs

from nightmill.local.processes import locked

PEER = "flexllm==0.17.10"
SAMPLER = "py-spy==0.4.3"

_INSTALL_TIMEOUT_S = 600.0


class NotInstalled(Exception):
    """An environment could not be made; the text says why."""


def environment_of(requirement: str) -> Path:
    """The folder of programs of an environment that holds `requirement` (NAME==VERSION). Raises `NotInstalled`."""
    name = requirement.partition("=")[0]
    digest = hashlib.sha256(f"{requirement} {sys.version}".encode()).hexdigest()[:12]
    root = Path(os.environ.get("NIGHTMILL_CACHE") or platformdirs.user_cache_dir("nightmill", appauthor=False))
    folder = root / f"bench-{name}-{digest}"
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(root / f"bench-{name}.lock"):
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            _uv("venv", "--python", sys.executable, str(folder))
            _uv("pip", "install", "--python", str(folder / "bin" / "python"), requirement)
            (folder / "complete").touch()
    return folder / "bin"


def _uv(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "uv", *arguments],
        capture_output=True,
        text=True,
        timeout=_INSTALL_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise NotInstalled(f"uv {' '.join(arguments)}: {done.stderr.strip()}")
