"""`openai`: models, headers, keys; what is refused, its exceptions, its retries."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from conformance.sdk.conftest import STRICT
from conformance.sdk.lines import ask
from kit.simulator import Simulator

TOOLS: Any = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]


def test_models(gpt: openai.OpenAI, simulator: Simulator) -> None:
    simulator.set_scenario({**STRICT, "models": ["gpt-6-luna", "gpt-6-sol"]})
    assert [model.id for model in gpt.models.list()] == ["gpt-6-luna", "gpt-6-sol"]
    assert gpt.models.retrieve("gpt-6-sol").id == "gpt-6-sol"
    with pytest.raises(openai.NotFoundError) as unknown:
        gpt.models.retrieve("gpt-2")
    assert unknown.value.code == "model_not_found"


def test_headers(gpt: openai.OpenAI) -> None:
    answer = gpt.chat.completions.with_raw_response.create(
        model="gpt-6-luna", messages=[{"role": "user", "content": "hi"}]
    )
    assert answer.request_id is not None
    assert answer.request_id.startswith("req_")
    assert answer.headers["openai-version"] == "2020-10-01"
    assert {"x-ratelimit-limit-requests", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-requests"} <= set(
        answer.headers
    )


@pytest.mark.parametrize(
    ("changes", "param", "code"),
    [
        ({"extra_body": {"guided_json": {}}}, "guided_json", "unknown_parameter"),
        ({"messages": []}, "messages", "empty_array"),
        ({"messages": "hi"}, "messages", "invalid_type"),
        ({"temperature": 2.5}, "temperature", "decimal_above_max_value"),
        ({"temperature": "hot"}, "temperature", "invalid_type"),
        ({"top_logprobs": 21}, "top_logprobs", "integer_above_max_value"),
        ({"metadata": {"k": "v" * 513}}, "metadata.k", "string_above_max_length"),
        ({"service_tier": "gold"}, None, "invalid_value"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop", "array_above_max_length"),
        ({"max_tokens": 5, "max_completion_tokens": 5}, "max_tokens", "invalid_parameter_combination"),
        ({"response_format": {"type": "json_object"}}, "messages", None),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}}},
            "response_format.json_schema.name",
            "invalid_value",
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "strict": True, "schema": {"type": "object", "properties": {}}},
                }
            },
            "response_format",
            "invalid_json_schema",
        ),
        ({"extra_body": {"model": None}}, None, None),
        ({"stream": True}, "stream", "unsupported_value"),
        ({"n": 2}, "n", "unsupported_value"),
        ({"logprobs": True}, "logprobs", "unsupported_value"),
        ({"modalities": ["text", "audio"]}, "modalities", "unsupported_value"),
        ({"tools": TOOLS, "tool_choice": "required"}, "tool_choice", "unsupported_value"),
        ({"web_search_options": {}}, "web_search_options", "unsupported_value"),
    ],
)
def test_bad_requests(
    gpt: openai.OpenAI, simulator: Simulator, changes: dict[str, Any], param: str | None, code: str | None
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        ask(gpt, **changes)
    error = refused.value
    assert (error.code, error.type) == (code, "invalid_request_error")
    assert param is None or error.param == param
    assert simulator.ledger()["accepted"]["calls"] == 0


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({"kind": "rate_limited"}, openai.RateLimitError),
        ({"kind": "quota_exhausted"}, openai.RateLimitError),
        ({"kind": "slow_down", "status": 503}, openai.InternalServerError),
        ({"kind": "overloaded"}, openai.InternalServerError),
        ({"kind": "server_error"}, openai.InternalServerError),
        ({"kind": "unauthorized"}, openai.AuthenticationError),
        ({"kind": "client_error", "status": 403}, openai.PermissionDeniedError),
        ({"kind": "client_error", "status": 404}, openai.NotFoundError),
        ({"kind": "client_error", "status": 409}, openai.ConflictError),
        ({"kind": "client_error", "status": 422}, openai.UnprocessableEntityError),
        ({"kind": "client_error", "status": 413, "body": "html"}, openai.APIStatusError),
        ({"kind": "client_error", "status": 425}, openai.APIStatusError),
        ({"kind": "context_length_exceeded"}, openai.BadRequestError),
        ({"kind": "html", "status": 502}, openai.InternalServerError),
        ({"kind": "reset_before_billing"}, openai.APIConnectionError),
        ({"kind": "reset_early"}, openai.APIConnectionError),
        ({"kind": "disconnect"}, openai.APIConnectionError),
        ({"kind": "hang"}, openai.APITimeoutError),
        ({"kind": "cut_json"}, openai.APIConnectionError),
    ],
)
def test_exceptions(gpt: openai.OpenAI, simulator: Simulator, fault: dict[str, Any], expected: type[Exception]) -> None:
    simulator.set_scenario({**STRICT, "faults": [fault]})
    with pytest.raises(expected):
        ask(gpt.with_options(timeout=1))


def test_fault_by_header(gpt: openai.OpenAI) -> None:
    header = {"x-sim-fault": json.dumps({"kind": "rate_limited", "retry_after_s": 7})}
    with pytest.raises(openai.RateLimitError) as limited:
        ask(gpt, extra_headers=header)
    assert limited.value.response.headers["retry-after"] == "7"
    assert ask(gpt).choices
    with pytest.raises(openai.BadRequestError, match="x-sim-fault"):
        ask(gpt, extra_headers={"x-sim-fault": "{}"})


def test_keys(simulator: Simulator) -> None:
    with (
        openai.OpenAI(base_url=simulator.base_url, api_key="sk-invalid-3", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError) as refused,
    ):
        ask(client)
    assert refused.value.code == "invalid_api_key"


@pytest.mark.parametrize(
    ("changes", "expected", "code"),
    [
        ({"stream": True}, openai.BadRequestError, "unsupported_value"),
        ({"background": True}, openai.BadRequestError, "unsupported_value"),
        ({"previous_response_id": "resp_1"}, openai.BadRequestError, "previous_response_not_found"),
        ({"conversation": "conv_1"}, openai.NotFoundError, None),
        ({"extra_body": {"colour": "red"}}, openai.BadRequestError, "unknown_parameter"),
    ],
)
def test_responses_that_are_refused(
    gpt: openai.OpenAI, simulator: Simulator, changes: dict[str, Any], expected: type[openai.APIStatusError], code: str
) -> None:
    """What is not simulated is refused, as an unknown parameter is, and costs nothing."""
    with pytest.raises(expected) as refused:
        gpt.responses.create(**{"model": "gpt-6-luna", "input": "Which licence?", **changes})
    assert refused.value.code == code
    assert simulator.ledger()["accepted"]["calls"] == 0


def test_the_client_retries_what_it_may(simulator: Simulator) -> None:
    """E9: two failures are retried, a `x-should-retry: false` is obeyed."""
    with openai.OpenAI(base_url=simulator.base_url, api_key="k", max_retries=2) as client:
        simulator.set_scenario(
            {
                **STRICT,
                "faults": [{"kind": "rate_limited", "retry_after": "milliseconds", "retry_after_s": 0, "first": 2}],
            }
        )
        assert ask(client).choices
        assert [row["status"] for row in simulator.attempts(refused=True)] == [429, 429, 200]
        simulator.set_scenario({**STRICT, "faults": [{"kind": "server_error", "should_retry": False}]})
        simulator.reset()
        with pytest.raises(openai.InternalServerError):
            ask(client)
        assert simulator.ledger()["received"]["calls"] == 1
