"""Tables in and out: a pandas or pyarrow table as Parquet bytes, result rows as JSONL, CSV or Parquet."""

import csv
import io
import itertools
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from nightmill.client.errors import BadInput

Format = Literal["jsonl", "csv", "parquet"]
Row = Mapping[str, Any]

_CHUNK_BYTES = 256 << 10
_ROWS_AT_ONCE = 5_000


def table_as_parquet(table: Any) -> Iterator[bytes]:
    """A table as the bytes of a Parquet file. Raises `BadInput`."""
    try:
        arrow = table if isinstance(table, pa.Table) else pa.Table.from_pandas(table, preserve_index=False)
    except (pa.ArrowException, TypeError, AttributeError) as error:
        raise BadInput(f"input: the table can not be written as Parquet: {error}", "use plain columns") from error
    if arrow.num_rows == 0:
        raise BadInput("input: the table has no rows", "give a table with rows")
    with tempfile.TemporaryFile() as file:
        pq.write_table(arrow, file)
        file.seek(0)
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def write_rows(rows: Iterable[Row], file: IO[bytes], format_: Format) -> int:
    """Write result rows to a binary file; returns how many. Memory is bounded by some thousand rows."""
    match format_:
        case "jsonl":
            return _write_jsonl(rows, file)
        case "csv":
            return _write_csv(rows, file)
        case "parquet":
            return _write_parquet(rows, file)


def _write_jsonl(rows: Iterable[Row], file: IO[bytes]) -> int:
    count = 0
    for row in rows:
        file.write(_json(row).encode() + b"\n")
        count += 1
    return count


def _write_csv(rows: Iterable[Row], file: IO[bytes]) -> int:
    """Columns as in the first row; lists and objects are JSON text, null is an empty field."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    count = 0
    try:
        writer = csv.writer(text, lineterminator="\n")
        names: list[str] = []
        for row in rows:
            if not names:
                names = list(row)
                writer.writerow(names)
            writer.writerow([_cell(row.get(name)) for name in names])
            count += 1
    finally:
        text.detach()
    return count


def _write_parquet(rows: Iterable[Row], file: IO[bytes]) -> int:
    """Two passes, since a column's type is known only at the end: rows wait in a temporary file."""
    with tempfile.TemporaryFile() as spool:
        names: dict[str, None] = {}
        types: dict[str, Any] = {}  # None: the column is JSON text
        count = 0
        for batch in _batches(rows):
            names |= dict.fromkeys(name for row in batch for name in row)
            types = {
                name: _common(types.get(name, pa.null()), _type([row.get(name) for row in batch])) for name in names
            }
            count += _write_jsonl(batch, spool)
        spool.seek(0)
        schema = pa.schema([(name, _stored(types[name])) for name in names])
        with pq.ParquetWriter(file, schema) as writer:
            for batch in _batches(map(json.loads, spool)):
                writer.write_table(_arrow(batch, schema, types))
    return count


def _arrow(batch: Sequence[Row], schema: pa.Schema, types: Mapping[str, Any]) -> pa.Table:
    columns = []
    for field in schema:
        values = [row.get(field.name) for row in batch]
        if types[field.name] is None:
            values = [value if value is None or isinstance(value, str) else _json(value) for value in values]
        columns.append(pa.array(values, field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _type(values: Sequence[Any]) -> Any:
    """Arrow's type of a column; None for one that has no single type: it becomes JSON text."""
    try:
        found = pa.array(values).type
    except (pa.ArrowException, OverflowError):
        return None
    return None if _holds_nothing(found) else found


def _holds_nothing(type_: Any) -> bool:
    """Whether an object without fields is in it, for which Parquet has no form."""
    if pa.types.is_struct(type_):
        return type_.num_fields == 0 or any(_holds_nothing(field.type) for field in type_)
    return pa.types.is_list(type_) and _holds_nothing(type_.value_type)


def _common(known: Any, other: Any) -> Any:
    """The type that holds both; None stays None."""
    if known is None or other is None:
        return None
    both = [pa.schema([("column", known)]), pa.schema([("column", other)])]
    try:
        return pa.unify_schemas(both, promote_options="permissive").field("column").type
    except pa.ArrowException:
        return None


def _stored(type_: Any) -> Any:
    """A column that is text, or of which nothing is known but nulls, is stored as text."""
    return pa.string() if type_ is None or pa.types.is_null(type_) else type_


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    left = iter(rows)
    while batch := list(itertools.islice(left, _ROWS_AT_ONCE)):
        yield batch


def _cell(value: Any) -> Any:
    match value:
        case None:
            return ""
        case bool() | list() | dict():
            return _json(value)
        case _:
            return value


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
