"""Readers: every broken row has a place, a value and a remedy, and reading goes on at any cursor."""

import io
import json
import math
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.kernel.domain.lifecycle import InputFormat
from nightmill.planner import readers, rows
from nightmill.planner.readers import Cursor, label_of, read_records
from nightmill.planner.rows import Columns, GoodRow, Record, RowProblem, Unreadable, clean, source_version
from unit.planner.makers import make_pipeline

COLUMNS = Columns.of(make_pipeline())
JSONL, CSV, PARQUET = InputFormat.JSONL, InputFormat.CSV, InputFormat.PARQUET


def read(
    format_: InputFormat, data: bytes, columns: Columns = COLUMNS, cursor: Cursor | None = None
) -> list[GoodRow | RowProblem]:
    return [clean(record, columns, label_of(format_)) for record in records(format_, data, columns, cursor)]


def records(
    format_: InputFormat, data: bytes, columns: Columns = COLUMNS, cursor: Cursor | None = None
) -> list[Record]:
    return list(read_records(format_, io.BytesIO(data), columns, cursor or Cursor()))


def parquet(table: pa.Table, **options: Any) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **options)
    return buffer.getvalue()


GOOD_LINE = b'{"id": "a", "body": "x"}\n'

#: (bytes of the second line, what the problem says, source id)
BAD_LINES: list[tuple[bytes, str, str | None]] = [
    (b'{"id": "b", "body": \n', "broken JSON: Expecting value at column 20", None),
    (b'{"id": "b", "body": "x"} x\n', "broken JSON: Extra data at column 26", None),
    (b'["b", "x"]\n', "a list, not an object", None),
    (b"12\n", "a int, not an object", None),
    (b'{"id": "b", "body": NaN}\n', "NaN is no number of JSON", None),
    (b'{"id": "b", "body": "x", "more": -Infinity}\n', "-Infinity is no number of JSON", None),
    (b'{"id": "b", "body": 1e999}\n', "the field 'body' holds inf, which is no number of JSON", "b"),
    (b'{"id": "b", "body": [1, 1e999]}\n', "the field 'body' holds NaN, infinity", "b"),
    (b'{"id": "b", "body": "\\ud800"}\n', "the field 'body' holds half of a surrogate pair", "b"),
    (b'{"id": "\\ud800", "body": "x"}\n', "the field 'id' holds half of a surrogate pair", "?"),
    (b'{"id": "b", "body": ' + b"9" * 5000 + b"}\n", "a number of more than 4,300 digits", None),
    (b'{"id": "b", "body": ' + b"[" * 100_000 + b"}\n", "JSON nested too deeply", None),
    (b'{"id": "b", "body": "\xff"}\n', "byte 0xff at 22 is no UTF-8", None),
    (b'{"body": "x"}\n', "no value in the id column 'id'; the row has 'body'", None),
    (b"{}\n", "no value in the id column 'id'; the row has no fields", None),
    (b'{"id": "", "body": "x"}\n', "no value in the id column 'id'", None),
    (b'{"id": null, "body": "x"}\n', "no value in the id column 'id'", None),
    (b'{"id": 1.5, "body": "x"}\n', "the id is a float", None),
    (b'{"id": true, "body": "x"}\n', "the id is a bool", None),
    (b'{"id": "' + b"i" * 513 + b'", "body": "x"}\n', "the id has 513 characters", None),
    (b'{"id": "b"}\n', "the field 'body', which the prompt uses, is missing; the row has 'id'", "b"),
    (b'{"id": "b", "body": null}\n', "the field 'body', which the prompt uses, is null", "b"),
]


@pytest.mark.parametrize(("line", "value", "source_id"), BAD_LINES)
def test_a_broken_line_is_named_and_the_next_is_read(line: bytes, value: str, source_id: str | None) -> None:
    """P7"""
    first, bad, last = read(JSONL, GOOD_LINE + line + GOOD_LINE)
    assert isinstance(first, GoodRow)
    assert isinstance(last, GoodRow)
    assert last.number == 3
    assert isinstance(bad, RowProblem)
    assert bad.place == "line 2"
    assert bad.value.startswith(value)
    assert bad.remedy
    assert bad.source_id == source_id


def test_a_document_of_20_mb_is_refused_without_being_held() -> None:
    """P7"""
    line = b'{"id": "b", "body": "' + b"x" * 20_000_000 + b'"}\n'
    _, bad, last = read(JSONL, GOOD_LINE + line + GOOD_LINE)
    assert isinstance(bad, RowProblem)
    assert (bad.place, bad.value) == ("line 2", "the line has 20.0 MB")
    assert isinstance(last, GoodRow)


def test_a_row_that_grows_over_the_limit_is_refused() -> None:
    """P7: as Parquet compresses, the size is known only after reading."""
    row = Record(number=4, end=0, content={"id": "b", "body": "x" * (rows.MAX_ROW_BYTES + 1)})
    bad = clean(row, COLUMNS, "row")
    assert isinstance(bad, RowProblem)
    assert (bad.place, bad.value) == ("row 4", "the row has 16.8 MB")


def test_marks_blank_lines_and_a_last_line_without_end() -> None:
    data = b"\xef\xbb\xbf\n" + GOOD_LINE + b"  \r\n" + b'{"id": 7, "body": "\xc3\xa9"}'
    first, last = read(JSONL, data)
    assert isinstance(first, GoodRow)
    assert isinstance(last, GoodRow)
    assert (first.number, last.number) == (2, 4)
    assert (last.source_id, last.fields["id"], last.fields["body"]) == ("7", "7", "é")


@pytest.mark.parametrize("format_", [JSONL, CSV])
def test_utf16_is_refused_whole(format_: InputFormat) -> None:
    with pytest.raises(Unreadable, match="line 1: the file begins with the UTF-16 mark 0xfffe; save the file as UTF-8"):
        records(format_, '{"id": 1}'.encode("utf-16"))


@pytest.mark.parametrize("format_", [JSONL, CSV])
def test_an_empty_file_has_no_rows(format_: InputFormat) -> None:
    assert records(format_, b"") == []
    assert records(format_, b"\xef\xbb\xbf\n\n") == []


def test_only_the_needed_columns_are_kept() -> None:
    """M5: an added column changes no block."""
    gold = {"gold": {"field": "label", "accuracy": 0.5}}
    pipeline = make_pipeline(
        input={"id": "id", "fields": ["body"], "version": "at"}, gates=gold, publish={"columns": ["who", "body"]}
    )
    line = json.dumps({"z": 1, "id": "a", "at": 3, "who": None, "body": "x", "label": "k", "more": [1]}).encode()
    (row,) = read(JSONL, line, Columns.of(pipeline))
    assert isinstance(row, GoodRow)
    assert row.fields == {"id": "a", "body": "x", "at": 3, "label": "k", "who": None}
    assert source_version(row.fields, Columns.of(pipeline)) == "3"


def test_without_a_version_the_prompts_fields_decide() -> None:
    """M3"""
    columns = Columns.of(make_pipeline(input={"id": "id", "fields": ["body"], "version": "at"}))
    versions = [source_version({"id": "a", "body": body, "who": who}, columns) for body, who in ("xa", "xb", "ya")]
    assert versions[0] == versions[1] != versions[2]


#: (bytes of a CSV after its header, what the problems say by place)
BAD_CSV: list[tuple[bytes, dict[str, str]]] = [
    (b"a,x\nb\nc,z\n", {"row 3": "1 fields where the header 'id', … has 2"}),
    (b"a,x\nb,y,z\n", {"row 3": "3 fields"}),
    (b'a,"x"y\nb,y\n', {"row 2": "broken CSV: ',' expected after '\"'"}),
    (b'a,x\nb,"y\nc,z\n', {"row 3": "broken CSV: unexpected end of data"}),
    (b"a,x\n\xff,y\nc,z\n", {"row 3": "byte 0xff at 1 is no UTF-8"}),
    (b'"a\n",x\n"b\n\xff",y\nc,z\n', {"row 3": "byte 0xff at 1 is no UTF-8"}),
    (b",x\n", {"row 2": "no value in the id column 'id'"}),
]


@pytest.mark.parametrize(("body", "problems"), BAD_CSV)
def test_a_broken_csv_row_is_named(body: bytes, problems: dict[str, str]) -> None:
    """P7"""
    found = {row.place: row.value for row in read(CSV, b"id,body\n" + body) if isinstance(row, RowProblem)}
    assert list(found) == list(problems)
    assert all(found[place].startswith(value) for place, value in problems.items())


def test_csv_with_mark_quotes_line_ends_and_blank_lines() -> None:
    data = b'\xef\xbb\xbfid,body\r\n1,"a ""b"",\r\nc"\r\n\r\n2,\r\n'
    first, last = read(CSV, data)
    assert isinstance(first, GoodRow)
    assert isinstance(last, GoodRow)
    assert (first.number, first.fields) == (2, {"id": "1", "body": 'a "b",\r\nc'})
    assert (last.number, last.fields["body"]) == (3, "")


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (b"id,body,id", "row 1: the column 'id' appears twice"),
        (b"id,text", "row 1: no column 'body', the columns are 'id', 'text'; add it"),
        (b"id;body", "separate the columns by commas"),
        (b"id,\xff", "row 1: byte 0xff at 4 is no UTF-8"),
        (b'"id"x,body', "row 1: broken CSV header"),
    ],
)
def test_a_header_that_can_not_be_used_refuses_the_file(header: bytes, text: str) -> None:
    with pytest.raises(Unreadable) as caught:
        records(CSV, header + b"\n1,2\n")
    assert text in str(caught.value)


def test_parquet_values_become_json() -> None:
    table = pa.table(
        {
            "id": [1, 2, 3],
            "body": ["x", "y", None],
            "who": [Decimal("1.50"), None, None],
            "on": [date(2026, 1, 2), None, None],
        }
    )
    columns = Columns.of(make_pipeline(publish={"columns": ["who", "on"]}))
    first, second, third = read(PARQUET, parquet(table), columns)
    assert isinstance(first, GoodRow)
    assert first.fields == {"id": "1", "body": "x", "who": "1.50", "on": "2026-01-02"}
    assert isinstance(second, GoodRow)
    assert isinstance(third, RowProblem)
    assert (third.place, third.source_id) == ("row 3", "3")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1.0, math.nan], "the field 'body' holds nan, which is no number of JSON"),
        ([b"x", b"\xff"], "the field 'body' holds a bytes, which is no text"),
    ],
)
def test_parquet_values_that_json_lacks(values: Sequence[Any], text: str) -> None:
    bad = read(PARQUET, parquet(pa.table({"id": ["a", "b"], "body": values})))[1]
    assert isinstance(bad, RowProblem)
    assert (bad.place, bad.value) == ("row 2", text)


def test_parquet_text_that_is_no_utf8() -> None:
    text = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"x\xff")]
    )
    first, bad = read(PARQUET, parquet(pa.table({"id": ["a", "b"], "body": text})))
    assert isinstance(first, GoodRow)
    assert isinstance(bad, RowProblem)
    assert (bad.place, bad.value) == ("row 2", "a text that is no UTF-8")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"id,body\n", "the file is no Parquet"),
        (b"", "the file is no Parquet"),
        (parquet(pa.table({"id": ["a"]})), "schema: no column 'body'"),
        (
            parquet(pa.table([["a"], ["b"], ["c"]], names=["id", "body", "body"])),
            "schema: the column 'body' appears twice",
        ),
    ],
)
def test_a_parquet_file_that_can_not_be_used(data: bytes, text: str) -> None:
    with pytest.raises(Unreadable, match=text):
        records(PARQUET, data)


def test_a_parquet_file_that_breaks_off_inside() -> None:
    data = bytearray(parquet(pa.table({"id": [str(n) for n in range(5000)], "body": ["x" * 50] * 5000})))
    data[100:2000] = b"\x7f" * 1900
    with pytest.raises(Unreadable, match="broken Parquet"):
        records(PARQUET, bytes(data))


LINES = st.lists(
    st.sampled_from([
        GOOD_LINE, b"\n", b"{\n", b"\xff\n", b'{"id": "b"}\n', '{"id": 5, "body": "é\\n"}\r\n'.encode(), b" \n",
    ]),
    max_size=12,
)  # fmt: skip
CSV_ROWS = st.lists(
    st.sampled_from([b"a,x\n", b'b,"x\ny"\r\n', b"\n", b"\xff,x\n", b"c\n", b'd,"x"y\n', b'"e\n",""""\n']), max_size=12
)


@given(lines=LINES, mark=st.booleans())
def test_jsonl_goes_on_at_every_cursor(lines: list[bytes], mark: bool) -> None:
    """M4"""
    check_every_cursor(JSONL, b"\xef\xbb\xbf" * mark + b"".join(lines))


@given(lines=CSV_ROWS, mark=st.booleans())
def test_csv_goes_on_at_every_cursor(lines: list[bytes], mark: bool) -> None:
    """M4"""
    check_every_cursor(CSV, b"\xef\xbb\xbf" * mark + b"id,body\n" + b"".join(lines))


def test_parquet_goes_on_at_every_cursor() -> None:
    """M4: across row groups and read batches."""
    table = pa.table({"id": list(range(700)), "body": [str(n) for n in range(700)]})
    data = parquet(table, row_group_size=300)
    whole = records(PARQUET, data)
    assert [record.number for record in whole] == list(range(1, 701))
    for cut in (0, 1, 255, 256, 257, 299, 300, 301, 600, 699, 700):
        assert records(PARQUET, data, cursor=Cursor(row=cut)) == whole[cut:]


def check_every_cursor(format_: InputFormat, data: bytes) -> None:
    whole = records(format_, data)
    for index, record in enumerate(whole):
        assert records(format_, data, cursor=Cursor(row=record.number, offset=record.end)) == whole[index + 1 :]


def test_labels() -> None:
    assert [readers.label_of(format_) for format_ in (JSONL, CSV, PARQUET)] == ["line", "row", "row"]
