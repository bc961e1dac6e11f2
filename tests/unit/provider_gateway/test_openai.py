"""The wire of OpenAI's chat completions and Responses API: requests out, answers and token classes in."""

import json
from typing import Any

import pytest

from nightmill.kernel.domain.prompt import ChatMessage
from nightmill.kernel.wire.messages import Usage
from nightmill.provider_gateway.adapters.openai import OpenAi
from nightmill.provider_gateway.failures import Signal
from unit.provider_gateway.makers import NOW_MS, PIPELINE, SCHEMA, completion, make_pool, response

ADAPTER = OpenAi()
MESSAGES = (ChatMessage(role="system", content="Classify."), ChatMessage(role="user", content="Grüße"))
STRICT = {**SCHEMA, "additionalProperties": False}


def body(pipeline: Any = PIPELINE, **pool: Any) -> dict[str, Any]:
    form = ADAPTER.form(base_url="https://host/v1/", pool=make_pool(provider="openai", **pool), pipeline=pipeline)
    request = form.request(MESSAGES, 64)
    assert "authorization" not in {name.lower() for name in request.headers}
    found: dict[str, Any] = {"url": request.url, **json.loads(request.body)}
    return found


def answer(*parts: dict[str, Any], status: str = "completed", **fields: Any) -> dict[str, Any]:
    """A document of the Responses API."""
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 30},
        "output_tokens": 5,
    }
    message = {"type": "message", "role": "assistant", "content": list(parts)}
    base = {"object": "response", "status": status, "model": "small", "service_tier": "default"}
    return {**base, "output": [{"type": "reasoning", "summary": []}, message], "usage": usage, **fields}


def text(value: str) -> dict[str, Any]:
    return {"type": "output_text", "text": value, "annotations": []}


def test_the_chat_request_is_the_documented_one() -> None:
    assert body() == {
        "url": "https://host/v1/chat/completions",
        "model": "small",
        "messages": [{"role": "system", "content": "Classify."}, {"role": "user", "content": "Grüße"}],
        "max_completion_tokens": 64,
        "temperature": 0,
        "seed": 3,
        "response_format": {
            "type": "json_schema",
            # a property that may be absent, or an open object, is more than strict mode can hold
            "json_schema": {"name": "tickets", "schema": SCHEMA, "strict": False},
        },
    }


def test_the_responses_request_is_the_documented_one() -> None:
    """The answer is not stored at the provider (P6), and the seed, which this API does not take, is not sent."""
    pipeline = PIPELINE.model_copy(update={"output": STRICT})
    assert body(pipeline, api="responses") == {
        "url": "https://host/v1/responses",
        "model": "small",
        "input": [{"role": "system", "content": "Classify."}, {"role": "user", "content": "Grüße"}],
        "max_output_tokens": 64,
        "temperature": 0,
        "store": False,
        "text": {"format": {"type": "json_schema", "name": "tickets", "schema": STRICT, "strict": True}},
    }


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_what_a_model_refuses_is_not_sent(api: str) -> None:
    sent = body(api=api, refuses=("temperature", "seed"), structured_output=False)
    assert not {"temperature", "seed", "response_format", "text"} & set(sent)


def test_an_answer_of_the_responses_api() -> None:
    """P4: cached and written tokens are part of the input; the tier is as the provider names it."""
    reply = ADAPTER.reply(response(answer(text('{"label":'), text(' "a"}'))), now_ms=NOW_MS)
    assert (reply.failure, reply.text, reply.finish_reason) == (None, '{"label": "a"}', "stop")
    assert (reply.served_model, reply.service_tier) == ("small", "default")
    assert reply.usage == Usage(input_tokens=100, cached_tokens=40, output_tokens=5, cache_write_tokens=30)


def test_an_answer_cut_at_its_limit_is_for_the_validator() -> None:
    """Row 32."""
    cut = answer(text('{"lab'), status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    reply = ADAPTER.reply(response(cut), now_ms=NOW_MS)
    assert (reply.failure, reply.text, reply.finish_reason) == (None, '{"lab', "length")


@pytest.mark.parametrize(
    ("document", "signal"),
    [
        (answer({"type": "refusal", "refusal": "no"}), Signal.REFUSAL),
        (answer(text("{}"), {"type": "refusal", "refusal": "no"}), Signal.REFUSAL),
        (answer(), Signal.EMPTY_CONTENT),
        (answer(output=[{"type": "function_call", "name": "f"}]), Signal.TOOL_CALL),
        (answer(output=None), Signal.EMPTY_CONTENT),
        (answer(text("{}"), status="incomplete", incomplete_details=None), Signal.FINISH_ABORTED),
        (answer(text("{}"), status="in_progress"), Signal.UNEXPECTED_SHAPE),
        (answer(status="failed", error={"code": "rate_limit_exceeded", "message": ""}), Signal.RATE_LIMITED),
    ],
)  # fmt: skip
def test_what_is_no_answer(document: dict[str, Any], signal: Signal) -> None:
    """E8; what it used is known all the same (P4)."""
    reply = ADAPTER.reply(response(document), now_ms=NOW_MS)
    assert reply.failure is not None
    assert reply.failure.signal == signal
    assert reply.usage is not None


def test_cache_writes_of_a_chat() -> None:
    """P4: written and cached tokens together are never more than the prompt."""
    details = {"cached_tokens": 40, "cache_write_tokens": 90}
    usage = {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": details}
    reply = ADAPTER.reply(response({**completion(), "usage": usage, "service_tier": "flex"}), now_ms=NOW_MS)
    assert reply.service_tier == "flex"
    assert reply.usage == Usage(input_tokens=100, cached_tokens=40, output_tokens=5, cache_write_tokens=60)


@pytest.mark.parametrize(
    ("headers", "wait_ms"),
    [
        ({"x_ratelimit_reset_tokens": "2s", "x_ratelimit_reset_project_tokens": "9s"}, 2_000),
        ({"x_ratelimit_reset_project_tokens": "9s", "x_ratelimit_remaining_project_tokens": "0"}, 9_000),
    ],
)
def test_a_projects_own_limit_counts_when_it_is_the_one_that_is_empty(headers: dict[str, str], wait_ms: int) -> None:
    """Row 1."""
    body = {"error": {"code": "rate_limit_exceeded", "type": "tokens", "message": ""}}
    failure = ADAPTER.reply(response(body, 429, **headers), now_ms=NOW_MS).failure
    assert failure is not None
    assert failure.retry_after_ms == wait_ms
