"""`anthropic`: models, messages, token counts; its exceptions, versions and retries."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest

from conformance.sdk.conftest import STRICT
from kit.simulator import Simulator

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOLS: Any = [{"name": "search", "input_schema": {"type": "object"}}]
OLD = {"anthropic-version": "2023-06-01"}


def ask(client: anthropic.Anthropic, text: str = "Which licence?", **more: Any) -> Any:
    wanted = {"model": "claude-haiku-5-5", "max_tokens": 50, "messages": [{"role": "user", "content": text}]}
    return client.messages.create(**{**wanted, **more})


def test_models(claude: anthropic.Anthropic, simulator: Simulator) -> None:
    simulator.set_scenario({**STRICT, "models": ["claude-haiku-5-5"]})
    assert [model.id for model in claude.models.list()] == ["claude-haiku-5-5"]
    assert claude.models.retrieve("claude-haiku-5-5").type == "model"
    with pytest.raises(anthropic.NotFoundError) as unknown:
        claude.models.retrieve("claude-1")
    body: Any = unknown.value.body
    assert (body["error"]["type"], body["error"]["message"]) == ("not_found_error", "model: claude-1")


def test_pages_of_models(claude: anthropic.Anthropic, simulator: Simulator) -> None:
    names = [f"claude-{number}" for number in range(5)]
    simulator.set_scenario({**STRICT, "models": names})
    assert [model.id for model in claude.models.list(limit=2)] == names
    assert [model.id for model in claude.models.list(limit=2, after_id=names[1]).data] == names[2:4]


def test_message(claude: anthropic.Anthropic, simulator: Simulator) -> None:
    """E12"""
    output: Any = {"format": {"type": "json_schema", "schema": SCHEMA}}
    message = ask(claude, output_config=output, system="Answer as JSON.")
    assert isinstance(json.loads(message.content[0].text)["n"], int)
    assert (message.stop_reason, message.usage.service_tier) == ("end_turn", "standard")
    [row] = simulator.attempts()
    assert row["billed_prompt_tokens"] == message.usage.input_tokens
    # 0.10 and 0.50 USD a million
    assert row["billed_nano_usd"] == message.usage.input_tokens * 100 + message.usage.output_tokens * 500


def test_headers(claude: anthropic.Anthropic, simulator: Simulator) -> None:
    simulator.set_scenario({**STRICT, "rate_limit": {"requests_per_min": 100, "input_tokens_per_min": 50_000}})
    wanted: Any = {"model": "c", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
    answer = claude.messages.with_raw_response.create(**wanted)
    assert answer.headers["request-id"].startswith("req_")
    assert answer.headers["anthropic-ratelimit-requests-remaining"] == "9"
    assert answer.headers["anthropic-ratelimit-input-tokens-limit"] == "50000"
    assert answer.headers["anthropic-ratelimit-input-tokens-reset"].endswith("Z")


def test_cache_tokens(claude: anthropic.Anthropic, simulator: Simulator) -> None:
    """Written once at 1.25 or 2 times the price, then read at a tenth; both are outside of input_tokens."""
    system: Any = [{"type": "text", "text": "x" * 8000, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
    first, second = (ask(claude, text, system=system).usage for text in "ab")
    assert (first.cache_creation.ephemeral_1h_input_tokens, first.cache_read_input_tokens) == (2000, 0)
    assert (second.cache_creation_input_tokens, second.cache_read_input_tokens) == (0, 2000)
    assert first.input_tokens == second.input_tokens < 20
    dear, cheap = (row["billed_nano_usd"] for row in simulator.attempts())
    assert dear - cheap == 2000 * (200 - 10)


def test_removed_parameters(claude: anthropic.Anthropic) -> None:
    """`temperature` is fine under 2023-06-01 and refused under 2026-10-21."""
    assert ask(claude, extra_body={"temperature": 0}, extra_headers=OLD).content
    with pytest.raises(anthropic.BadRequestError, match="temperature"):
        ask(claude, extra_body={"temperature": 0})


@pytest.mark.parametrize("header", ["Authorization", "x-api-key"])
def test_keys(simulator: Simulator, header: str) -> None:
    for key, good in (("sk-ant-1", True), ("sk-invalid-1", False)):
        sent = {"Authorization": f"Bearer {key}"} if header == "Authorization" else {"x-api-key": key}
        with anthropic.Anthropic(base_url=simulator.root_url, api_key=key, max_retries=0, default_headers=sent) as one:
            if good:
                assert ask(one).content
            else:
                with pytest.raises(anthropic.AuthenticationError):
                    ask(one)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"messages": []}, "messages: at least one message is required"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"extra_body": {"max_tokens": "many"}}, "max_tokens: Input should be a valid integer"),
        ({"extra_body": {"colour": "red"}}, "colour: Extra inputs are not permitted"),
        ({"extra_body": {"model": None}}, "model: Field required"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages.0.role: Input should be 'user' or 'assistant'"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "first message must use"),
        ({"messages": [{"role": "user", "content": ""}]}, "non-empty content"),
        ({"service_tier": "flex"}, "service_tier: Input should be 'auto' or 'standard_only'"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "budget_tokens"),
        ({"stream": True}, "stream: streaming is not supported here"),
        ({"tools": TOOLS, "tool_choice": {"type": "any"}}, "tool_choice: type 'any' is not supported"),
        ({"extra_headers": {"anthropic-version": "1999-01-01"}}, "not a valid version"),
    ],
)
def test_bad_requests(claude: anthropic.Anthropic, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(anthropic.BadRequestError) as refused:
        ask(claude, **changes)
    body: Any = refused.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert body["request_id"].startswith("req_")
    assert said in body["error"]["message"]


@pytest.mark.parametrize(
    ("fault", "expected", "kind"),
    [
        ({"kind": "rate_limited"}, anthropic.RateLimitError, "rate_limit_error"),
        ({"kind": "overloaded"}, anthropic.OverloadedError, "overloaded_error"),
        ({"kind": "server_error"}, anthropic.InternalServerError, "api_error"),
        ({"kind": "server_error", "status": 503}, anthropic.ServiceUnavailableError, "api_error"),
        ({"kind": "server_error", "status": 504}, anthropic.GatewayTimeoutError, "timeout_error"),
        ({"kind": "unauthorized"}, anthropic.AuthenticationError, "authentication_error"),
        ({"kind": "client_error", "status": 403}, anthropic.PermissionDeniedError, "permission_error"),
        ({"kind": "client_error", "status": 404}, anthropic.NotFoundError, "not_found_error"),
        ({"kind": "client_error", "status": 408}, anthropic.RequestTimeoutError, "invalid_request_error"),
        ({"kind": "client_error", "status": 409}, anthropic.ConflictError, "conflict_error"),
        ({"kind": "client_error", "status": 413}, anthropic.RequestTooLargeError, "request_too_large"),
        ({"kind": "client_error", "status": 422}, anthropic.UnprocessableEntityError, "invalid_request_error"),
        (
            {"kind": "client_error", "status": 400, "code": "organization_on_hold"},
            anthropic.OrganizationOnHoldError,
            "invalid_request_error",
        ),
        ({"kind": "spend_limit"}, anthropic.EnforcedSpendLimitReachedError, "rate_limit_error"),
        ({"kind": "spend_limit", "form": "contract"}, anthropic.ContractSpendLimitReachedError, "rate_limit_error"),
        ({"kind": "spend_limit", "form": "ramp"}, anthropic.RampLimitExceededError, "rate_limit_error"),
        ({"kind": "spend_limit", "form": "own"}, anthropic.BadRequestError, "invalid_request_error"),
        ({"kind": "spend_limit", "form": "billing"}, anthropic.PaymentRequiredError, "billing_error"),
        ({"kind": "context_length_exceeded"}, anthropic.BadRequestError, "invalid_request_error"),
        ({"kind": "client_error", "status": 413, "body": "html"}, anthropic.APIStatusError, None),
        ({"kind": "reset_after_billing"}, anthropic.APIConnectionError, None),
        ({"kind": "cut_json"}, anthropic.APIConnectionError, None),
        ({"kind": "hang"}, anthropic.APITimeoutError, None),
    ],
)
def test_exceptions(
    claude: anthropic.Anthropic,
    simulator: Simulator,
    fault: dict[str, Any],
    expected: type[Exception],
    kind: str | None,
) -> None:
    simulator.set_scenario({**STRICT, "faults": [fault]})
    with pytest.raises(expected) as raised:
        ask(claude.with_options(timeout=1))
    if kind is not None:
        body: Any = raised.value.body  # type: ignore[attr-defined]
        assert body["error"]["type"] == kind


def test_spend_limit_says_its_code(claude: anthropic.Anthropic, simulator: Simulator) -> None:
    fault = {"kind": "spend_limit", "form": "enforced"}
    simulator.set_scenario({**STRICT, "faults": [fault]})
    with pytest.raises(anthropic.RateLimitError) as limited:
        ask(claude)
    body: Any = limited.value.body
    assert body["error"]["details"]["error_code"] == "enforced_spend_limit_reached"
    assert "retry-after" not in limited.value.response.headers


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ("length", "max_tokens"),
        ("refused", "refusal"),
        ("paused", "pause_turn"),
        ("tool_call", "tool_use"),
        ("context_full", "model_context_window_exceeded"),
    ],
)
def test_stop_reasons(claude: anthropic.Anthropic, simulator: Simulator, form: str, reason: str) -> None:
    simulator.set_scenario({**STRICT, "answers": [{"form": form}]})
    message = ask(claude)
    assert message.stop_reason == reason
    assert (message.stop_details is not None) is (form == "refused")


def test_count_tokens(claude: anthropic.Anthropic, simulator: Simulator) -> None:
    """Free, and the same number that a message is billed for."""
    messages: Any = [{"role": "user", "content": "How many?"}]
    counted = claude.messages.count_tokens(model="claude-haiku-5-5", messages=messages)
    assert simulator.ledger()["received"]["calls"] == 0
    assert counted.input_tokens == ask(claude, "How many?").usage.input_tokens


def test_the_client_retries_what_it_may(simulator: Simulator) -> None:
    """E9"""
    fault = {"kind": "overloaded", "retry_after": "milliseconds", "retry_after_s": 0, "first": 2}
    simulator.set_scenario({**STRICT, "faults": [fault]})
    with anthropic.Anthropic(base_url=simulator.root_url, api_key="k", max_retries=2) as client:
        assert ask(client).content
    assert [row["status"] for row in simulator.attempts(refused=True)] == [529, 529, 200]
