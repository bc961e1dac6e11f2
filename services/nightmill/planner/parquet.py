"""Reading Parquet: the one file of the planner that imports pyarrow."""

from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nightmill.planner.rows import Columns, Record, RowProblem, Unreadable

_BATCH_ROWS = 256
_BUFFER_BYTES = 1 << 20
#: texts of a batch that are made at once; those of a larger one are made row by row
_BATCH_BYTES = 16 << 20


def read_parquet(file: BinaryIO, columns: Columns, *, after: int) -> Iterator[Record]:
    """Records after row `after`. Whole row groups before it are not read. Raises `Unreadable`."""
    try:
        source = _opened(file, columns)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise Unreadable(f"the file is no Parquet: {_first_line(error)}; write it again") from error
    columns.check_header(tuple(source.schema_arrow.names), "schema")
    skipped, groups = _groups_after(source.metadata, after)
    number = skipped
    try:
        for batch in source.iter_batches(batch_size=_BATCH_ROWS, row_groups=groups, columns=list(columns.kept)):
            fresh = batch.slice(max(0, min(after - number, batch.num_rows)))
            first = number + batch.num_rows - fresh.num_rows + 1
            number += batch.num_rows
            for place, content in enumerate(_contents(fresh, first), start=first):
                yield Record(number=place, end=0, content=content)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise Unreadable(f"after row {number}: broken Parquet: {_first_line(error)}; write the file again") from error


def _groups_after(metadata: Any, after: int) -> tuple[int, list[int]]:
    """Rows in the groups that are passed whole, and the groups to read."""
    skipped = 0
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        if skipped + rows > after:
            return skipped, list(range(group, metadata.num_row_groups))
        skipped += rows
    return skipped, []


def _opened(file: BinaryIO, columns: Columns) -> Any:
    """A value that a file holds once and names a million times stays one value; pages are read as they are needed."""
    first = pq.ParquetFile(file)
    texts = [
        field.name
        for field in first.schema_arrow
        if field.name in columns.kept and (pa.types.is_string(field.type) or pa.types.is_binary(field.type))
    ]
    return pq.ParquetFile(
        file, metadata=first.metadata, read_dictionary=texts, pre_buffer=False, buffer_size=_BUFFER_BYTES
    )


def _contents(batch: Any, first: int) -> Iterator[dict[str, Any] | RowProblem]:
    rows = _at_once(batch) if _size(batch) <= _BATCH_BYTES else None
    if rows is not None:
        yield from rows
        return
    for index in range(batch.num_rows):
        yield _content(batch.slice(index, 1), first + index)


def _at_once(batch: Any) -> list[dict[str, Any]] | None:
    """All rows; None when one of them can not be read."""
    try:
        rows: list[dict[str, Any]] = _written_out(batch).to_pylist()
    except (UnicodeDecodeError, ValueError, OverflowError):
        return None
    return rows


def _size(batch: Any) -> int:
    """Bytes of a batch with its dictionaries written out, at most."""
    total: int = batch.nbytes
    for column in batch.columns:
        if pa.types.is_dictionary(column.type):
            total += len(column) * (pc.max(pc.binary_length(column.dictionary)).as_py() or 0)
    return total


def _written_out(batch: Any) -> Any:
    columns = [each.dictionary_decode() if pa.types.is_dictionary(each.type) else each for each in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _content(single: Any, number: int) -> dict[str, Any] | RowProblem:
    try:
        row: dict[str, Any] = _written_out(single).to_pylist()[0]
    except UnicodeDecodeError:
        return RowProblem(place=f"row {number}", value="a text that is no UTF-8", remedy="write the texts as UTF-8")
    except (ValueError, OverflowError):
        return RowProblem(place=f"row {number}", value="a date out of range", remedy="write dates of the years 1-9999")
    return row


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
