"""Uploaded files that nobody checked: every row is good or is refused with its place, and what follows it is read.

A reader that is opened again at any record's cursor goes on with the same records, whatever the bytes are.
"""

import io
import json
import subprocess
import sys
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fuzz.bytes_of import VALUES, damaged, searched
from nightmill.client.errors import BadInput
from nightmill.client.inputs import source_of
from nightmill.client.tables import write_rows
from nightmill.kernel.domain.lifecycle import InputFormat
from nightmill.kernel.domain.pipeline import canonical_json
from nightmill.planner.readers import Cursor, label_of, read_records
from nightmill.planner.rows import Columns, GoodRow, Record, RowProblem, Unreadable, clean, source_version

COLUMNS = Columns(id="id", required=("text",), version="version", kept=("id", "text", "version"))
JSONL, CSV, PARQUET = InputFormat.JSONL, InputFormat.CSV, InputFormat.PARQUET


def opened(format_: InputFormat, data: bytes, cursor: Cursor) -> list[Record]:
    return list(read_records(format_, io.BytesIO(data), COLUMNS, cursor))


def cleaned(format_: InputFormat, data: bytes) -> list[GoodRow | RowProblem] | str:
    """Rows, each fit for a block or for the manifest; or why the file as a whole is none."""
    try:
        records = opened(format_, data, Cursor())
    except Unreadable as error:
        said = str(error)
        assert ";" in said
        assert said.encode()
        return said
    label = label_of(format_)
    rows = [clean(record, COLUMNS, label) for record in records]
    for record, row in zip(records, rows, strict=True):
        if isinstance(row, GoodRow):
            canonical_json(row.fields)
            source_version(row.fields, COLUMNS).encode()
        else:
            assert row.place == f"{label} {record.number}"
            assert row.remedy
            assert len(json.dumps(row.as_json(), ensure_ascii=False).encode()) < 4_000
    assert [record.number for record in records] == sorted({record.number for record in records})
    return rows


def goes_on(format_: InputFormat, data: bytes) -> None:
    """M5: a reader may be dropped at any record."""
    records = opened(format_, data, Cursor())
    for place, record in enumerate(records):
        cursor = Cursor(row=record.number, offset=record.end)
        again = opened(format_, data, cursor)
        assert [each.content for each in again] == [each.content for each in records[place + 1 :]]


def lines(*pieces: bytes) -> st.SearchStrategy[bytes]:
    common = [b"\r\n", b"\n", b"\r", b"\n\n", b" ", b"\0", b"\xff", b"\xe2\x80\xa8", b"\x85", b'"', b'""', b",", b"\\"]
    return st.lists(st.sampled_from([*pieces, *common]) | st.binary(max_size=6), max_size=14).map(b"".join)


GOOD_LINE = b'{"id": "a", "text": "x"}\n'
OBJECTS = lines(
    *(GOOD_LINE, b'{"id": 7, "text": "y", "text": "z"}\n', b'{"id":', b'"text":', b"{", b"}", b"[" * 20_000, b"null"),
    *(b"NaN", b"1e999", b"9" * 5_000, b'"\\ud800"', b'"\\u0000"', b'{"id": "b", "text": -Infinity}\n', b"true", b"1"),
)


@given(data=OBJECTS)
@example(data=b"\xef\xbb\xbf" + GOOD_LINE)
@example(data='{"id": "a", "text": "x"}\n'.encode("utf-16"))
@example(data=b'{"id": "' + b"i" * 600 + b'", "text": "x"}\n')
@example(data=b'{"id": "\\ud800", "text": "x"}\n{"id": "\\ud800"}\n' + GOOD_LINE)
@example(data=b'{"id": true, "text": "x"}\n{"id": 1.5, "text": "x"}\n{"id": [], "text": 1}\n{"id": "", "text": 1}\n')
@searched(100)
def test_any_lines_are_rows_or_problems_with_their_place(data: bytes) -> None:
    """P7: one bad row costs one row."""
    rows = cleaned(JSONL, data + b"\n" + GOOD_LINE)
    assert isinstance(rows, str) or (isinstance(rows[-1], GoodRow) and rows[-1].source_id == "a")
    if not isinstance(rows, str):
        goes_on(JSONL, data)


@given(
    data=lines(b"id,text\n", b"a,b\n", b'"a","b\nc"\n', b"a,b,c\n", b"a\n", b"id,id\n", b"x;y\n", b'"open', b"text,")
)
@example(data=b'a,"unclosed\n' + b"b,c\n" * 5)
@example(data=b"a,b\x00c\nd,e\rf,g\n")
@example(data=b'a,"b"c\nd,e\n')
@searched(100)
def test_any_table_is_rows_or_problems_with_their_place(data: bytes) -> None:
    for head in (b"id,text,version\n", b"id,text,version\r\n1,2,3\r\n", b"", b"\xef\xbb\xbfid,text,version\n"):
        rows = cleaned(CSV, head + data)
        if not isinstance(rows, str):
            goes_on(CSV, head + data)


@pytest.mark.parametrize("format_", [JSONL, CSV])
def test_a_line_without_an_end_is_passed_in_bounded_memory(format_: InputFormat) -> None:
    head = b"id,text,version\n" if format_ is CSV else b""
    good = b"a,b,c\n" if format_ is CSV else GOOD_LINE
    rows = cleaned(format_, head + good + b"x" * (40 << 20) + b"\n" + good)
    assert [type(row) for row in rows] == [GoodRow, RowProblem, GoodRow]
    assert "MB" in rows[1].reason  # type: ignore[union-attr]


def parquet(**columns: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({"id": ["a", "b"], "text": ["x", "y"], "version": ["1", "2"], **columns}), file)
    return file.getvalue()


def raw_text(data: bytes) -> Any:
    """A text column whose first value is no UTF-8."""
    offsets = pa.py_buffer(b"\0\0\0\0\2\0\0\0\3\0\0\0")
    return pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(data)])


TYPES: dict[str, Any] = {
    "whole": [1, None],
    "large": pa.array([2**64 - 1, 0], pa.uint64()),
    "float": [float("nan"), 1.5],
    "half": pa.array([1.0, float("inf")], pa.float32()).cast(pa.float16()),
    "bool": [True, False],
    "null": pa.nulls(2),
    "bytes": [b"\xff", b"a"],
    "no utf-8": raw_text(b"\xff\xfea"),
    "large text": pa.array(["x", "y"], pa.large_string()),
    "view": pa.array(["x", "y"], pa.string_view()),
    "dictionary": pa.array(["x", None]).dictionary_encode(),
    "decimal": [Decimal("1.50"), Decimal("-0")],
    "wide decimal": pa.array([Decimal(10) ** 70, None], pa.decimal256(76, 0)),
    "date": [date(1, 1, 1), date(9999, 12, 31)],
    "far date": pa.array([2**30, -(2**30)], pa.date32()),
    "time": [time(23, 59, 59, 999_999), None],
    "datetime": [datetime(2026, 11, 29, 1, 2, 3), None],  # noqa: DTZ001 as a naive column has it
    "far datetime": pa.array([2**62, -(2**62)], pa.timestamp("us")),
    "zone of nobody": pa.array([1, 2], pa.timestamp("us", tz="Nowhere/Else")),
    "duration": [timedelta(days=1), None],
    "far duration": pa.array([2**62, 1], pa.duration("ms")),
    "list": [[1, None], [float("inf")]],
    "texts": [["a", "\u2028"], []],
    "struct": [{"a": 1, "b": [date(2026, 1, 1)]}, None],
    "map": pa.array([[("k", 1)], [("k", 2), ("k", 3)]], pa.map_(pa.string(), pa.int64())),
    "map of dates": pa.array([[(date(2026, 1, 1), 1)], None], pa.map_(pa.date32(), pa.int64())),
    "uuid": pa.array([b"0" * 16, b"1" * 16], pa.uuid()),
}


@pytest.mark.parametrize("column", ["id", "text", "version"])
@pytest.mark.parametrize("values", TYPES.values(), ids=TYPES.keys())
def test_a_column_of_any_type_gives_rows_or_problems(column: str, values: Any) -> None:
    assert len(cleaned(PARQUET, parquet(**{column: values}))) == 2


def small_parquet() -> bytes:
    file = io.BytesIO()
    count = 300
    texts = [f"text {number % 40}" for number in range(count)]
    table = pa.table({"id": [str(n) for n in range(count)], "text": texts, "version": list(range(count))})
    pq.write_table(table, file, row_group_size=100)
    return file.getvalue()


@given(data=damaged(st.just(small_parquet()), inserts=[b"\xff" * 8, b"\0" * 8, b"PAR1", b"\xe7"]))
@searched(100)
def test_a_damaged_parquet_file_is_rows_or_unreadable(data: bytes) -> None:
    """Cut footers and turned bits end in words, not in a trace of the library."""
    cleaned(PARQUET, data)


BOMB = """
import io, resource, sys
import pyarrow as pa, pyarrow.parquet as pq
from nightmill.planner.readers import Cursor, read_records
from nightmill.planner.rows import Columns, Unreadable
from nightmill.kernel.domain.lifecycle import InputFormat
{make}
columns = Columns(id="id", required=("text",), version=None, kept=("id", "text"))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
seen = 0
try:
    for record in read_records(InputFormat.PARQUET, io.BytesIO(data), columns, Cursor()):
        seen += isinstance(record.content, dict)
except Unreadable as error:
    print(error)
print(len(data), seen, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
#: a value of two megabytes named three hundred times; values that pack to nothing
MAKERS = {
    "one value many times": """
values = pa.DictionaryArray.from_arrays(pa.array([0] * 300, pa.int32()), pa.array(["x" * 2_000_000]))
file = io.BytesIO()
pq.write_table(pa.table({"id": [str(n) for n in range(300)], "text": values}), file, compression="zstd")
data = file.getvalue()
del values, file
""",
    "many values that compress": """
file = io.BytesIO()
with pq.ParquetWriter(file, pa.schema([("id", pa.string()), ("text", pa.string())]), compression="zstd") as writer:
    for n in range(30):
        texts = [str(n) + "y" * 1_000_000 for _ in range(20)]
        writer.write_table(pa.table({"id": [f"{n}-{m}" for m in range(20)], "text": texts}))
data = file.getvalue()
del texts, file
""",
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_a_file_that_unpacks_to_half_a_gigabyte_is_read_in_bounded_memory(make: str) -> None:
    """Half a gigabyte of text from a few kilobytes; the reader holds a small part of it at a time."""
    script = BOMB.replace("{make}", make)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    size, rows, grown_mib = map(int, done.stdout.splitlines()[-1].split())
    assert size < 1 << 20
    assert rows in (300, 600)
    assert grown_mib < 300


@given(rows=st.lists(st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3), max_size=4))
@example(rows=[{"a": "\ud800"}])
@example(rows=[{"a": float("nan")}])
@example(rows=[{"a": 10**30}])
@searched(60)
def test_rows_from_a_program_are_taken_whole_or_refused_with_their_number(rows: list[Any]) -> None:
    try:
        data = b"".join(source_of(rows).open())
    except BadInput as error:
        said = str(error)
        assert "row " in said
    else:
        assert len(opened(JSONL, data, Cursor())) == len(rows)


RESULTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("format_", ["jsonl", "csv", "parquet"])
def test_results_of_any_json_are_written_in_every_format(format_: Any) -> None:
    """Mixed types in a column, nested values, numbers of any size: as text where nothing else holds them."""

    @given(rows=st.lists(st.dictionaries(st.sampled_from(["a", "b", ""]), RESULTS, max_size=3), max_size=5))
    @example(rows=[{"a": 2**64}, {"a": -1}])
    @example(rows=[{"a": {}}, {"a": {"x": 1}}])
    @example(rows=[{"a": [1, "x"]}])
    @searched(25)
    def written(rows: list[Any]) -> None:
        file = io.BytesIO()
        assert write_rows(rows, file, format_) == len(rows)
        if format_ == "parquet" and rows and any(rows):
            assert pq.read_table(io.BytesIO(file.getvalue())).num_rows == len(rows)

    written()
