"""The wire of OpenAI-compatible chat, and every failure row that a realtime chat call can meet."""

import gzip
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.kernel.domain.prompt import ChatMessage
from nightmill.kernel.wire.messages import Usage
from nightmill.provider_gateway.adapters.openai_compatible import OpenAiCompatible
from nightmill.provider_gateway.exchange import Response
from nightmill.provider_gateway.failures import Signal
from unit.provider_gateway.makers import NOW_MS, PIPELINE, SCHEMA, completion, make_pool, response
from unit.provider_gateway.means import MEANS, S

ADAPTER = OpenAiCompatible()


def error(code: Any = None, type_: Any = None, message: str = "", param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": type_, "param": param, "code": code}}


HTML = b"<html><body>Bad gateway</body></html>"
WHOLE = json.dumps(completion()).encode()
OVER_TPM = error("rate_limit_exceeded", "tokens", "Request too large for m on tokens per min (TPM)")
OLLAMA_BUSY = {"error": "server busy, please try again. maximum pending requests exceeded"}
LLAMA_LOADING = {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}
LLAMA_CONTEXT = {"error": {"code": 400, "message": "x", "type": "exceed_context_size_error", "n_ctx": 9}}
VLLM_CONTEXT = {
    "object": "error",
    "message": "This model's maximum context length is 4096 tokens. However, you requested 5000",
    "type": "BadRequestError",
    "code": 400,
}
VLLM_MODEL = {"object": "error", "message": "The model `x` does not exist.", "code": 404}

#: row of the failure table, response, signal
ROWS = [
    ("1 rpm", response(error("rate_limit_exceeded", "requests"), 429, retry_after="2"), S.RATE_LIMITED),
    ("1 no code", response({}, 429, retry_after="2"), S.RATE_LIMITED),
    ("2", response(OVER_TPM, 429), S.REQUEST_OVER_RATE),
    ("3", response(error("slow_down"), 429), S.SLOW_DOWN),
    ("3 older", response(error("slow_down"), 503), S.SLOW_DOWN),
    ("4 type", response(error(None, "insufficient_quota"), 429), S.OUT_OF_CREDIT),
    ("4 code", response(error("credit_balance_exhausted", "insufficient_quota"), 429), S.OUT_OF_CREDIT),
    ("4 limit", response(error("billing_hard_limit_reached"), 429), S.OUT_OF_CREDIT),
    ("5", response({}, 402), S.BILLING),
    ("6", response({}, 429), S.UNKNOWN_429),
    ("7", response(error("flex_unavailable"), 429), S.TIER_UNAVAILABLE),
    ("8 code", response(error("server_is_overloaded"), 503), S.OVERLOADED),
    ("8 529", response({}, 529), S.OVERLOADED),
    ("8 Ollama", response(OLLAMA_BUSY, 503), S.OVERLOADED),
    ("8 TGI", response({"error": "Model is overloaded", "error_type": "overloaded"}, 429), S.OVERLOADED),
    ("9 500", response(error("server_error"), 500), S.SERVER_ERROR),
    ("9 502", response({}, 502), S.SERVER_ERROR),
    ("9 504", response({}, 504), S.SERVER_ERROR),
    ("9 TGI 424", response({"error": "x", "error_type": "generation"}, 424), S.SERVER_ERROR),
    ("10", response(LLAMA_LOADING, 503), S.MODEL_LOADING),
    ("11", response({}, 408), S.REQUEST_TIMEOUT),
    ("12", response({}, 409), S.CONFLICT),
    ("13", response({}, 425), S.TOO_EARLY),
    ("14 400", response(error(None, "invalid_request_error", "no"), 400), S.BAD_REQUEST),
    ("14 422", response({"error": "x", "error_type": "validation"}, 422), S.BAD_REQUEST),
    ("15 code", response(error("context_length_exceeded"), 400), S.CONTEXT_TOO_LONG),
    ("15 vLLM", response(VLLM_CONTEXT, 400), S.CONTEXT_TOO_LONG),
    ("15 llama.cpp", response(LLAMA_CONTEXT, 400), S.CONTEXT_TOO_LONG),
    ("16", response(error("unsupported_value", "invalid_request_error", "", "temperature"), 400), S.PARAMETER_REFUSED),
    ("17 JSON", response({"detail": {"error": {"code": "content_size_limit_exceeded"}}}, 413), S.TOO_LARGE),
    ("17 HTML", response(HTML, 413), S.TOO_LARGE),
    ("18 401", response(error("invalid_api_key"), 401), S.KEY_REFUSED),
    ("18 vLLM", response({"error": "Unauthorized"}, 401), S.KEY_REFUSED),
    ("18 region", response(error("unsupported_country_region_territory"), 403), S.KEY_REFUSED),
    ("19 model", response(error("model_not_found"), 404), S.MODEL_REFUSED),
    ("19 text", response(VLLM_MODEL, 404), S.MODEL_REFUSED),
    ("19 right", response(error(None, "permission_error"), 403), S.MODEL_REFUSED),
    ("19 path", response(b"404 page not found", 404), S.ENDPOINT_MISSING),
    ("19 none", response({}, 501), S.ENDPOINT_MISSING),
    ("21 proxy", response(HTML, 407), S.PROXY_AUTHENTICATION),
    ("26", response(WHOLE[:-30]), S.BODY_CUT),
    ("26 in a text", response(WHOLE[: WHOLE.index(b"label") + 3]), S.BODY_CUT),
    ("27", response(b"{'choices': []}"), S.BODY_MALFORMED),
    ("27 NaN", response(WHOLE.replace(b"100", b"NaN")), S.BODY_MALFORMED),
    ("27 two", response(WHOLE + b"{}"), S.BODY_MALFORMED),
    ("27 bytes", response(b"\xff\xfe{}"), S.BODY_MALFORMED),
    ("27 deep", response(b"[" * 100_000), S.BODY_MALFORMED),
    ("27 empty", response(b""), S.BODY_MALFORMED),
    ("28 error", response(error("something")), S.ERROR_IN_SUCCESS),
    ("28 known", response(error("invalid_api_key")), S.KEY_REFUSED),
    ("28 HTML", response(HTML), S.HTML_BODY),
    ("28 hollow", response({"id": None, "choices": None}), S.UNEXPECTED_SHAPE),
    ("28 text", response(b'"ok"'), S.UNEXPECTED_SHAPE),
    ("28 204", response(b"", 204), S.UNEXPECTED_SHAPE),
    ("29", response(b"", 302, location="https://elsewhere"), S.REDIRECT),
    ("30", response(HTML, 502), S.GATEWAY_HTML),
    ("30 503", response(HTML, 503), S.GATEWAY_HTML),
    ("34 abort", response(completion(finish="abort")), S.FINISH_ABORTED),
    ("34 repetition", response(completion(finish="repetition")), S.FINISH_ABORTED),
    ("35", response(completion(None, refusal="I can't.")), S.REFUSAL),
    ("36 finish", response(completion(None, finish="content_filter")), S.CONTENT_FILTER),
    ("36 400", response(error("content_policy_violation"), 400), S.PROMPT_FILTERED),
    ("37", response(completion(None, finish="tool_calls", tool_calls=[{}])), S.TOOL_CALL),
    ("38 none", response(completion(None)), S.EMPTY_CONTENT),
    ("38 blank", response(completion(" \n")), S.EMPTY_CONTENT),
]  # fmt: skip


@pytest.mark.parametrize(("got", "signal"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_failure_rows(got: Response, signal: Signal) -> None:
    """E8, E9: each signal has its class, its use of the retry budget and its bill."""
    failure = ADAPTER.reply(got, now_ms=NOW_MS).failure
    assert failure is not None
    assert failure.signal == signal
    assert (failure.failure_class, failure.uses_retry_budget, failure.billed) == MEANS[signal]


def test_request_is_the_documented_one() -> None:
    messages = (ChatMessage(role="system", content="Classify."), ChatMessage(role="user", content="Grüße"))
    form = ADAPTER.form(base_url="http://host/v1/", pool=make_pool(), pipeline=PIPELINE)
    request = form.request(messages, 64)
    assert request.url == "http://host/v1/chat/completions"
    assert "authorization" not in {name.lower() for name in request.headers}
    assert json.loads(request.body) == {
        "model": "small",
        "messages": [{"role": "system", "content": "Classify."}, {"role": "user", "content": "Grüße"}],
        "max_tokens": 64,
        "temperature": 0,
        "seed": 3,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "tickets", "schema": SCHEMA, "strict": True},
        },
    }


def test_a_pool_without_structured_output_is_not_asked_for_it() -> None:
    pool = make_pool(structured_output=False)
    request = ADAPTER.form(base_url="http://h", pool=pool, pipeline=PIPELINE).request((), 1)
    assert "response_format" not in json.loads(request.body)


def test_an_answer_with_its_usage() -> None:
    reply = ADAPTER.reply(response(completion()), now_ms=NOW_MS)
    assert (reply.failure, reply.text, reply.finish_reason) == (None, '{"label": "a"}', "stop")
    assert reply.usage == Usage(input_tokens=100, cached_tokens=40, output_tokens=5)


def test_finish_length_is_an_answer_for_the_validator() -> None:
    """Row 32: the validator judges a truncated answer, the gateway only names it."""
    reply = ADAPTER.reply(response(completion('{"label', finish="length")), now_ms=NOW_MS)
    assert (reply.failure, reply.text, reply.finish_reason) == (None, '{"label', "length")


def test_content_in_parts_is_one_text() -> None:
    parts = [{"type": "text", "text": '{"label":'}, {"type": "image"}, {"type": "text", "text": ' "a"}'}]
    assert ADAPTER.reply(response(completion(parts)), now_ms=NOW_MS).text == '{"label": "a"}'


@pytest.mark.parametrize(
    "usage",
    [None, {}, {"prompt_tokens": 5}, {"prompt_tokens": -1, "completion_tokens": 1},
     {"prompt_tokens": "5", "completion_tokens": 1}, {"prompt_tokens": True, "completion_tokens": 1}],
)  # fmt: skip
def test_usage_that_is_not_said_is_not_known(usage: Any) -> None:
    reply = ADAPTER.reply(response(completion() | {"usage": usage}), now_ms=NOW_MS)
    assert (reply.failure, reply.usage) == (None, None)


def test_more_cached_than_prompt_tokens_can_not_be() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 9}}
    assert ADAPTER.reply(response(completion() | {"usage": usage}), now_ms=NOW_MS).usage == Usage(
        input_tokens=5, cached_tokens=5, output_tokens=1
    )


@pytest.mark.parametrize(
    ("headers", "wait_ms"),
    [
        ({"retry_after": "2", "x_ratelimit_reset_requests": "6m0s"}, 360_000),  # the later of both
        ({"retry_after": "20", "x_ratelimit_reset_requests": "12ms"}, 20_000),
        ({"x_ratelimit_reset_requests": "1s"}, 1_000),
        ({"x_ratelimit_reset_tokens": "6m0s"}, None),  # another dimension than the exhausted one
        ({"x_ratelimit_reset_requests": "soon"}, None),
    ],
)
def test_rate_limit_waits_until_its_dimension_has_room(headers: dict[str, str], wait_ms: int | None) -> None:
    """Row 1: max(Retry-After, reset header of the exhausted dimension)."""
    body = error("rate_limit_exceeded", "requests")
    failure = ADAPTER.reply(response(body, 429, **headers), now_ms=NOW_MS).failure
    assert failure is not None
    assert failure.retry_after_ms == wait_ms


def test_failure_messages_never_repeat_what_came() -> None:
    """A provider's message may quote the document."""
    body = error("weird code with SECRET words", "invalid_request_error", "you said SECRET", "a SECRET parameter")
    failure = ADAPTER.reply(response(body, 400), now_ms=NOW_MS).failure
    assert failure is not None
    assert "SECRET" not in failure.message
    assert failure.param is None


@given(st.binary(max_size=300), st.sampled_from([200, 204, 301, 400, 401, 404, 429, 500, 503, 529, 599]))
def test_any_bytes_are_an_answer_or_a_failure(body: bytes, status: int) -> None:
    reply = ADAPTER.reply(Response(status=status, headers={}, body=body), now_ms=NOW_MS)
    assert reply.failure is not None or reply.text is not None


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["error", "detail", "code", "type", "message", "choices", "content", "usage", "finish_reason"]),
        inner, max_size=4)), st.sampled_from([200, 400, 429, 500]))  # fmt: skip
def test_any_json_is_an_answer_or_a_failure(document: Any, status: int) -> None:
    reply = ADAPTER.reply(response(document, status), now_ms=NOW_MS)
    assert reply.failure is not None or reply.text is not None


def test_a_body_that_stayed_compressed_is_malformed() -> None:
    failure = ADAPTER.reply(response(gzip.compress(WHOLE)), now_ms=NOW_MS).failure
    assert failure is not None
    assert failure.signal == S.BODY_MALFORMED
