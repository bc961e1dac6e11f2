"""Blocks: frozen, compressed pieces of input, and the pipelines that are frozen beside them.

A block is zlib-compressed JSON lines; a row is an object of the input columns that its pipeline names. Whoever needs a
row asks by `RowRef`; blocks are kept in a small cache, since neighbours are asked for together.
"""

import json
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from nightmill.kernel.domain.pipeline import Pipeline, canonical_json
from nightmill.kernel.store.blobs import BlobStore
from nightmill.kernel.wire.messages import BlockRef, RowRef

MAX_ROWS = 2_000
MAX_BYTES = 4 << 20


def write_block(blobs: BlobStore, rows: Sequence[dict[str, Any]]) -> BlockRef:
    """Store rows as one block. Equal rows give an equal digest. Raises `Unavailable`."""
    return write_lines(blobs, [canonical_json(row) for row in rows])


def write_lines(blobs: BlobStore, lines: Sequence[bytes]) -> BlockRef:
    """Store rows that are canonical JSON already."""
    packed = zlib.compress(b"\n".join(lines), 3)
    return BlockRef(digest=blobs.put(packed), rows=len(lines), bytes=len(packed))


class BlockReader:
    """Rows of blocks, through a cache of the last blocks used."""

    def __init__(self, blobs: BlobStore, *, cached_blocks: int = 16) -> None:
        self._blobs = blobs
        self._lines = lru_cache(maxsize=cached_blocks)(self._read)

    def row(self, ref: RowRef) -> dict[str, Any]:
        """One row. Raises `BlobMissing`, `Unavailable`."""
        row: dict[str, Any] = json.loads(self._lines(ref.block)[ref.row])
        return row

    def rows(self, block: str) -> list[dict[str, Any]]:
        """All rows of a block, in order."""
        return [json.loads(line) for line in self._lines(block)]

    def _read(self, block: str) -> list[bytes]:
        return zlib.decompress(self._blobs.get(block)).split(b"\n")


class PipelineReader:
    """Frozen pipelines by digest, through a cache."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs
        self._cached = lru_cache(maxsize=64)(self._read)

    def get(self, digest: str) -> Pipeline:
        """The pipeline of a digest. Raises `BlobMissing`, `Unavailable`."""
        return self._cached(digest)

    def _read(self, digest: str) -> Pipeline:
        return Pipeline.model_validate_json(self._blobs.get(digest))
