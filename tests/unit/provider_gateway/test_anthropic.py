"""The wire of Anthropic's Messages API: the pinned version, requests out, answers and token classes in."""

import json
from typing import Any

import pytest

from nightmill.kernel.domain.prompt import ChatMessage
from nightmill.kernel.wire.messages import Usage
from nightmill.provider_gateway.adapters.anthropic import Anthropic
from nightmill.provider_gateway.exchange import Request
from nightmill.provider_gateway.failures import Signal
from unit.provider_gateway.makers import NOW_MS, PIPELINE, SCHEMA, make_pool, response

ADAPTER = Anthropic()
MESSAGES = (ChatMessage(role="system", content="Classify."), ChatMessage(role="user", content="Grüße"))
USAGE = {
    "input_tokens": 30,
    "cache_read_input_tokens": 40,
    "cache_creation_input_tokens": 27,
    "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 7},
    "output_tokens": 5,
    "service_tier": "standard",
}


def request(messages: tuple[ChatMessage, ...] = MESSAGES, **pool: Any) -> Request:
    made = make_pool(provider="anthropic", **pool)
    return ADAPTER.form(base_url="https://host/v1/", pool=made, pipeline=PIPELINE).request(messages, 64)


def message(*texts: str, stop: str = "end_turn", **fields: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": each} for each in texts]
    base = {"type": "message", "role": "assistant", "model": "small", "content": content, "stop_reason": stop}
    return {**base, "usage": USAGE, **fields}


def test_the_request_is_the_documented_one() -> None:
    """What the newest version removed is not sent; the version is."""
    made = request()
    assert made.url == "https://host/v1/messages"
    assert made.headers["anthropic-version"] == "2026-10-21"
    assert json.loads(made.body) == {
        "model": "small",
        "max_tokens": 64,
        "system": "Classify.",
        "messages": [{"role": "user", "content": "Grüße"}],
        "output_config": {"format": {"type": "json_schema", "schema": {**SCHEMA, "additionalProperties": False}}},
    }


def test_the_older_version_takes_a_temperature() -> None:
    made = request(anthropic_version="2023-06-01", structured_output=False)
    assert made.headers["anthropic-version"] == "2023-06-01"
    sent = json.loads(made.body)
    assert sent["temperature"] == 0
    assert not {"seed", "output_config"} & set(sent)


def test_a_repair_of_an_empty_answer_leaves_the_empty_message_out() -> None:
    """A message without text is refused by the API."""
    repair = (*MESSAGES, ChatMessage(role="assistant", content=" "), ChatMessage(role="user", content="Again."))
    assert [each["content"] for each in json.loads(request(repair).body)["messages"]] == ["Grüße", "Again."]


def test_a_prompt_without_a_system_part() -> None:
    assert "system" not in json.loads(request(MESSAGES[1:]).body)


def test_an_answer_with_its_four_classes_of_tokens() -> None:
    """P4: Anthropic counts the cache beside the input, 30 + 40 + 20 + 7."""
    reply = ADAPTER.reply(response(message('{"label":', ' "a"}')), now_ms=NOW_MS)
    assert (reply.failure, reply.text, reply.finish_reason) == (None, '{"label": "a"}', "stop")
    assert (reply.served_model, reply.service_tier) == ("small", "standard")
    assert reply.usage == Usage(
        input_tokens=97, cached_tokens=40, output_tokens=5, cache_write_tokens=20, cache_write_1h_tokens=7
    )


@pytest.mark.parametrize(
    ("usage", "known"),
    [
        (
            {"input_tokens": 3, "output_tokens": 1, "cache_creation_input_tokens": 4},
            Usage(input_tokens=7, cached_tokens=0, output_tokens=1, cache_write_tokens=4),
        ),
        ({"input_tokens": 3, "output_tokens": 1}, Usage(input_tokens=3, cached_tokens=0, output_tokens=1)),
        ({"input_tokens": 3}, None),
        ({"input_tokens": True, "output_tokens": 1}, None),
        (None, None),
    ],
)
def test_usage_as_far_as_it_is_said(usage: Any, known: Usage | None) -> None:
    assert ADAPTER.reply(response(message("{}", usage=usage)), now_ms=NOW_MS).usage == known


def test_an_answer_cut_at_its_limit_is_for_the_validator() -> None:
    """Row 32."""
    reply = ADAPTER.reply(response(message('{"lab', stop="max_tokens")), now_ms=NOW_MS)
    assert (reply.failure, reply.finish_reason) == (None, "length")


@pytest.mark.parametrize(
    ("document", "signal", "words"),
    [
        (message(stop="refusal", stop_details={"category": "bio"}), Signal.REFUSAL, "finish refusal, category bio"),
        (message("half", stop="refusal", stop_details={"category": "SECRET words"}), Signal.REFUSAL, "finish refusal)"),
        (message("half", stop="pause_turn"), Signal.TURN_PAUSED, "pause_turn"),
        (message(stop="tool_use"), Signal.TOOL_CALL, "tool_use"),
        (message(content=[{"type": "tool_use", "name": "f"}]), Signal.TOOL_CALL, "end_turn"),
        (message("half", stop="model_context_window_exceeded"), Signal.CONTEXT_FULL, "window"),
        (message(), Signal.EMPTY_CONTENT, "end_turn"),
        (message(content=[None, 3]), Signal.EMPTY_CONTENT, "end_turn"),
    ],
)
def test_what_is_no_answer(document: dict[str, Any], signal: Signal, words: str) -> None:
    """E8; what it used is known all the same (P4)."""
    reply = ADAPTER.reply(response(document), now_ms=NOW_MS)
    assert reply.failure is not None
    assert (reply.failure.signal, reply.usage is not None) == (signal, True)
    assert words in reply.failure.message
    assert "SECRET" not in reply.failure.message


def limited(message: str = "", **headers: str) -> int | None:
    body = {"type": "error", "error": {"type": "rate_limit_error", "message": message}}
    failure = ADAPTER.reply(response(body, 429, **headers), now_ms=NOW_MS).failure
    assert failure is not None
    return failure.retry_after_ms


def test_a_limit_waits_as_long_as_the_provider_says() -> None:
    """Row 1: earlier retries fail, and the reset headers tell when a bucket is full, not when there is room."""
    # 1,796,000,000 s is 30 November 2026, 00:53:20 UTC
    reset = {
        "anthropic_ratelimit_requests_remaining": "0",
        "anthropic_ratelimit_requests_reset": "2026-11-30T00:54:20Z",
    }
    assert limited(retry_after="7", **reset) == 7_000
    assert limited(**reset) == 60_000
    assert limited(**{**reset, "anthropic_ratelimit_requests_remaining": "1"}) is None


def test_messages_that_name_a_field_tell_it() -> None:
    """E8: a dead letter says which field was refused, and nothing else of the message."""
    body = {"type": "error", "error": {"type": "invalid_request_error", "message": "messages.0.content: SECRET"}}
    failure = ADAPTER.reply(response(body, 400), now_ms=NOW_MS).failure
    assert failure is not None
    assert (failure.signal, failure.param) == (Signal.BAD_REQUEST, "messages.0.content")
    assert "SECRET" not in failure.message
