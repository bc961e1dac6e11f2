"""Requests: what is read of them and how the provider refuses the bad ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nightmill.provider_simulator.asks import Ask, check_headers
from nightmill.provider_simulator.errors import ApiError
from nightmill.provider_simulator.inbound import Inbound
from nightmill.provider_simulator.openai.read import read_body
from nightmill.provider_simulator.operations import Operation
from nightmill.provider_simulator.scenario import Dialect, Scenario

USER = {"role": "user", "content": "12345678"}
GOOD: dict[str, Any] = {"model": "m", "messages": [USER]}


def read(changes: dict[str, Any], scenario: Scenario | None = None) -> Ask | ApiError:
    return read_request(json.dumps({**GOOD, **changes}).encode(), scenario or Scenario())


def read_request(body: bytes, scenario: Scenario) -> Ask | ApiError:
    data = Inbound(method="POST", path="/v1/chat/completions", query={}, headers={}, body=body).json()
    return data if isinstance(data, ApiError) else read_body(Operation.CHAT, data, scenario)


def test_good_request() -> None:
    parts = {"role": "user", "content": [{"type": "text", "text": "é"}, {"type": "text", "text": "b"}]}
    request = read({"messages": [{"role": "system", "content": "1234"}, parts], "max_completion_tokens": 9})
    assert isinstance(request, Ask)
    assert (request.prompt, request.last_text, request.max_tokens) == ("1234\né\nb", "é\nb", 9)
    assert request.prompt_tokens == 3 + 2 * 4 + 3  # 9 bytes, two messages, one reply
    assert request.schema is None


def test_schema_is_read() -> None:
    request = read({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"const": 1}}}})
    assert isinstance(request, Ask)
    assert (request.schema, request.json_answer) == ({"const": 1}, True)


@pytest.mark.parametrize(
    ("changes", "status", "param", "code"),
    [
        ({"messages": []}, 400, "messages", "empty_array"),
        ({"messages": None}, 400, "messages", "missing_required_parameter"),
        ({"messages": "hi"}, 400, "messages", "invalid_type"),
        ({"messages": [USER, 3]}, 400, "messages[1]", "invalid_type"),
        ({"messages": [{"role": "pope", "content": "x"}]}, 400, "messages[0].role", "invalid_value"),
        ({"messages": [{"role": "user"}]}, 400, "messages[0].content", "missing_required_parameter"),
        ({"messages": [{"content": "x"}]}, 400, "messages[0].role", "missing_required_parameter"),
        ({"messages": [{"role": "user", "content": []}]}, 400, "messages[0].content", "empty_array"),
        ({"model": None}, 400, None, None),
        ({"model": 3}, 400, "model", "invalid_type"),
        ({"stream": True}, 400, "stream", "unsupported_value"),
        ({"n": 2}, 400, "n", "unsupported_value"),
        ({"max_tokens": 0}, 400, "max_tokens", "integer_below_min_value"),
        ({"max_completion_tokens": "9"}, 400, "max_completion_tokens", "invalid_type"),
        ({"max_tokens": True}, 400, "max_tokens", "invalid_type"),
        ({"temperature": 3}, 400, "temperature", "decimal_above_max_value"),
        ({"temperature": "hot"}, 400, "temperature", "invalid_type"),
        ({"response_format": "json"}, 400, "response_format", "invalid_type"),
        ({"response_format": {"type": "xml"}}, 400, "response_format.type", "invalid_value"),
        (
            {"response_format": {"type": "json_schema"}},
            400,
            "response_format.json_schema",
            "missing_required_parameter",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": 1}}},
            400,
            "response_format.json_schema.schema",
            "invalid_type",
        ),
    ],
)
def test_refusals(changes: dict[str, Any], status: int, param: str | None, code: str | None) -> None:
    error = read(changes)
    assert isinstance(error, ApiError)
    assert (error.status, error.param, error.code, error.type) == (status, param, code, "invalid_request_error")


@pytest.mark.parametrize("body", [b"", b"{", b'{"model": NaN}', b"\xff", b"[]", b'"x"'])
def test_bodies_that_are_no_object(body: bytes) -> None:
    error = read_request(body, Scenario())
    assert isinstance(error, ApiError)
    assert error.status == 400


def test_models_and_context_of_the_scenario() -> None:
    assert isinstance(read({}, Scenario(models=("m",))), Ask)
    unknown = read({}, Scenario(models=("other",)))
    assert isinstance(unknown, ApiError)
    assert (unknown.status, unknown.code) == (404, "model_not_found")
    assert isinstance(read({"max_tokens": 6}, Scenario(context_tokens=15)), Ask)  # 2 + 4 + 3 + 6
    long = read({"max_tokens": 7}, Scenario(context_tokens=15))
    assert isinstance(long, ApiError)
    assert (long.code, "requested 16 tokens" in long.message) == ("context_length_exceeded", True)


@pytest.mark.parametrize(
    ("authorization", "dialect", "status"),
    [
        ("Bearer k", Dialect.OPENAI, None),
        ("bearer k", Dialect.SELF_HOSTED, None),
        (None, Dialect.SELF_HOSTED, None),
        (None, Dialect.OPENAI, 401),
        ("Basic k", Dialect.SELF_HOSTED, 401),
        ("Bearer sk-invalid-7", Dialect.SELF_HOSTED, 401),
        ("Bearer sk-invalid", Dialect.OPENAI, 401),
    ],
)
def test_keys(authorization: str | None, dialect: Dialect, status: int | None) -> None:
    error = check_headers(authorization=authorization, client_request_id=None, dialect=dialect)
    assert (None if error is None else error.status) == status


@pytest.mark.parametrize(("value", "good"), [("a" * 512, True), ("a" * 513, False), ("é", False)])
def test_client_request_id(value: str, good: bool) -> None:
    error = check_headers(authorization=None, client_request_id=value, dialect=Dialect.SELF_HOSTED)
    assert (error is None) is good
