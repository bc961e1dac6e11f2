"""A version's files: accepted rows and failures, as Parquet or JSON lines, named by content.

Parquet columns are typed by `columns`; JSON lines hold the values as JSON has them.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from nightmill.kernel.domain.lifecycle import ItemOutcome
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.publisher.columns import (
    FAILURE_COLUMNS,
    AcceptedRow,
    Column,
    Kind,
    Misfit,
    Origin,
    json_text,
    natural,
    plain,
    result_columns,
    typed,
)
from nightmill.publisher.targets.parts import PartRecord, file_digest, keep_durably, temporary_beside

_FILE_ROWS = 1_000_000  #: rows of one data file
_GROUP_ROWS = 8_192
_LISTED = 1_000  #: at most so many source ids are listed in a manifest; the failures file has all

_ARROW = {
    Kind.STRING: pa.string(),
    Kind.INTEGER: pa.int64(),
    Kind.NUMBER: pa.float64(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.STRINGS: pa.list_(pa.string()),
    Kind.INTEGERS: pa.list_(pa.int64()),
    Kind.NUMBERS: pa.list_(pa.float64()),
    Kind.BOOLEANS: pa.list_(pa.bool_()),
    Kind.JSON: pa.string(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFile:
    """One finished file of a version."""

    name: str
    kind: str  #: data | failures
    rows: int
    bytes: int
    sha256: str
    columns: tuple[Column, ...]
    in_review: tuple[str, ...] = ()  #: source ids that wait for review, the first thousand


def arrow_schema(columns: Iterable[Column]) -> Any:
    """Arrow schema of columns."""
    return pa.schema([pa.field(column.name, _arrow_type(column)) for column in columns])


def _arrow_type(column: Column) -> Any:
    if column.kind is Kind.VECTOR:
        return pa.list_(pa.float32(), column.dimensions)
    return _ARROW[column.kind]


def _arrow_array(column: Column, values: Sequence[Any]) -> Any:
    """The values as a typed file holds them. Raises `Misfit`."""
    found = typed(column, values)
    if column.kind is not Kind.VECTOR or None in found:
        return pa.array(found, _arrow_type(column))
    # the floats as they lie in memory: no object is made for each of them
    numbers = pa.py_buffer(b"".join([each.tobytes() for each in found]))
    count = len(found) * (column.dimensions or 0)
    flat = pa.Array.from_buffers(pa.float32(), count, [None, numbers])
    return pa.FixedSizeListArray.from_arrays(flat, column.dimensions)


class VersionWriter:
    """Writes a version into its folder. Files get their names in `finish`; without it nothing stays."""

    def __init__(self, folder: Path, pipeline: Pipeline, as_json: Collection[str]) -> None:
        self._folder = folder
        self._format = pipeline.publish.format
        self._columns = result_columns(pipeline, as_json=as_json)
        self._named = frozenset(c.source for c in self._columns if c.origin is Origin.OUTPUT)
        self._stack = ExitStack()
        self._finished: list[VersionFile] = []
        self._data = self._new("data")
        self._failures = self._new("failures")
        self._in_review: list[str] = []
        self.rows = 0
        self.failures = 0

    def __enter__(self) -> "VersionWriter":
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._stack.close()

    def add_rows(self, rows: Iterator[AcceptedRow]) -> None:
        """Accepted rows, after all with a lower ordinal. Raises `Misfit`, and what reading the rows raises."""
        while group := list(islice(rows, _GROUP_ROWS)):
            if self._data.rows + len(group) > _FILE_ROWS:
                self._finished.append(self._data.finish())
                self._data = self._new("data")
            self._data.write([natural(column, group, self._named) for column in self._columns], len(group))
            self.rows += len(group)

    def add_failures(self, records: Sequence[PartRecord]) -> None:
        """Items that ended otherwise."""
        if records:
            self._failures.write([[record[c.source] for record in records] for c in FAILURE_COLUMNS], len(records))
            self.failures += len(records)
            waiting = (r["source_id"] for r in records if r["outcome"] == ItemOutcome.IN_REVIEW)
            self._in_review.extend(islice(waiting, _LISTED - len(self._in_review)))

    def finish(self) -> list[VersionFile]:
        """The files, durable."""
        failures = self._failures.finish(in_review=tuple(self._in_review))
        return [*self._finished, self._data.finish(), failures]

    def _new(self, kind: str) -> "_File":
        columns = self._columns if kind == "data" else FAILURE_COLUMNS
        stem = f"data-{len(self._finished):05d}" if kind == "data" else kind
        writer = _ParquetFile if self._format == "parquet" else _LinesFile
        return self._stack.enter_context(writer(self._folder, stem, kind, columns))


class _File:
    """A file that is being written under a temporary name."""

    extension = ""

    def __init__(self, folder: Path, stem: str, kind: str, columns: tuple[Column, ...]) -> None:
        self._folder, self._stem, self._kind = folder, stem, kind
        self.columns = columns
        self.temporary = temporary_beside(folder / f"{stem}.{self.extension}")
        self.rows = 0

    def __enter__(self) -> "_File":
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()
        self.temporary.unlink(missing_ok=True)

    def write(self, values: Sequence[Sequence[Any]], rows: int) -> None:
        """The values of each column for so many rows. Raises `Misfit`."""
        self.rows += rows

    def close(self) -> None:
        """Everything is handed to the disk; harmless when repeated."""

    def finish(self, in_review: tuple[str, ...] = ()) -> VersionFile:
        self.close()
        sha256, size = file_digest(self.temporary), self.temporary.stat().st_size
        name = f"{self._stem}-{sha256[:16]}.{self.extension}"
        keep_durably(self.temporary, self._folder / name)
        return VersionFile(
            name=name,
            kind=self._kind,
            rows=self.rows,
            bytes=size,
            sha256=sha256,
            columns=self.columns,
            in_review=in_review,
        )


class _ParquetFile(_File):
    extension = "parquet"

    def __init__(self, folder: Path, stem: str, kind: str, columns: tuple[Column, ...]) -> None:
        super().__init__(folder, stem, kind, columns)
        self._schema = arrow_schema(columns)
        self._writer = pq.ParquetWriter(self.temporary, self._schema, compression="zstd")

    def write(self, values: Sequence[Sequence[Any]], rows: int) -> None:
        super().write(values, rows)
        arrays = [_arrow_array(column, held) for column, held in zip(self.columns, values, strict=True)]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))

    def close(self) -> None:
        self._writer.close()


class _LinesFile(_File):
    extension = "jsonl"

    def __init__(self, folder: Path, stem: str, kind: str, columns: tuple[Column, ...]) -> None:
        super().__init__(folder, stem, kind, columns)
        self._names = [column.name for column in columns]
        self._file: BinaryIO = self.temporary.open("wb")

    def write(self, values: Sequence[Sequence[Any]], rows: int) -> None:
        super().write(values, rows)
        self._file.writelines(
            json.dumps(dict(zip(self._names, row, strict=True)), ensure_ascii=False, default=plain).encode() + b"\n"
            for row in zip(*values, strict=True)
        )

    def close(self) -> None:
        self._file.close()


def read_file(path: Path, columns: Iterable[Column]) -> Iterator[dict[str, Any]]:
    """Rows of one file of a version, values as JSON has them. Raises OSError."""
    if path.suffix == ".jsonl":
        with path.open("rb") as lines:
            for line in lines:
                yield json.loads(line)
        return
    as_text = [column.name for column in columns if column.kind is Kind.JSON]
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=_GROUP_ROWS):
            for row in batch.to_pylist():
                for name in as_text:
                    row[name] = None if row[name] is None else json.loads(row[name])
                yield row


def arrow_table(columns: Sequence[Column], rows: Iterable[dict[str, Any]]) -> Any:
    """Rows with values as JSON has them as one Arrow table. A column that a value does not fit becomes JSON text."""
    kept = list(rows)
    arrays, fields = [], []
    for column in columns:
        values = [row[column.name] for row in kept]
        try:
            array = _arrow_array(column, values)
        except Misfit:
            array = pa.array([None if value is None else json_text(value) for value in values], pa.string())
        arrays.append(array)
        fields.append(pa.field(column.name, array.type))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))
