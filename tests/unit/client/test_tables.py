"""Result rows as JSONL, CSV and Parquet: the same values in each."""

import csv
import io
import json
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.client import tables
from nightmill.client.tables import Format, write_rows

ROWS: list[dict[str, Any]] = [
    {"id": "a", "n": 1, "tags": ["x"], "rest": {"k": 1}, "ok": True, "none": None},
    {"id": 'b,"\n', "n": 2.5, "tags": [], "rest": "text", "ok": None, "none": None},
]


def written(rows: list[dict[str, Any]], format_: Format) -> bytes:
    file = io.BytesIO()
    assert write_rows(rows, file, format_) == len(rows)
    return file.getvalue()


def test_jsonl() -> None:
    assert [json.loads(line) for line in written(ROWS, "jsonl").splitlines()] == ROWS


def test_csv() -> None:
    first, second = csv.DictReader(io.StringIO(written(ROWS, "csv").decode(), newline=""))
    assert first == {"id": "a", "n": "1", "tags": '["x"]', "rest": '{"k": 1}', "ok": "true", "none": ""}
    assert second["id"] == 'b,"\n'


def test_parquet() -> None:
    """A column of two kinds becomes JSON text; integers and fractions become fractions; all null is text."""
    table = pq.read_table(io.BytesIO(written(ROWS, "parquet")))
    assert table.column("n").to_pylist() == [1.0, 2.5]
    assert table.column("tags").to_pylist() == [["x"], []]
    assert table.column("rest").to_pylist() == ['{"k": 1}', "text"]
    assert str(table.schema.field("none").type) == "string"


@pytest.mark.parametrize("format_", ["jsonl", "csv", "parquet"])
def test_nothing_at_all(format_: Format) -> None:
    assert b"{" not in written([], format_)


@given(
    st.lists(st.fixed_dictionaries({"v": st.none() | st.integers() | st.text() | st.lists(st.integers() | st.text())}))
)
def test_parquet_loses_no_row_whatever_the_values(rows: list[dict[str, Any]]) -> None:
    """Q4: neither order nor number changes, over batches too."""
    before, tables._ROWS_AT_ONCE = tables._ROWS_AT_ONCE, 2
    try:
        data = written(rows, "parquet")
    finally:
        tables._ROWS_AT_ONCE = before
    assert pq.read_table(io.BytesIO(data)).num_rows == len(rows)
