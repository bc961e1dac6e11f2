"""Which output schemas go to a provider's structured output, and how."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.provider_gateway.adapters.schemas import closed, is_strict

TEXT = {"type": "string"}
OPEN: dict[str, Any] = {"type": "object", "properties": {}, "required": []}


def thing(properties: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A closed object whose every property is required."""
    named = {"a": TEXT} if properties is None else properties
    return {"type": "object", "properties": named, "required": list(named), "additionalProperties": False, **fields}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (thing(), True),
        (thing({"a": {"type": ["string", "null"], "pattern": "^x"}, "b": {"enum": [1, 2]}}), True),
        (thing({"a": {"type": "array", "items": thing()}}), True),
        (thing({"a": {"anyOf": [TEXT, {"type": "null"}]}}), True),
        (thing({"a": {"$ref": "#/$defs/x"}}, **{"$defs": {"x": thing()}}), True),
        (thing(required=[]), False),
        (thing(additionalProperties=True), False),
        ({"type": "object", "properties": {"a": TEXT}, "required": ["a"]}, False),
        (thing({"a": {"type": "string", "minLength": 1}}), False),
        (thing({"a": {"type": "array", "items": {"type": "object"}}}), False),
        (thing({"a": {"allOf": [TEXT]}}), False),
        (thing({"a": {"anyOf": [TEXT, thing(required=[])]}}), False),
        (thing({"a": True}), False),
        (thing(anyOf=[thing()]), False),
        ({"type": "array", "items": TEXT}, False),
    ],
)
def test_what_strict_mode_holds(schema: dict[str, Any], strict: bool) -> None:
    assert is_strict(schema) is strict


@pytest.mark.parametrize(
    ("schema", "sent"),
    [
        (thing(), thing()),
        ({"type": "object", "properties": {"a": TEXT}}, {**thing(), "required": None}),
        (thing({"a": {"type": "number", "minimum": 0, "maximum": 1}}), thing({"a": {"type": "number"}})),
        (thing({"a": {"oneOf": [TEXT, {"type": "null"}]}}), thing({"a": {"anyOf": [TEXT, {"type": "null"}]}})),
        (
            thing({"a": {"type": "array", "items": OPEN, "maxItems": 3}}),
            thing({"a": {"type": "array", "items": thing({})}}),
        ),
        (thing(additionalProperties=True), thing()),
        (thing(additionalProperties=TEXT), None),
        (thing(required=["a", "b"]), None),
        ({"type": "object"}, None),
        (thing({"a": {"$ref": "#"}}), None),
        (thing({"a": {"not": TEXT}}), None),
        (thing({"a": {"type": "array", "items": {"type": "object"}}}), None),
        ({"type": "array", "items": TEXT}, None),
    ],
)  # fmt: skip
def test_what_anthropic_is_sent(schema: dict[str, Any], sent: dict[str, Any] | None) -> None:
    """A schema it can not take is left to the prompt and the validator."""
    wanted = None if sent is None else {name: value for name, value in sent.items() if value is not None}
    assert closed(schema) == wanted


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["string", "object", "array", "a"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "properties", "items", "anyOf", "required", "enum"]), inner, max_size=4
        )
    ),
)


@given(st.dictionaries(st.sampled_from(["type", "properties", "items", "anyOf", "$defs", "required"]), ANY_JSON))
def test_any_object_gets_an_answer(schema: dict[str, Any]) -> None:
    """M2: admission refuses what is no schema; nothing here may raise on what it lets through."""
    is_strict({**schema, "type": "object"})
    closed({**schema, "type": "object"})
