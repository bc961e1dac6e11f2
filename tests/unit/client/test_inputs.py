"""Inputs: what is streamed up, and what is said of those that can not be read."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nightmill.client.errors import BadInput
from nightmill.client.inputs import source_of
from nightmill.kernel.domain.lifecycle import InputFormat

pd = pytest.importorskip("pandas")


def content(given: Any) -> bytes:
    return b"".join(source_of(given).open())


def lines(given: Any) -> list[Any]:
    return [json.loads(line) for line in content(given).splitlines()]


@pytest.mark.parametrize(
    ("name", "format_"),
    [
        ("a.jsonl", InputFormat.JSONL),
        ("a.NDJSON", InputFormat.JSONL),
        ("a.csv", InputFormat.CSV),
        ("a.parquet", InputFormat.PARQUET),
    ],
)
def test_files_go_up_as_they_are(tmp_path: Path, name: str, format_: InputFormat) -> None:
    """P2: bytes are not touched, whatever they hold."""
    path = tmp_path / name
    path.write_bytes(b"\xef\xbb\xbf" + bytes(range(256)) * 3000)
    source = source_of(str(path))
    assert (source.format, source.name) == (format_, str(path))
    assert content(path) == path.read_bytes()


def test_a_folder_of_texts(tmp_path: Path) -> None:
    """P2: relative paths are the ids, hidden files are no documents, a byte order mark is no text."""
    for path, text in {
        "b.txt": "zwei ü",
        "a/x.md": "\ufeffone\nline",
        "a/empty.txt": "",
        ".hidden": "no",
        "a/.git/x": "no",
    }.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert lines(tmp_path) == [
        {"id": "b.txt", "text": "zwei ü"},
        {"id": "a/empty.txt", "text": ""},
        {"id": "a/x.md", "text": "one\nline"},
    ]


def test_rows_and_tables(tmp_path: Path) -> None:
    """P2: a list of dicts, pandas and pyarrow tables."""
    rows = [{"id": "a", "n": 1}, {"id": "b", "n": None}]
    assert lines(rows) == rows
    assert lines(iter(rows)) == rows
    for table in (pa.Table.from_pylist(rows), pd.DataFrame(rows)):
        source = source_of(table)
        assert source.format is InputFormat.PARQUET
        path = tmp_path / "table.parquet"
        path.write_bytes(content(table))
        assert pq.read_table(path).column("id").to_pylist() == ["a", "b"]


def test_the_same_source_can_be_read_again(tmp_path: Path) -> None:
    source = source_of([{"id": 1}])
    assert list(source.open()) == list(source.open())


class TestWhatCanNotBeRead:
    """Each error names place and remedy; nothing has been sent."""

    def refused(self, given: Any) -> BadInput:
        with pytest.raises(BadInput) as caught:
            content(given)
        assert caught.value.exit_code == 2
        return caught.value

    def test_missing(self, tmp_path: Path) -> None:
        error = self.refused(tmp_path / "nothing.jsonl")
        assert error.message == f"{tmp_path / 'nothing.jsonl'}: no such file or folder"

    def test_empty(self, tmp_path: Path) -> None:
        (tmp_path / "x.jsonl").touch()
        assert self.refused(tmp_path / "x.jsonl").message.endswith("x.jsonl: is empty")

    def test_no_name(self) -> None:
        """O1: what a shell writes for a variable that is not set is not this folder."""
        assert self.refused("").message == "input: is empty"

    def test_empty_folder(self, tmp_path: Path) -> None:
        assert "no file in this folder" in self.refused(tmp_path).message

    def test_no_regular_file(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe.jsonl")
        assert "neither a file nor a folder" in self.refused(tmp_path / "pipe.jsonl").message

    def test_unreadable(self, tmp_path: Path) -> None:
        # reading this one fails for everybody, root too
        (tmp_path / "x.jsonl").symlink_to("/proc/self/mem")
        assert "x.jsonl: can not be read: Input/output error" in self.refused(tmp_path / "x.jsonl").message

    def test_unknown_ending(self, tmp_path: Path) -> None:
        (tmp_path / "x.xlsx").write_bytes(b"PK")
        error = self.refused(tmp_path / "x.xlsx")
        assert ".xlsx says no format" in error.message
        assert ".jsonl" in error.remedy

    def test_not_utf8_in_a_folder(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_bytes(b"caf\xe9")
        error = self.refused(tmp_path)
        assert error.message == f"{tmp_path / 'a.txt'}: not UTF-8 at byte 4"

    def test_rows_that_are_no_json(self) -> None:
        assert "row 2" in self.refused([{"id": 1}, {"id": float("nan")}]).message
        assert "row 1: a str, not a dict" in self.refused(["text"]).message
        assert "row 1" in self.refused([{"id": object()}]).message

    def test_an_empty_table(self) -> None:
        assert "no rows" in self.refused(pa.table({"id": pa.array([], pa.string())})).message

    @pytest.mark.parametrize("given", [3, None, b"bytes", {"id": 1}])
    def test_other_things(self, given: Any) -> None:
        assert "can not be read" in self.refused(given).message
