"""Reading Parquet: the one file of the planner that imports pyarrow."""

from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from nightmill.planner.rows import Columns, Record, RowProblem, Unreadable

_BATCH_ROWS = 256


def read_parquet(file: BinaryIO, columns: Columns, *, after: int) -> Iterator[Record]:
    """Records after row `after`. Whole row groups before it are not read. Raises `Unreadable`."""
    try:
        source = pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as error:
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
    except (pa.ArrowException, OSError) as error:
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


def _contents(batch: Any, first: int) -> list[dict[str, Any] | RowProblem]:
    try:
        rows: list[dict[str, Any] | RowProblem] = batch.to_pylist()
    except (UnicodeDecodeError, ValueError, OverflowError):
        return [_content(batch.slice(index, 1), first + index) for index in range(batch.num_rows)]
    return rows


def _content(single: Any, number: int) -> dict[str, Any] | RowProblem:
    try:
        row: dict[str, Any] = single.to_pylist()[0]
    except UnicodeDecodeError:
        return RowProblem(place=f"row {number}", value="a text that is no UTF-8", remedy="write the texts as UTF-8")
    except (ValueError, OverflowError):
        return RowProblem(place=f"row {number}", value="a date out of range", remedy="write dates of the years 1-9999")
    return row


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
