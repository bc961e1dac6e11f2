"""Answers: instances fit their schema, forms bend them, the same body gets the same answer."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.provider_simulator.answers import REFUSAL, compose
from nightmill.provider_simulator.asks import Ask
from nightmill.provider_simulator.draw import Draw
from nightmill.provider_simulator.instances import instance, quote
from nightmill.provider_simulator.plans import plan_of
from nightmill.provider_simulator.rules import AnswerRule

SOURCE = "The licence of this package is MIT, it says."
SCHEMAS: list[dict[str, Any]] = [
    {"enum": ["a", "b", 3]},
    {"const": {"x": 1}},
    {"type": "integer", "minimum": 3, "maximum": 5},
    {"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 5},
    {"type": "integer", "minimum": 1, "maximum": 100, "multipleOf": 7},
    {"type": "integer", "maximum": -5},
    {"type": "number", "minimum": 0, "maximum": 1},
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.0001},
    {"type": "number", "minimum": 2.5, "maximum": 2.5},
    {"type": "string", "minLength": 40, "maxLength": 50},
    {"type": "string", "maxLength": 3},
    {"type": ["string", "null"]},
    {"type": "boolean"},
    {"type": "array", "items": {"type": "integer"}, "minItems": 4, "maxItems": 6},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
    {"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True},
    {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    {"allOf": [{"required": ["a"]}, {"properties": {"a": {"type": "integer"}}, "type": "object"}]},
    {
        "type": "object",
        "properties": {"licence": {"enum": ["MIT", "BSD"]}, "tags": {"type": "array", "items": {"type": "string"}}},
        "required": ["licence", "tags"],
        "additionalProperties": False,
    },
    {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                },
                "required": ["name", "next"],
                "additionalProperties": False,
            }
        },
    },
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=[str(n) for n in range(len(SCHEMAS))])
def test_instances_fit_their_schema(schema: dict[str, Any]) -> None:
    validator = jsonschema_rs.validator_for(schema)
    for n in range(200):
        value = instance(schema, draw=Draw(n, b"body"), source=SOURCE)
        assert validator.is_valid(value), value
        assert plan_of(schema)(Draw(n, b"body"), SOURCE) == value


@given(source=st.text(max_size=300), digest=st.binary(max_size=8))
def test_quotes_are_found_in_the_source(source: str, digest: bytes) -> None:
    text = quote(source, Draw(0, digest))
    assert text
    if source.split():
        assert text in " ".join(source.split())


def request(**changes: Any) -> Ask:
    fields: dict[str, Any] = {
        "model": "m",
        "prompt": "Which licence?\nGranted under the MIT licence to Ann.",
        "last_text": "Granted under the MIT licence to Ann.",
        "prompt_tokens": 20,
        "max_tokens": None,
        "json_answer": True,
        "schema": SCHEMAS[18],
    }
    return Ask(**{**fields, **changes})


def said(rule: dict[str, Any] | None, **changes: Any) -> Any:
    return compose(
        request(**changes), None if rule is None else AnswerRule.model_validate(rule), seed=1, digest=b"d" * 16
    )


@given(seed=st.integers(), digest=st.binary(min_size=16, max_size=16))
def test_same_seed_and_body_same_answer(seed: int, digest: bytes) -> None:
    one = compose(request(), None, seed=seed, digest=digest)
    assert one == compose(request(), None, seed=seed, digest=digest)
    assert one.content is not None
    assert json.loads(one.content)["licence"] in ("MIT", "BSD")
    assert one.completion_tokens == (len(one.content.encode()) + 3) // 4


@pytest.mark.parametrize(
    ("rule", "content", "finish"),
    [
        ({"content": "yes"}, "yes", "stop"),
        ({"content": {"licence": "MIT", "n": [1]}}, '{"licence":"MIT","n":[1]}', "stop"),
        ({"content": "ab", "form": "fenced"}, "```json\nab\n```", "stop"),
        ({"content": "abcd", "form": "cut"}, "ab", "stop"),
        ({"content": "abcd", "form": "length"}, "ab", "length"),
        ({"content": "abcd", "form": "empty"}, "", "stop"),
        ({"content": "abcd", "form": "content_filter"}, "", "content_filter"),
        ({"content": {"licence": "MIT"}, "form": "wrong_schema"}, '{"licence":{"unexpected":"MIT"}}', "stop"),
        ({"content": {"a": {"b": 1}}, "form": "wrong_schema"}, '{"a":"unexpected"}', "stop"),
        ({"content": "no JSON", "form": "wrong_schema"}, '{"unexpected":"no JSON"}', "stop"),
        ({"content": '{"l":"\\1"}', "regex": r"the (\w+) licence", "expand": True}, '{"l":"MIT"}', "stop"),
        ({"content": r"\g<who>\2", "regex": r"to (?P<who>\w+)", "expand": True}, r"Ann\2", "stop"),
    ],
)
def test_content_rules_and_forms(rule: dict[str, Any], content: str, finish: str) -> None:
    answer = said(rule)
    assert (answer.content, answer.finish_reason, answer.refusal) == (content, finish, None)


def test_refusal_has_no_content() -> None:
    answer = said({"content": "x", "form": "refused"})
    assert (answer.content, answer.refusal, answer.finish_reason) == (None, REFUSAL, "stop")
    assert answer.completion_tokens == 12  # 46 bytes


def test_wrong_schema_does_not_fit() -> None:
    assert not jsonschema_rs.is_valid(SCHEMAS[18], json.loads(said({"form": "wrong_schema"}).content))


def test_answer_longer_than_the_limit_is_cut_there() -> None:
    """Q3: the finish reason says so."""
    answer = said({"content": "é" * 40}, max_tokens=5)
    assert (answer.content, answer.completion_tokens, answer.finish_reason) == ("é" * 10, 5, "length")


def test_without_schema_the_answer_is_text_or_an_object() -> None:
    assert said(None, schema=None, json_answer=False).content in "Granted under the MIT licence to Ann."
    assert set(json.loads(said(None, schema=None).content)) == {"answer"}
