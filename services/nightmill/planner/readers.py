"""Readers of uploaded input: records from a cursor on, streaming, with the place of each (P2).

A reader may be dropped at any record and opened again at that record's cursor: it then yields the same records. Only
`\\n` bytes end a line. A row that can not be read is a record whose content is a `RowProblem`; the next one follows.
"""

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, NoReturn

from nightmill.kernel.domain.lifecycle import InputFormat
from nightmill.planner.parquet import read_parquet
from nightmill.planner.rows import MAX_ROW_BYTES, Columns, Record, RowProblem, Unreadable, shown

_UTF8_MARK = b"\xef\xbb\xbf"
_OTHER_MARKS = (b"\xff\xfe", b"\xfe\xff")
_SAVE_AS_UTF8 = "save the file as UTF-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """Where reading goes on: the last row's number, and the byte offset after it."""

    row: int = 0
    offset: int = 0


def label_of(format_: InputFormat) -> str:
    """What a place in an input of this format is called."""
    return "line" if format_ is InputFormat.JSONL else "row"


def read_records(format_: InputFormat, file: BinaryIO, columns: Columns, cursor: Cursor) -> Iterator[Record]:
    """Records after `cursor`. Raises `Unreadable` at the first record when the whole input can not be read."""
    match format_:
        case InputFormat.JSONL:
            return _read_jsonl(file, cursor)
        case InputFormat.CSV:
            return _read_csv(file, columns, cursor)
        case InputFormat.PARQUET:
            return read_parquet(file, columns, after=cursor.row)


class _BadLine(Exception):
    """A line that can not be turned into text or fields."""

    def __init__(self, value: str, remedy: str) -> None:
        super().__init__(value)
        self.value, self.remedy = value, remedy


class _Lines:
    """Lines of text from an offset on, line ends included; `offset` is the byte after the last line given."""

    def __init__(self, file: BinaryIO, offset: int) -> None:
        self._file = file
        self.offset = offset or _start(file)
        file.seek(self.offset)

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        """Raises `_BadLine` for a line that is no UTF-8 or too long; the one after it comes next."""
        raw = self._file.readline(MAX_ROW_BYTES + 1)
        self.offset += len(raw)
        if not raw:
            raise StopIteration
        if len(raw) > MAX_ROW_BYTES and not raw.endswith(b"\n"):
            raise self._too_long(len(raw))
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise _BadLine(f"byte 0x{raw[error.start]:02x} at {error.start + 1} is no UTF-8", _SAVE_AS_UTF8) from error

    def _too_long(self, size: int) -> _BadLine:
        """Passes the rest of the line."""
        while piece := self._file.readline(1 << 20):
            size += len(piece)
            self.offset += len(piece)
            if piece.endswith(b"\n"):
                break
        limit = f"{MAX_ROW_BYTES / 1e6:.1f} MB"
        return _BadLine(f"the line has {size / 1e6:.1f} MB", f"split the document; a row has at most {limit}")


def _start(file: BinaryIO) -> int:
    """Offset of the first line: after a UTF-8 byte order mark. Raises `Unreadable` for UTF-16."""
    file.seek(0)
    head = file.read(3)
    if head.startswith(_OTHER_MARKS):
        raise Unreadable(f"line 1: the file begins with the UTF-16 mark 0x{head[:2].hex()}; {_SAVE_AS_UTF8}")
    return 3 if head == _UTF8_MARK else 0


def _read_jsonl(file: BinaryIO, cursor: Cursor) -> Iterator[Record]:
    lines, number = _Lines(file, cursor.offset), cursor.row
    while True:
        number += 1
        try:
            line = next(lines, None)
        except _BadLine as bad:
            problem = RowProblem(place=f"line {number}", value=bad.value, remedy=bad.remedy)
            yield Record(number=number, end=lines.offset, content=problem)
            continue
        if line is None:
            return
        if not line.isspace():
            yield Record(number=number, end=lines.offset, content=_parse_object(line.rstrip(), f"line {number}"))


def _parse_object(line: str, place: str) -> dict[str, Any] | RowProblem:
    try:
        value = _JSON.decode(line)
    except json.JSONDecodeError as error:
        text = f"broken JSON: {error.msg} at column {error.colno}"
        return RowProblem(place=place, value=text, remedy="write one whole JSON object per line")
    except RecursionError:
        return RowProblem(place=place, value="JSON nested too deeply", remedy="write a flat object of fields")
    except _BadLine as bad:
        return RowProblem(place=place, value=bad.value, remedy=bad.remedy)
    except ValueError:  # Python's own limit for whole numbers
        return RowProblem(place=place, value="a number of more than 4,300 digits", remedy="write it as a text")
    if not isinstance(value, dict):
        kind = type(value).__name__
        return RowProblem(place=place, value=f"a {kind}, not an object", remedy="write one JSON object per line")
    return value


def _no_constant(name: str) -> NoReturn:
    raise _BadLine(f"{name} is no number of JSON", "write a finite number or null")


_JSON = json.JSONDecoder(parse_constant=_no_constant)


def _read_csv(file: BinaryIO, columns: Columns, cursor: Cursor) -> Iterator[Record]:
    csv.field_size_limit(MAX_ROW_BYTES)
    lines = _Lines(file, 0)
    header = _csv_header(lines)
    if header is None:
        return
    columns.check_header(header, "row 1")
    if cursor.row:
        lines = _Lines(file, cursor.offset)
    number = max(cursor.row, 1)
    rows = csv.reader(lines, strict=True)
    while True:
        number += 1
        place = f"row {number}"
        try:
            values = next(rows, None)
        except _BadLine as bad:
            problem = RowProblem(place=place, value=bad.value, remedy=bad.remedy)
            yield Record(number=number, end=lines.offset, content=problem)
            continue
        except csv.Error as error:
            problem = RowProblem(place=place, value=f"broken CSV: {error}", remedy='put fields that hold " or , in ""')
            yield Record(number=number, end=lines.offset, content=problem)
            continue
        if values is None:
            return
        if not values:  # a blank line is no row
            number -= 1
            continue
        yield Record(number=number, end=lines.offset, content=_csv_fields(header, values, place))


def _csv_header(lines: _Lines) -> tuple[str, ...] | None:
    """Names of the columns; None for an empty file."""
    try:
        names = next((row for row in csv.reader(lines, strict=True) if row), None)
    except _BadLine as bad:
        raise Unreadable(f"row 1: {bad.value}; {bad.remedy}") from bad
    except csv.Error as error:
        raise Unreadable(f"row 1: broken CSV header: {error}; write the names of the columns") from error
    return None if names is None else tuple(names)


def _csv_fields(header: tuple[str, ...], values: list[str], place: str) -> dict[str, str] | RowProblem:
    if len(values) != len(header):
        text = f"{len(values)} fields where the header {shown(header[0])}, … has {len(header)}"
        return RowProblem(place=place, value=text, remedy='put fields that hold , or line ends in ""')
    return dict(zip(header, values, strict=True))
