"""Checks compiled from tables, and the same problem in the words of both providers."""

from __future__ import annotations

from typing import Any

import pytest

from nightmill.provider_simulator.anthropic.words import worded as anthropic_words
from nightmill.provider_simulator.checks import (
    Check,
    Trouble,
    array,
    by_type,
    choice,
    decimal,
    flag,
    integer,
    mapping,
    nullable,
    record,
    remembered,
    tagged,
    text,
)
from nightmill.provider_simulator.openai.words import worded as openai_words

PERSON = record({"name": text(shortest=1, longest=5), "age": nullable(integer(least=0, most=9))}, "name")
SHAPE = tagged("kind", {"dot": record({"kind": text()}), "line": record({"kind": text(), "to": integer()}, "to")})


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (PERSON, {"name": "Ann"}),
        (PERSON, {"name": "Ann", "age": None}),
        (SHAPE, {"kind": "line", "to": 1}),
        (array(flag, shortest=1, longest=2), [True, False]),
        (decimal(0, 2), 0),
        (decimal(0, 2), 1.5),
        (mapping(text(), most=1), {"a": "b"}),
        (by_type("a string or an array", text=text(), array=array(text())), ["x"]),
        (record({}, open_ended=True), {"anything": 1}),
        (choice("a", "b"), "b"),
        (text(pattern="^[a-z]+$"), "abc"),
    ],
)
def test_good_values(check: Check, value: Any) -> None:
    assert check(value) is None


@pytest.mark.parametrize(
    ("check", "value", "trouble", "at"),
    [
        (PERSON, [], Trouble.TYPE, ()),
        (PERSON, {}, Trouble.MISSING, ("name",)),
        (PERSON, {"name": None}, Trouble.MISSING, ("name",)),
        (PERSON, {"name": ""}, Trouble.EMPTY, ("name",)),
        (PERSON, {"name": "Josephine"}, Trouble.LONG, ("name",)),
        (PERSON, {"name": "Ann", "age": 10}, Trouble.ABOVE, ("age",)),
        (PERSON, {"name": "Ann", "age": -1}, Trouble.BELOW, ("age",)),
        (PERSON, {"name": "Ann", "age": True}, Trouble.TYPE, ("age",)),
        (PERSON, {"name": "Ann", "size": 1}, Trouble.UNKNOWN, ("size",)),
        (array(PERSON), [{"name": "Ann"}, {}], Trouble.MISSING, (1, "name")),
        (array(flag, longest=1), [True, True], Trouble.LONG, ()),
        (array(flag, shortest=1), [], Trouble.EMPTY, ()),
        (SHAPE, {}, Trouble.MISSING, ("kind",)),
        (SHAPE, {"kind": "area"}, Trouble.CHOICE, ("kind",)),
        (SHAPE, {"kind": []}, Trouble.CHOICE, ("kind",)),
        (mapping(text(), most=1), {"a": "b", "c": "d"}, Trouble.LONG, ()),
        (mapping(text(), longest_key=1), {"ab": "b"}, Trouble.LONG, ("ab",)),
        (mapping(text()), {"a": 1}, Trouble.TYPE, ("a",)),
        (by_type("a string", text=text()), 3, Trouble.TYPE, ()),
        (text(pattern="^[a-z]+$"), "A", Trouble.PATTERN, ()),
        (text(pattern="^[a-z]+$"), "abc\n", Trouble.PATTERN, ()),
        (decimal(0, 2), True, Trouble.TYPE, ()),
    ],
)
def test_first_problem_and_its_place(check: Check, value: Any, trouble: Trouble, at: tuple[str | int, ...]) -> None:
    problem = check(value)
    assert problem is not None
    assert (problem.trouble, problem.at) == (trouble, at)


def test_a_remembered_check_forgets_nothing() -> None:
    """`1` is not `true`, although Python takes them for equal; and a failure is not remembered as good."""
    check = remembered(record({"strict": flag}))
    good: list[Any] = [{"strict": True}, {"strict": True}, {"strict": False}]
    bad: list[Any] = [{"strict": 0}, {"strict": 0}, {"strict": 1}, {"other": True}]
    assert [check(value) for value in good] == [None] * 3
    assert None not in [check(value) for value in bad]


@pytest.mark.parametrize(
    ("check", "value", "openai_code", "openai_said", "anthropic_said"),
    [
        (PERSON, {"x": 1, "name": "A"}, "unknown_parameter", "Unknown parameter: 'x'.", "x: Extra inputs are not"),
        (PERSON, {}, "missing_required_parameter", "Missing required parameter: 'name'.", "name: Field required"),
        (
            array(PERSON),
            [{"name": 1}],
            "invalid_type",
            "Invalid type for '[0].name': expected a string, but got an integer instead.",
            "0.name: Input should be a valid string",
        ),
        (
            record({"c": choice("a", "b", "d")}),
            {"c": "z"},
            "invalid_value",
            "Invalid value: 'z'. Supported values are: 'a', 'b', and 'd'.",
            "c: Input should be 'a', 'b' or 'd'",
        ),
        (
            PERSON,
            {"name": "A", "age": 12},
            "integer_above_max_value",
            "Invalid 'age': integer above maximum value. Expected a value <= 9, but got 12 instead.",
            "age: Input should be less than or equal to 9",
        ),
        (
            record({"l": array(flag, longest=1)}),
            {"l": [True, True]},
            "array_above_max_length",
            "Invalid 'l': array too long. Expected an array with maximum length 1, but got an array with length 2",
            "l: List should have at most 1 item after validation, not 2",
        ),
        (
            PERSON,
            {"name": "Josephine"},
            "string_above_max_length",
            "Invalid 'name': string too long. Expected a string with maximum length 5",
            "name: String should have at most 5 characters",
        ),
        (
            record({"id": text(pattern="^a$")}),
            {"id": "b"},
            "invalid_value",
            "Invalid 'id': string does not match pattern.",
            "id: String should match pattern '^a$'",
        ),
    ],
)
def test_words(check: Check, value: Any, openai_code: str, openai_said: str, anthropic_said: str) -> None:
    problem = check(value)
    assert problem is not None
    error = openai_words(problem)
    assert (error.status, error.code) == (400, openai_code)
    assert error.message.startswith(openai_said)
    assert anthropic_words(problem).message.startswith(anthropic_said)
