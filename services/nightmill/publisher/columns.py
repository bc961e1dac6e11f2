"""Columns of a result, derived from the pipeline alone, so that an empty result has the same columns as a full one.

Names: an output field keeps its name. An input column of the same name becomes `input_<name>`. Names with a leading
underscore are ours: an output field of such a name becomes `output_<name>`, an input column `input_<name>`.

Kinds: strings, integers, numbers, booleans, and arrays of one of them, as the output schema says; anything else is JSON
text. Input columns are text, whatever they were: a string as it is, another value as JSON. An embedding is one column,
a list of 32-bit floats of fixed size. Where an accepted value does not fit its kind after all (an integer past 64
bits), the whole column becomes JSON text: nothing is cut or dropped.
"""

from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from nightmill.kernel.domain.pipeline import Embedding, Pipeline, canonical_json


class Kind(StrEnum):
    """What a column holds in a typed file."""

    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    STRINGS = "strings"
    INTEGERS = "integers"
    NUMBERS = "numbers"
    BOOLEANS = "booleans"
    VECTOR = "vector"  #: 32-bit floats, as many in every row
    JSON = "json"


class Origin(StrEnum):
    """Where a column's value comes from."""

    INPUT = "input"  #: a column of the input row
    OUTPUT = "output"  #: a field of the answer
    REST = "rest"  #: the answer's fields that its schema does not name, together
    WHOLE = "whole"  #: the answer itself, where it is no object
    RECORD = "record"  #: what the publisher knows of the row


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a result."""

    name: str
    origin: Origin
    source: str  #: name at its origin
    kind: Kind
    dimensions: int | None = None  #: of a vector


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedRow:
    """Everything a result row is made of."""

    record: Mapping[str, Any]  #: what the publisher knows
    original: Mapping[str, Any]  #: the input row; empty when no column of it is asked for
    answer: Any


class Misfit(Exception):
    """A value that its column's kind cannot hold; the column must become JSON text."""

    def __init__(self, column: str) -> None:
        super().__init__(column)
        self.column = column


#: what the publisher knows of every accepted row
RECORD_COLUMNS = (
    Column(name="_source_id", origin=Origin.RECORD, source="source_id", kind=Kind.STRING),
    Column(name="_status", origin=Origin.RECORD, source="outcome", kind=Kind.STRING),
    Column(name="_rule", origin=Origin.RECORD, source="rule", kind=Kind.STRING),
    Column(name="_attempt_id", origin=Origin.RECORD, source="attempt_id", kind=Kind.STRING),
    Column(name="_model", origin=Origin.RECORD, source="model", kind=Kind.STRING),
    Column(name="_cost_nano_usd", origin=Origin.RECORD, source="cost_nano_usd", kind=Kind.INTEGER),
    Column(name="_versions", origin=Origin.RECORD, source="versions", kind=Kind.JSON),
)

#: columns of the failures file
FAILURE_COLUMNS = tuple(
    Column(name=name, origin=Origin.RECORD, source=source, kind=kind)
    for name, source, kind in (
        ("source_id", "source_id", Kind.STRING),
        ("ordinal", "ordinal", Kind.INTEGER),
        ("status", "outcome", Kind.STRING),
        ("rule", "rule", Kind.STRING),
        ("field", "field", Kind.STRING),
        ("value", "value", Kind.STRING),
        ("failure_class", "failure_class", Kind.STRING),
        ("signal", "signal", Kind.STRING),
        ("attempt_id", "attempt_id", Kind.STRING),
        ("model", "model", Kind.STRING),
        ("cost_nano_usd", "cost_nano_usd", Kind.INTEGER),
    )
)

_SCALARS = {
    "string": Kind.STRING,
    "integer": Kind.INTEGER,
    "number": Kind.NUMBER,
    "boolean": Kind.BOOLEAN,
}
_LISTS = {
    Kind.STRING: Kind.STRINGS,
    Kind.INTEGER: Kind.INTEGERS,
    Kind.NUMBER: Kind.NUMBERS,
    Kind.BOOLEAN: Kind.BOOLEANS,
}
_MEMBERS = {plural: single for single, plural in _LISTS.items()}
#: types that a column of the kind takes as they are
_PLAIN = {
    Kind.STRING: frozenset({str, type(None)}),
    Kind.NUMBER: frozenset({float, type(None)}),
    Kind.BOOLEAN: frozenset({bool, type(None)}),
}
_INT64 = range(-(2**63), 2**63)


def result_columns(pipeline: Pipeline, *, as_json: Collection[str] = ()) -> tuple[Column, ...]:
    """Columns of the pipeline's accepted rows: input columns asked for, output fields, our own.

    Columns named in `as_json` are JSON text whatever the schema says.
    """
    outputs = _output_columns(pipeline.output) if pipeline.embedding is None else [_vector(pipeline.embedding)]
    taken = {column.name for column in (*outputs, *RECORD_COLUMNS)}
    inputs = []
    for source in pipeline.publish.columns:
        name = f"input_{source}" if source.startswith("_") else source
        while name in taken:
            name = f"input_{name}"
        taken.add(name)
        inputs.append(Column(name=name, origin=Origin.INPUT, source=source, kind=Kind.STRING))
    return tuple(
        replace(c, kind=Kind.JSON, dimensions=None) if c.name in as_json else c
        for c in (*inputs, *outputs, *RECORD_COLUMNS)
    )


def natural(column: Column, rows: Sequence[AcceptedRow], named: Collection[str]) -> list[Any]:
    """The column's values as JSON holds them, but for vectors, of which `plain` makes lists.

    `named` are the answer's fields that have a column of their own.
    """
    source = column.source
    match column.origin:
        case Origin.INPUT:
            return [row.original.get(source) for row in rows]
        case Origin.OUTPUT:
            return [row.answer.get(source) if isinstance(row.answer, dict) else None for row in rows]
        case Origin.REST:
            return [_rest(row.answer, named) for row in rows]
        case Origin.WHOLE:
            return [row.answer for row in rows]
        case Origin.RECORD:
            return [row.record[source] for row in rows]


def typed(column: Column, values: Sequence[Any]) -> Sequence[Any]:
    """`values` as a typed file holds them. Raises `Misfit`."""
    if column.origin is Origin.INPUT:
        return [value if isinstance(value, str | None) else json_text(value) for value in values]
    if set(map(type, values)) <= _PLAIN.get(column.kind, frozenset()):
        return values
    if column.kind is Kind.JSON:
        return _json_texts(values)
    if column.kind is Kind.VECTOR:
        return [_numbers(column, value) for value in values]
    member = _MEMBERS.get(column.kind)
    if member is None:
        return [None if value is None else _scalar(column.name, column.kind, value) for value in values]
    return [None if value is None else _list(column.name, member, value) for value in values]


def plain(value: Any) -> Any:
    """A value as JSON has it: a vector is a list there."""
    return list(value) if isinstance(value, array) else value


def json_text(value: Any) -> str:
    """Canonical JSON of a value."""
    return canonical_json(plain(value)).decode()


def _numbers(column: Column, value: Any) -> "array[float] | None":
    """A vector's numbers; many thousands of them as objects would take ten times the room."""
    if value is None:
        return None
    if not isinstance(value, array | list) or len(value) != column.dimensions:
        raise Misfit(column.name)
    try:
        return value if isinstance(value, array) else array("f", value)
    except TypeError as error:
        raise Misfit(column.name) from error


def _vector(embedding: Embedding) -> Column:
    dimensions = embedding.dimensions
    return Column(name="embedding", origin=Origin.WHOLE, source="embedding", kind=Kind.VECTOR, dimensions=dimensions)


def _rest(answer: Any, named: Collection[str]) -> Any:
    if not isinstance(answer, dict):
        return answer
    return {name: value for name, value in answer.items() if name not in named} or None


def _json_texts(values: Sequence[Any]) -> list[str | None]:
    """JSON of each value; many rows share one object, which is written once."""
    texts: list[str | None] = []
    last, text = None, None
    for value in values:
        if value is not last:
            last, text = value, None if value is None else json_text(value)
        texts.append(text)
    return texts


def _list(name: str, member: Kind, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise Misfit(name)
    return [None if item is None else _scalar(name, member, item) for item in value]


def _scalar(name: str, kind: Kind, value: Any) -> Any:
    match kind, value:
        case (Kind.STRING, str()) | (Kind.BOOLEAN, bool()):
            return value
        case (Kind.INTEGER, int()) if not isinstance(value, bool) and value in _INT64:
            return value
        case (Kind.INTEGER, float()) if value.is_integer() and int(value) in _INT64:
            return int(value)
        case (Kind.NUMBER, float()):
            return value
        case (Kind.NUMBER, int()) if not isinstance(value, bool) and abs(value) <= 2**53:
            return float(value)
        case _:
            raise Misfit(name)


def _output_columns(schema: Mapping[str, Any]) -> list[Column]:
    properties = schema.get("properties")
    if schema.get("type", "object") != "object" or not isinstance(properties, dict):
        return [Column(name="output", origin=Origin.WHOLE, source="output", kind=_kind(schema))]
    columns: list[Column] = []
    taken = set(properties)
    for source, field in properties.items():
        name = source
        while name.startswith("_") or (name != source and name in taken):
            name = f"output_{name}"
        taken.add(name)
        columns.append(Column(name=name, origin=Origin.OUTPUT, source=source, kind=_kind(field)))
    if schema.get("additionalProperties", True) is not False or "type" not in schema:
        name = "other_fields"
        while name in taken:
            name = f"output_{name}"
        columns.append(Column(name=name, origin=Origin.REST, source="", kind=Kind.JSON))
    return columns


def _kind(schema: Any) -> Kind:
    """Kind of a field's schema; JSON text whenever it may hold more than one kind."""
    if not isinstance(schema, dict):
        return Kind.JSON
    name = _type_name(schema)
    if name == "array":
        return _LISTS.get(_kind(schema.get("items")), Kind.JSON)
    return _SCALARS.get(name, Kind.JSON)


def _type_name(schema: Mapping[str, Any]) -> str:
    declared = schema.get("type")
    names = [declared] if isinstance(declared, str) else list(declared or ())
    names = [name for name in names if name != "null"]
    if names:
        return str(names[0]) if len(names) == 1 else ""
    values = [value for value in schema.get("enum", ()) if value is not None]
    if "const" in schema:
        values = [schema["const"]]
    return "string" if values and all(isinstance(value, str) for value in values) else ""
