"""Staged parts: Parquet files of settled items in a layout of their own, whatever the pipeline's result looks like.

A part is sorted by (ordinal, generation, revision) and named by the sha256 of its bytes. Readers go through many parts
at once in windows of one accounting chunk, so memory does not grow with the batch.
"""

import hashlib
import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from nightmill.kernel.runtime.service import Unavailable
from nightmill.kernel.wire.messages import ItemSettled
from nightmill.publisher.accounting import CHUNK

_BATCH_ROWS = 1_024

_SCHEMA = pa.schema(
    [
        pa.field("ordinal", pa.int64(), nullable=False),
        pa.field("generation", pa.int32(), nullable=False),
        pa.field("revision", pa.int32(), nullable=False),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("source_id", pa.string(), nullable=False),
        pa.field("block", pa.string(), nullable=False),
        pa.field("row", pa.int32(), nullable=False),
        pa.field("pipeline_digest", pa.string(), nullable=False),
        pa.field("attempt_id", pa.string()),
        pa.field("model", pa.string()),
        pa.field("cost_nano_usd", pa.int64(), nullable=False),
        pa.field("rule", pa.string()),
        pa.field("field", pa.string()),
        pa.field("value", pa.string()),
        pa.field("failure_class", pa.string()),
        pa.field("signal", pa.string()),
        pa.field("output", pa.string()),
        pa.field("output_digest", pa.string()),
    ]
)

#: one settled item as a part holds it
PartRecord = dict[str, Any]


def part_bytes(settled: Sequence[ItemSettled]) -> bytes:
    """The part of these items; equal items give equal bytes."""
    items = sorted(settled, key=lambda item: (item.ordinal, item.generation, item.revision))
    verdicts = [item.verdict for item in items]
    failures = [item.failure for item in items]
    columns: dict[str, list[Any]] = {
        "ordinal": [item.ordinal for item in items],
        "generation": [item.generation for item in items],
        "revision": [item.revision for item in items],
        "outcome": [item.outcome.value for item in items],
        "source_id": [item.source_id for item in items],
        "block": [item.row.block for item in items],
        "row": [item.row.row for item in items],
        "pipeline_digest": [item.pipeline_digest for item in items],
        "attempt_id": [item.attempt_id for item in items],
        "model": [item.model for item in items],
        "cost_nano_usd": [item.totals.cost_nano_usd for item in items],
        "rule": [verdict and verdict.rule for verdict in verdicts],
        "field": [verdict and verdict.field for verdict in verdicts],
        "value": [verdict and verdict.value for verdict in verdicts],
        "failure_class": [failure and failure.failure_class.value for failure in failures],
        "signal": [failure and failure.signal for failure in failures],
        "output": [item.output for item in items],
        "output_digest": [item.output_digest for item in items],
    }
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.table(columns, schema=_SCHEMA), buffer, compression="snappy", write_statistics=False)
    data: bytes = buffer.getvalue().to_pybytes()
    return data


def merge_parts(sources: Sequence[Path], destination: Path) -> int:
    """Write all rows of `sources` as one sorted part; returns the rows. Memory is bounded by a window of them."""
    count = 0
    with pq.ParquetWriter(destination, _SCHEMA, compression="snappy", write_statistics=False) as writer:
        for _, table in _windows(sources):
            writer.write_table(table)
            count += table.num_rows
    return count


def windows(sources: Sequence[Path]) -> Iterator[tuple[int, list[PartRecord]]]:
    """`(chunk, records)` of all parts together, by chunk; records by ordinal, of one ordinal the newest last.

    Raises OSError when a part cannot be read.
    """
    for number, table in _windows(sources):
        columns = table.to_pydict()
        names = list(columns)
        yield number, [dict(zip(names, values, strict=True)) for values in zip(*columns.values(), strict=True)]


@contextmanager
def disk(doing: str) -> Iterator[None]:
    """Maps what the disk refuses to `Unavailable`."""
    try:
        yield
    except OSError as error:
        raise Unavailable(f"{doing}: {error.strerror or error}; free space or mend the disk") from error


def write_durably(path: Path, data: bytes) -> None:
    """Write `data` under its final name, all or nothing, and make name and content durable."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_beside(path)
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def keep_durably(temporary: Path, path: Path) -> None:
    """Give a finished temporary file its name and make both durable."""
    descriptor = os.open(temporary, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.replace(path)
    sync_folder(path.parent)


def temporary_beside(path: Path) -> Path:
    """A name of its own in the same folder."""
    return path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}")


def sync_folder(folder: Path) -> None:
    """Make the names in `folder`, and its own name, durable."""
    for each in (folder, folder.parent):
        with suppress(PermissionError):
            descriptor = os.open(each, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def file_digest(path: Path) -> str:
    """sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _Cursor:
    """Reads one sorted part forwards."""

    def __init__(self, path: Path) -> None:
        self._file = pq.ParquetFile(path)
        self._batches = self._file.iter_batches(batch_size=_BATCH_ROWS)
        self._batch: Any = None
        self._ordinals: list[int] = []
        self._advance()

    def __enter__(self) -> "_Cursor":
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._file.close()

    @property
    def ordinal(self) -> int | None:
        """Ordinal of the next row; None at the end."""
        return self._ordinals[0] if self._ordinals else None

    def take_below(self, stop: int) -> Iterator[Any]:
        """Record batches of the rows before ordinal `stop`."""
        while self._ordinals and self._ordinals[0] < stop:
            cut = bisect_left(self._ordinals, stop)
            yield self._batch.slice(0, cut)
            if cut < len(self._ordinals):
                self._batch, self._ordinals = self._batch.slice(cut), self._ordinals[cut:]
            else:
                self._advance()

    def _advance(self) -> None:
        for batch in self._batches:
            if batch.num_rows:
                self._batch, self._ordinals = batch, batch.column("ordinal").to_pylist()
                return
        self._batch, self._ordinals = None, []


def _windows(sources: Sequence[Path]) -> Iterator[tuple[int, Any]]:
    """`(chunk, sorted table)` over all parts."""
    with ExitStack() as stack:
        cursors = [stack.enter_context(_Cursor(path)) for path in sources]
        while True:
            heads = [cursor.ordinal for cursor in cursors if cursor.ordinal is not None]
            if not heads:
                return
            number = min(heads) // CHUNK
            stop = (number + 1) * CHUNK
            batches = [batch for cursor in cursors for batch in cursor.take_below(stop)]
            table = pa.Table.from_batches(batches, schema=_SCHEMA)
            yield (
                number,
                table.sort_by([("ordinal", "ascending"), ("generation", "ascending"), ("revision", "ascending")]),
            )
