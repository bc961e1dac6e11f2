"""What a provider may send: any status, headers and body become a reply that can be sent on, never an exception.

And what a model may write: any text becomes a verdict that can be stored.
"""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fuzz.bytes_of import CLEAN_TEXTS, damaged, mutated, searched
from nightmill.kernel.domain.failures import FailureClass
from nightmill.kernel.domain.lifecycle import VerdictKind
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.provider_gateway.adapters import ADAPTERS, EMBEDDERS
from nightmill.provider_gateway.exchange import Reply, Response
from nightmill.provider_gateway.failures import Signal
from nightmill.provider_gateway.waits import MAX_RETRY_AFTER_MS
from nightmill.validator.gate import compile_gate

NOW_MS = 1_764_000_000_000
SUCCESS: dict[str, Any] = {
    "id": "x",
    "model": "m-1",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "{}"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}},
}
MESSAGE: dict[str, Any] = {
    "type": "message",
    "model": "m-1",
    "content": [{"type": "text", "text": "{}"}],
    "stop_reason": "end_turn",
    "stop_details": {"type": "refusal", "category": "bio"},
    "usage": {
        "input_tokens": 5,
        "cache_read_input_tokens": 2,
        "cache_creation": {"ephemeral_5m_input_tokens": 1, "ephemeral_1h_input_tokens": 1},
        "output_tokens": 3,
    },
}
RESPONSE: dict[str, Any] = {
    "object": "response",
    "status": "completed",
    "model": "m-1",
    "output": [{"type": "message", "content": [{"type": "output_text", "text": "{}"}]}],
    "incomplete_details": {"reason": "max_output_tokens"},
    "usage": {"input_tokens": 5, "input_tokens_details": {"cached_tokens": 2}, "output_tokens": 3},
}
SPENT: dict[str, Any] = {
    "type": "error",
    "error": {
        "type": "rate_limit_error",
        "message": "You will regain access on 2027-01-01 at 00:00 UTC.",
        "details": {"error_code": "enforced_spend_limit_reached"},
    },
}
VECTORS: dict[str, Any] = {
    "object": "list",
    "model": "m-1",
    "data": [{"index": 0, "embedding": [0.5, 1]}, {"index": 1, "embedding": "AAAAPw=="}],
    "usage": {"prompt_tokens": 5},
}
ERROR: dict[str, Any] = {"error": {"code": "rate_limit_exceeded", "type": "tokens", "message": "m", "param": "p"}}
STATUSES = st.sampled_from([200, 200, 200, 0, -1, 100, 204, 302, 400, 401, 404, 408, 413, 429, 500, 503, 529, 999])
WAITS = ["", "1", "-1", "nan", "inf", "1e999", "9" * 400, "²", "1_0", "Wed, 21 Oct 2015 07:28:00 GMT", "6m0s", "\0"]
WAITS += ["Wed, 99 Oct 99999 07:28:00 GMT", "Mon, 01 Jan 0001 00:00:00 +9999", "9" * 400 + "h", "x" * 50_000]
NAMES = ["retry-after", "retry-after-ms", "x-ratelimit-reset-requests", "x-ratelimit-reset-tokens", "content-type"]
HEADERS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from([*WAITS, "text/html"]) | st.text(max_size=20))


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def sound(status: int, headers: dict[str, str], body: bytes) -> None:
    """M2: an answer or a failure of a known class, tokens that are counts, texts that a message can hold."""
    response = Response(status=status, headers=headers, body=body)
    for adapter in ADAPTERS.values():
        sound_reply(adapter.reply(response, now_ms=NOW_MS), status)
    for embedder in EMBEDDERS.values():
        found = embedder.vectors(response, inputs=2, now_ms=NOW_MS)
        assert len(found.texts) == (2 if found.failure is None else 0)
        for text in found.texts or (None,):
            sound_reply(Reply(text=text, usage=found.usage, failure=found.failure), status)


def sound_reply(reply: Reply, status: int) -> None:
    assert (reply.failure is not None) or (reply.text and status == 200)
    for text in (reply.text, reply.finish_reason, reply.served_model, reply.service_tier):
        assert text is None or text.encode()
    if reply.usage is not None:
        written = (reply.usage.cache_write_tokens or 0) + (reply.usage.cache_write_1h_tokens or 0)
        assert 0 <= reply.usage.cached_tokens + written <= reply.usage.input_tokens <= 4 * 10**9
        assert written >= 0
        assert 0 <= reply.usage.output_tokens <= 10**9
    if reply.failure is not None:
        assert reply.failure.failure_class in FailureClass
        assert Signal(reply.failure.signal)
        assert len(reply.failure.message.encode()) < 1_000
        assert reply.failure.retry_after_ms is None or 0 <= reply.failure.retry_after_ms <= MAX_RETRY_AFTER_MS


def success(**choice: Any) -> dict[str, Any]:
    return {**SUCCESS, "choices": [{**SUCCESS["choices"][0], **choice}]}


def usage(**counts: Any) -> dict[str, Any]:
    return {**SUCCESS, "usage": {**SUCCESS["usage"], **counts}}


@given(
    status=STATUSES,
    headers=HEADERS,
    value=st.sampled_from([SUCCESS, MESSAGE, RESPONSE, VECTORS, ERROR, SPENT]).flatmap(mutated),
)
@example(status=200, headers={}, value=success(finish_reason="\ud800"))
@example(status=200, headers={}, value=success(message={"content": "half \udc00"}))
@example(status=200, headers={}, value=success(message={"content": [{"text": "\ud800"}, {"text": 3}, None]}))
@example(status=200, headers={}, value={**SUCCESS, "model": "\ud800"})
@example(status=200, headers={}, value=usage(completion_tokens=10**30))
@example(status=200, headers={}, value=usage(prompt_tokens=2**63))
@example(status=200, headers={}, value=usage(prompt_tokens=True))
@example(status=200, headers={}, value=usage(prompt_tokens_details={"cached_tokens": 10**40}))
@example(status=200, headers={}, value={**MESSAGE, "stop_reason": "refusal", "stop_details": {"category": "\ud800"}})
@example(status=200, headers={}, value={**MESSAGE, "content": [{"type": "text", "text": "\ud800"}, 3, None]})
@example(status=200, headers={}, value={**RESPONSE, "output": [{"type": "message", "content": 3}, None, {"type": 1}]})
@example(status=200, headers={}, value={**RESPONSE, "status": "incomplete", "incomplete_details": {"reason": "\ud800"}})
@searched(120)
def test_a_response_with_anything_in_any_field_is_a_reply(status: int, headers: dict[str, str], value: Any) -> None:
    sound(status, headers, encoded(value))


@given(
    status=STATUSES,
    headers=HEADERS,
    body=st.binary(max_size=60)
    | damaged(
        st.sampled_from([encoded(each) for each in (SUCCESS, MESSAGE, RESPONSE, VECTORS, ERROR, SPENT)]),
        inserts=[
            b"\xff",
            b"\x00",
            b"NaN",
            b"9" * 5_000,
            b"[" * 3_000,
            b"\\ud800",
            b"\xef\xbb\xbf",
            b"<html>",
            b'"',
            b"{",
        ],
    ),
)
@searched(120)
def test_any_bytes_are_a_reply(status: int, headers: dict[str, str], body: bytes) -> None:
    sound(status, headers, body)


@pytest.mark.parametrize("status", [200, 400, 429, 500])
@pytest.mark.parametrize(
    "body",
    [
        b"[" * 1_000_000,
        b'{"a":' * 500_000,
        b"9" * 1_000_000,
        b"1e999999999",
        encoded({"error": "model " * 1_000_000}),
        encoded({"error": {"message": "model " * 1_000_000, "code": "x" * 1_000_000}}),
        encoded({"error": "maximum context " * 400_000}),
        encoded({"choices": [{}] * 300_000}),
    ],
    ids=["lists", "objects", "digits", "exponent", "text", "message", "almost", "choices"],
)
def test_megabytes_of_nothing_are_a_failure(status: int, body: bytes) -> None:
    """Messages are searched in their first part only: a pattern over 6 MB took ten seconds."""
    sound(status, {}, body)


GATE = compile_gate(
    Pipeline.model_validate(
        {
            "name": "label",
            "input": {"id": "id", "fields": ["text"]},
            "prompt": "{{ text }}",
            "output": {
                "type": "object",
                "properties": {
                    "quote": {"type": ["string", "array", "null"]},
                    "score": {},
                    "deep": {"properties": {"label": {"enum": ["a", 1, None]}}},
                    "name": {"type": "string", "pattern": "^(a+)+$", "format": "date", "maxLength": 50},
                },
                "required": ["quote", "score"],
            },
            "checks": [
                {"evidence": {"quote": "quote", "in": ["text", "gone"]}},
                {"range": {"field": "score", "min": 0, "max": 1e300, "else": "review"}},
                {"enum": {"field": "deep.label", "values": ["a", 1, None, 1.5], "else": "reject"}},
            ],
            "model": {"pools": ["sim"], "max_output_tokens": 10},
        }
    )
)
ANSWER = {"quote": "hello", "score": 0.5, "deep": {"label": "a"}, "name": "aaa"}
PIECES = [
    "```json\n",
    "\n```",
    "```",
    "{",
    "}",
    "[",
    "]",
    '"quote":',
    '"hello"',
    '"score":',
    "0.5",
    ",",
    "NaN",
    "1e999",
]
PIECES += [
    "9" * 400,
    "9" * 5_000,
    "\\ud800",
    "\\u0000",
    "\u2028",
    "\0",
    "[" * 300,
    '{"a":' * 70,
    "null",
    "-0",
    " ",
    "\n",
]
FINISHES = st.sampled_from(["stop", None, "length", "content_filter", "", "x" * 300])


def verdict_of(text: str, finish: str | None, row: dict[str, Any]) -> None:
    """Q1: a verdict that fits its message, and a value only with the word accepted, which JSON and UTF-8 can hold."""
    verdict, value = GATE.judge(text, finish, lambda: row)
    assert (value is not None) <= (verdict.kind is VerdictKind.ACCEPTED)
    for said in (verdict.rule, verdict.field, verdict.value):
        assert said is None or len(said.encode()) < 4_000
    if value is not None:
        assert json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


@given(value=mutated(ANSWER), finish=FINISHES, row=mutated({"text": "well, hello there"}))
@example(value={**ANSWER, "score": 10**400}, finish="stop", row={"text": "hello"})
@example(value={**ANSWER, "name": "a" * 40 + "b"}, finish="stop", row={"text": "hello"})
@example(value={**ANSWER, "quote": ["hello", "\ud800"]}, finish="stop", row={"text": "hello"})
@searched(120)
def test_an_answer_with_anything_in_any_field_gets_a_verdict(value: Any, finish: str | None, row: Any) -> None:
    verdict_of(json.dumps(value), finish, row if isinstance(row, dict) else {})


@given(text=st.lists(st.sampled_from(PIECES) | CLEAN_TEXTS, max_size=10).map("".join), finish=FINISHES)
@searched(120)
def test_any_text_gets_a_verdict(text: str, finish: str | None) -> None:
    verdict_of(text, finish, {"text": "hello"})


@pytest.mark.parametrize("piece", ["`", " ", "\n", "```\n", "[", '{"a":', '"', "\\", "9", "```json\n{"])
def test_half_a_megabyte_of_one_thing_gets_a_verdict(piece: str) -> None:
    """No pattern runs away on it, no nesting ends the process."""
    verdict_of(piece * (500_000 // len(piece)), "stop", {"text": "hello"})
    verdict_of("```\n" + piece * (400_000 // len(piece)) + "\n```", "stop", {"text": "hello"})
