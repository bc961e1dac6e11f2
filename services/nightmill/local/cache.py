"""The user's cache folder: what was fetched or made once and can be again, for all homes of the user."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from nightmill.local.errors import LaptopError


def cache_folder(name: str) -> Path:
    """Return a folder of the cache (made when missing); `NIGHTMILL_CACHE` moves them all."""
    root = os.environ.get("NIGHTMILL_CACHE") or platformdirs.user_cache_dir("nightmill", appauthor=False)
    folder = Path(root) / name
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise LaptopError(
            f"cannot make the cache folder {folder}: {error.strerror}",
            remedy="set NIGHTMILL_CACHE to a writable folder",
        ) from error
    return folder
