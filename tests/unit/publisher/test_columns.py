"""Columns come from the pipeline alone; names never clash; nothing that was accepted is cut."""

from typing import Any

import pytest

from nightmill.publisher.columns import Column, Kind, Misfit, Origin, result_columns, typed
from unit.publisher.world import pipeline


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "string"}, Kind.STRING),
        ({"type": ["string", "null"]}, Kind.STRING),
        ({"enum": ["a", "b", None]}, Kind.STRING),
        ({"const": "a"}, Kind.STRING),
        ({"enum": ["a", 1]}, Kind.JSON),
        ({"type": "integer"}, Kind.INTEGER),
        ({"type": "number"}, Kind.NUMBER),
        ({"type": "boolean"}, Kind.BOOLEAN),
        ({"type": ["string", "integer"]}, Kind.JSON),
        ({"type": "array", "items": {"type": "string"}}, Kind.STRINGS),
        ({"type": "array", "items": {"type": "object"}}, Kind.JSON),
        ({"type": "array"}, Kind.JSON),
        ({"type": "object"}, Kind.JSON),
        ({"anyOf": [{"type": "string"}]}, Kind.JSON),
        (True, Kind.JSON),
    ],
)
def test_kinds(schema: Any, kind: Kind) -> None:
    lines = pipeline(output={"type": "object", "properties": {"x": schema}, "additionalProperties": False})
    assert [c.kind for c in result_columns(lines) if c.origin is Origin.OUTPUT] == [kind]


def test_names_never_clash() -> None:
    """Output fields keep their names; input columns and names with an underscore move aside."""
    fields = {name: {"type": "string"} for name in ("label", "_status", "other_fields")}
    lines = pipeline(
        output={"type": "object", "properties": fields},
        publish={"columns": ["label", "text", "_rule"]},
    )
    columns = result_columns(lines)
    names = [c.name for c in columns]
    assert names[:3] == ["input_label", "text", "input__rule"]
    assert names[3:7] == ["label", "output__status", "other_fields", "output_other_fields"]
    assert names[7:] == ["_source_id", "_status", "_rule", "_attempt_id", "_model", "_cost_nano_usd", "_versions"]
    assert len(set(names)) == len(names)


def test_an_answer_that_is_no_object_has_one_column() -> None:
    columns = result_columns(pipeline(output={"type": "array", "items": {"type": "integer"}}))
    assert [(c.name, c.kind) for c in columns if c.origin is Origin.WHOLE] == [("output", Kind.INTEGERS)]


@pytest.mark.parametrize(
    ("kind", "value", "held"),
    [
        (Kind.INTEGER, 5, 5),
        (Kind.INTEGER, 5.0, 5),
        (Kind.NUMBER, 5, 5.0),
        (Kind.NUMBER, None, None),
        (Kind.STRINGS, ["a", None], ["a", None]),
        (Kind.JSON, {"b": 1, "a": "é"}, '{"a":"é","b":1}'),
    ],
)
def test_values_that_fit(kind: Kind, value: Any, held: Any) -> None:
    assert typed(Column(name="x", origin=Origin.OUTPUT, source="x", kind=kind), [value]) == [held]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Kind.INTEGER, 2**63),
        (Kind.INTEGER, 1.5),
        (Kind.INTEGER, True),
        (Kind.NUMBER, 2**53 + 1),
        (Kind.STRING, 1),
        (Kind.STRINGS, "a"),
    ],
)
def test_values_that_do_not_fit(kind: Kind, value: Any) -> None:
    with pytest.raises(Misfit):
        typed(Column(name="x", origin=Origin.OUTPUT, source="x", kind=kind), [value])
