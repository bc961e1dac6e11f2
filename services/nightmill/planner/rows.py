"""Rows of an input: which columns are kept, what makes a row usable, and what is said of one that is not (P2, P7).

A row is cut down to the columns that its pipeline names, so an added column changes nothing that was paid for. What is
wrong with a row is a value, `RowProblem`; what is wrong with the whole input is `Unreadable`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from itertools import islice
from typing import Any

from nightmill.kernel.domain.ids import digest
from nightmill.kernel.domain.pipeline import Pipeline, canonical_json

#: a larger row is refused: it fits no model's context and would have to be held in memory whole
MAX_ROW_BYTES = 16 << 20
MAX_ID_CHARACTERS = 512
_SHOWN = 80
_NAMED = 20


class Unreadable(Exception):
    """The input as a whole can not be used; the text names place, value and remedy."""

    rule = "unreadable_input"


class RepeatedId(Unreadable):
    """Two rows share an id. Skipping bad rows is no remedy: nobody can say which of the two counts."""

    rule = "duplicate_ids"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowProblem:
    """Why a row can not be planned. `value` never holds document text."""

    place: str
    value: str
    remedy: str
    source_id: str | None = None

    @property
    def reason(self) -> str:
        return f"{self.value}; {self.remedy}"

    def as_json(self) -> dict[str, str | None]:
        """The row as the manifest lists it."""
        return {"place": self.place, "reason": self.reason, "source_id": self.source_id}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One row as a reader found it: its fields, or the problem that kept it from being read."""

    number: int  #: line of a JSONL file, row of a CSV (the header is row 1) or of a Parquet file (from 1)
    end: int  #: byte offset after the row; 0 where the format has none
    content: Mapping[str, Any] | RowProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodRow:
    """A row cut down to the kept columns; its id is a string."""

    number: int
    source_id: str
    fields: Mapping[str, Any]
    line: bytes  #: its canonical JSON, as a block holds it


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The columns a pipeline needs of its input."""

    id: str
    required: tuple[str, ...]  #: the prompt's fields
    version: str | None
    kept: tuple[str, ...]  #: all that go into blocks

    @classmethod
    def of(cls, pipeline: Pipeline) -> "Columns":
        source, gold = pipeline.input, pipeline.gates.gold
        optional = (
            *((source.version,) if source.version else ()),
            *((gold.gold_column,) if gold else ()),
            *pipeline.publish.columns,
        )
        kept = tuple(dict.fromkeys((source.id, *source.fields, *optional)))
        return cls(id=source.id, required=source.fields, version=source.version, kept=kept)

    def check_header(self, header: tuple[str, ...], place: str) -> None:
        """Raises `Unreadable` when a table's header repeats a column or lacks one that the pipeline names."""
        repeated = next((name for name in header if header.count(name) > 1), None)
        if repeated is not None:
            raise Unreadable(
                f"{place}: the column {shown(repeated)} appears twice; give every column a name of its own"
            )
        missing = next((name for name in self.kept if name not in header), None)
        if missing is not None:
            hint = "; separate the columns by commas" if len(header) == 1 and ";" in header[0] else ""
            raise Unreadable(
                f"{place}: no column {shown(missing)}, the columns are {_names(header)}{hint}; "
                "add it, or name another in pipeline.yaml"
            )


def shown(value: object) -> str:
    """A short quotation for messages."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _names(fields: Iterable[str]) -> str:
    return ", ".join(shown(name) for name in islice(fields, _NAMED))


def clean(record: Record, columns: Columns, label: str) -> GoodRow | RowProblem:
    """The kept part of a record, or what is wrong with it."""
    content = record.content
    if isinstance(content, RowProblem):
        return content
    place = f"{label} {record.number}"
    if columns.id not in content:
        return RowProblem(
            place=place,
            value=f"no value in the id column {shown(columns.id)}; the row has {_names(content) or 'no fields'}",
            remedy="name the right one in input.id of pipeline.yaml, or give every row an id of its own",
        )
    source_id = _source_id(content[columns.id], columns.id, place)
    if isinstance(source_id, RowProblem):
        return source_id
    problem = _missing_field(content, columns, place, source_id)
    if problem is not None:
        return problem
    return _measured(record.number, content, columns, place, source_id)


def source_version(fields: Mapping[str, Any], columns: Columns) -> str:
    """The version column's value, else the digest of the fields that the prompt uses."""
    stated = fields.get(columns.version) if columns.version else None
    if stated is not None:
        return stated if isinstance(stated, str) else canonical_json(stated).decode()
    return digest(canonical_json({name: fields[name] for name in columns.required}))


def _source_id(value: object, column: str, place: str) -> str | RowProblem:
    if value is None or value == "":
        return RowProblem(
            place=place, value=f"no value in the id column {shown(column)}", remedy="give every row an id of its own"
        )
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        kind = type(value).__name__
        return RowProblem(place=place, value=f"the id is a {kind}", remedy="ids are texts or whole numbers")
    if len(value) > MAX_ID_CHARACTERS:
        return RowProblem(
            place=place,
            value=f"the id has {len(value)} characters",
            remedy=f"use at most {MAX_ID_CHARACTERS}, or another column in input.id",
        )
    return value


def _missing_field(content: Mapping[str, Any], columns: Columns, place: str, source_id: str) -> RowProblem | None:
    for name in columns.required:
        if content.get(name) is None:
            state = "is null" if name in content else f"is missing; the row has {_names(content)}"
            return RowProblem(
                place=place,
                value=f"the field {shown(name)}, which the prompt uses, {state}",
                remedy="fill it, or take the row out",
                source_id=_printable(source_id),
            )
    return None


def _measured(
    number: int, content: Mapping[str, Any], columns: Columns, place: str, source_id: str
) -> GoodRow | RowProblem:
    try:
        fields = {name: _plain(content[name]) for name in columns.kept if name in content}
        fields[columns.id] = source_id
        line = canonical_json(fields)
    except (ValueError, TypeError, RecursionError):
        column = next(name for name in columns.kept if not _is_json(content.get(name)))
        return RowProblem(
            place=place,
            value=f"the field {shown(column)} holds {_fault(content[column])}",
            remedy="write a text, a finite number or null",
            source_id=_printable(source_id),
        )
    if len(line) > MAX_ROW_BYTES:
        return RowProblem(
            place=place,
            value=f"the row has {len(line) / 1e6:.1f} MB",
            remedy=f"split the document; a row has at most {MAX_ROW_BYTES / 1e6:.1f} MB",
            source_id=source_id,
        )
    return GoodRow(number=number, source_id=source_id, fields=fields, line=line)


def _plain(value: Any) -> Any:
    """A value of a typed table as JSON has it; dates in ISO form, decimals as text."""
    match value:
        case str() | int() | float() | None:
            return value
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            return str(value)
        case list() | tuple():
            return [_plain(entry) for entry in value]
        case dict():
            return {name: _plain(entry) for name, entry in value.items()}
        case _:
            return value


def _is_json(value: Any) -> bool:
    try:
        canonical_json(_plain(value))
    except (ValueError, TypeError, RecursionError):
        return False
    return True


def _fault(value: Any) -> str:
    match value:
        case float():
            return f"{value}, which is no number of JSON"
        case str():
            return "half of a surrogate pair, which is no character"
        case list() | dict():
            return "NaN, infinity, half a character or too deep a nesting inside a list or object"
        case _:
            return f"a {type(value).__name__}, which is no text"


def _printable(source_id: str) -> str:
    """The id with what UTF-8 can not hold replaced, for the manifest."""
    return source_id.encode("utf-8", "replace").decode()
