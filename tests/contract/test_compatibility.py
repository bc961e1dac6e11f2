"""The compatibility check: a table of changes, each verdict held against fastavro's own resolution."""

import io
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer

from nightmill.kernel.wire.compatibility import breaks

COLOUR = {"type": "enum", "name": "Colour", "symbols": ["red", "blue"]}
INNER = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}


def record(*fields: tuple[str, Any] | tuple[str, Any, Any], name: str = "Message") -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [
            {"name": field[0], "type": field[1], **({"default": field[2]} if len(field) > 2 else {})}
            for field in fields
        ],
    }


WRITER = record(("id", "string"), ("n", "int"), ("colour", COLOUR), ("maybe", ["null", "string"], None))
VALUE = {"id": "a", "n": 1, "colour": "blue", "maybe": "m"}
SAME: tuple[tuple[str, Any], ...] = (("id", "string"), ("n", "int"), ("colour", COLOUR), ("maybe", ["null", "string"]))


def changed(**types: Any) -> dict[str, Any]:
    return record(*((name, types.get(name, avro)) for name, avro in SAME))


READABLE = [
    pytest.param(WRITER, WRITER, VALUE, id="nothing changed"),
    pytest.param(WRITER, record(*SAME, ("more", ["null", "long"], None)), VALUE, id="added with a default"),
    pytest.param(WRITER, record(*SAME[:3]), VALUE, id="a field removed"),
    pytest.param(WRITER, record(*reversed(SAME)), VALUE, id="fields in another order"),
    pytest.param(WRITER, changed(n="long"), VALUE, id="int to long"),
    pytest.param(WRITER, changed(n="double"), VALUE, id="int to double"),
    pytest.param(WRITER, changed(n=["null", "long"]), VALUE, id="became optional"),
    pytest.param(WRITER, changed(id="bytes"), VALUE, id="string to bytes"),
    pytest.param(
        WRITER, changed(colour={**COLOUR, "symbols": ["green", "blue", "red"]}), VALUE, id="an enum symbol added"
    ),
    pytest.param(
        WRITER,
        changed(colour={**COLOUR, "symbols": ["red"], "default": "red"}),
        VALUE,
        id="an enum symbol removed from one with a default",
    ),
    pytest.param(
        record(("a", INNER), ("b", ["null", "Inner"])),
        record(("a", {**INNER, "fields": [{"name": "x", "type": "long"}]}), ("b", ["null", "Inner"])),
        {"a": {"x": 1}, "b": {"x": 2}},
        id="a type by its name",
    ),
    pytest.param(
        record(("list", {"type": "array", "items": "int"}), ("map", {"type": "map", "values": "int"})),
        record(("list", {"type": "array", "items": "long"}), ("map", {"type": "map", "values": "long"})),
        {"list": [1], "map": {"a": 1}},
        id="promoted in containers",
    ),
]

UNREADABLE = [
    pytest.param(WRITER, record(*SAME, ("more", "long")), VALUE, ["more: added without a default"], id="added"),
    pytest.param(
        WRITER, record(*SAME, ("more", ["null", "long"])), VALUE, ["more: added without a default"], id="added optional"
    ),
    pytest.param(
        record(("old", "string")),
        record(("new", "string")),
        {"old": "x"},
        ["new: added without a default"],
        id="renamed",
    ),
    pytest.param(WRITER, changed(n="string"), VALUE, ["n: changed from int to string"], id="type changed"),
    pytest.param(
        record(("n", "long")), record(("n", "int")), {"n": 1}, ["n: changed from long to int"], id="long to int"
    ),
    pytest.param(
        WRITER,
        changed(colour={**COLOUR, "symbols": ["red"]}),
        VALUE,
        ["colour: symbol blue of Colour was removed"],
        id="an enum symbol removed",
    ),
    pytest.param(
        WRITER,
        changed(colour="string"),
        VALUE,
        ["colour: changed from enum Colour to string"],
        id="an enum became a string",
    ),
    pytest.param(
        WRITER, changed(maybe="string"), {**VALUE, "maybe": None}, ["maybe: changed from null to string"], id="required"
    ),
    pytest.param(
        WRITER, changed(maybe=["null", "long"]), VALUE, ["maybe: string is no longer allowed"], id="a branch removed"
    ),
    pytest.param(
        record(("a", {"type": "array", "items": ["null", INNER]})),
        record(("a", {"type": "array", "items": ["null", {**INNER, "fields": [{"name": "y", "type": "int"}]}]})),
        {"a": [{"x": 1}]},
        ["a.y: added without a default"],
        id="deep inside",
    ),
    pytest.param(
        record(("a", {"type": "map", "values": "long"})),
        record(("a", {"type": "map", "values": "boolean"})),
        {"a": {"k": 1}},
        ["a: changed from long to boolean"],
        id="values of a map",
    ),
]


def resolve(writer: Any, reader: Any, value: Any) -> Any:
    buffer = io.BytesIO()
    schemaless_writer(buffer, parse_schema(writer), value)
    buffer.seek(0)
    return schemaless_reader(buffer, parse_schema(writer), parse_schema(reader))


@pytest.mark.parametrize(("writer", "reader", "value"), READABLE)
def test_a_compatible_change_is_none_and_avro_reads_it(writer: Any, reader: Any, value: Any) -> None:
    assert breaks(writer=writer, reader=reader) == []
    assert resolve(writer, reader, value)


@pytest.mark.parametrize(("writer", "reader", "value", "problems"), UNREADABLE)
def test_a_break_names_its_field_and_avro_can_not_read_it(
    writer: Any, reader: Any, value: Any, problems: list[str]
) -> None:
    assert breaks(writer=writer, reader=reader) == problems
    with pytest.raises(Exception, match=r".+"):
        resolve(writer, reader, value)


def test_every_problem_is_told() -> None:
    reader = record(("id", "int"), ("n", "int"), ("colour", {**COLOUR, "symbols": []}), ("x", "int"), ("y", "int"))
    assert breaks(writer=WRITER, reader=reader) == [
        "id: changed from string to int",
        "colour: symbol red of Colour was removed",
        "colour: symbol blue of Colour was removed",
        "x: added without a default",
        "y: added without a default",
    ]


def test_a_record_that_holds_itself_ends() -> None:
    tree = record(("next", ["null", "Message"]), ("n", "int"))
    assert breaks(writer=tree, reader=tree) == []
    grown = record(("next", ["null", "Message"]), ("n", "string"))
    assert breaks(writer=tree, reader=grown) == ["n: changed from int to string"]
