"""Content-addressed blobs: input blocks, frozen pipelines, manifests, long outputs.

A blob is named by the sha256 of its content and never changes, so writing one twice is harmless and a crash leaves at
worst a file that nobody names. A local folder, or any fsspec URL (for example S3).
"""

import hashlib
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import fsspec

from nightmill.kernel.domain.ids import digest
from nightmill.kernel.runtime.disk import refusal
from nightmill.kernel.runtime.service import Unavailable

_NAME = re.compile(r"[0-9a-f]{64}")


class BlobMissing(Exception):
    """A blob that a message names is not in the store."""


class BlobStore:
    """Blobs under `root` (a path or an fsspec URL), spread over 256 folders."""

    def __init__(self, root: str) -> None:
        self._fs, self._root = fsspec.core.url_to_fs(root)
        self._local = "file" in self._fs.protocol or "local" in self._fs.protocol

    def _path(self, name: str) -> str:
        # names come from outside too: nothing but a digest may become a path
        if _NAME.fullmatch(name) is None:
            raise BlobMissing(f"{name[:80]!r} is not the name of a blob")
        return f"{self._root}/{name[:2]}/{name}"

    def exists(self, name: str) -> bool:
        return _NAME.fullmatch(name) is not None and bool(self._fs.exists(self._path(name)))

    def put(self, data: bytes) -> str:
        """Store `data` durably and return its digest. Raises `Unavailable` when the disk refuses."""
        name = digest(data)
        if not self.exists(name):
            self._write(iter((data,)), lambda: name)
        return name

    def put_json(self, value: Any) -> str:
        """Store `value` as compressed canonical JSON."""
        raw = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
        return self.put(zlib.compress(raw, 6))

    def put_stream(self, chunks: Iterable[bytes]) -> tuple[str, int]:
        """Store a stream of unknown length; returns (digest, bytes). Memory is bounded by a chunk."""
        state, size = hashlib.sha256(), 0

        def measured() -> Iterator[bytes]:
            nonlocal size
            for chunk in chunks:
                state.update(chunk)
                size += len(chunk)
                yield chunk

        self._write(measured(), state.hexdigest)
        return state.hexdigest(), size

    def get(self, name: str) -> bytes:
        """The whole blob. Raises `BlobMissing`, `Unavailable`."""
        try:
            with self._fs.open(self._path(name), "rb") as file:
                data: bytes = file.read()
                return data
        except FileNotFoundError as error:
            raise BlobMissing(f"blob {name} is not in {self._root}") from error
        except OSError as error:
            raise self._unavailable(error) from error

    def get_json(self, name: str) -> Any:
        return json.loads(zlib.decompress(self.get(name)))

    def open(self, name: str) -> BinaryIO:
        """The blob as a seekable file. Raises `BlobMissing`, `Unavailable`."""
        try:
            file: BinaryIO = self._fs.open(self._path(name), "rb")
            return file
        except FileNotFoundError as error:
            raise BlobMissing(f"blob {name} is not in {self._root}") from error
        except OSError as error:
            raise self._unavailable(error) from error

    def delete(self, name: str) -> None:
        if self.exists(name):
            self._fs.rm(self._path(name))

    def _write(self, chunks: Iterator[bytes], name: Callable[[], str]) -> None:
        """Write to a file of its own, then give it its name, which may be known only at the end."""
        temporary = f"{self._root}/incoming/{os.getpid()}-{os.urandom(6).hex()}"
        try:
            self._fs.makedirs(f"{self._root}/incoming", exist_ok=True)
            with self._fs.open(temporary, "wb") as file:
                for chunk in chunks:
                    file.write(chunk)
                self._sync(file)
            self._fs.makedirs(self._path(name()).rsplit("/", 1)[0], exist_ok=True)
            self._fs.mv(temporary, self._path(name()))
        except BaseException as error:
            with suppress(OSError):
                self._fs.rm(temporary)
            if isinstance(error, OSError):
                raise self._unavailable(error) from error
            raise

    def _unavailable(self, error: OSError) -> Unavailable:
        if self._local:
            return Unavailable(f"blob store {refusal(Path(self._root), error)}")
        return Unavailable(f"blob store {self._root}: {error.strerror or error}; mend the store")

    def _sync(self, file: Any) -> None:
        file.flush()
        if self._local:
            os.fsync(file.fileno() if hasattr(file, "fileno") else file.f.fileno())
