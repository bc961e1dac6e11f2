"""Failures of servers that the simulator does not play, as the bytes that they send."""

from typing import Any, NamedTuple

from integration.failure_cases import ANTHROPIC, OPENAI, RESPONSES, SERVER
from nightmill.provider_gateway.failures import Signal
from unit.provider_gateway.means import S


class Raw(NamedTuple):
    """Bytes that a server sends, and what the gateway's caller must make of them."""

    row: str
    pool: dict[str, Any]
    status: str
    body: Any
    signal: Signal
    headers: tuple[str, ...] = ()


def openai_error(code: Any = None, kind: Any = None, message: str = "") -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def anthropic_error(kind: str, code: str | None = None, message: str = "") -> dict[str, Any]:
    details = {} if code is None else {"details": {"error_code": code}}
    return {"type": "error", "error": {"type": kind, "message": message, **details}, "request_id": "req_1"}


def failed_response(code: str) -> dict[str, Any]:
    error = {"code": code, "message": "x"}
    return {"object": "response", "status": "failed", "error": error, "output": [], "usage": None}


def incomplete(reason: str) -> dict[str, Any]:
    message = {"type": "message", "content": [{"type": "output_text", "text": "{"}]}
    details = {"reason": reason}
    return {"object": "response", "status": "incomplete", "incomplete_details": details, "output": [message]}


OLLAMA_BUSY = {"error": "server busy, please try again.  maximum pending requests exceeded"}
LLAMA_LOADING = {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}
SGLANG_CONTEXT = {
    "object": "error",
    "message": "The input (9 tokens) is longer than the model's context length (5 tokens).",
    "type": "400",
    "code": 400,
}
TGI_CONTEXT = {"error": "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000", "error_type": "validation"}
VLLM_LIMIT = {"object": "error", "message": "This model's maximum context length is 9 tokens.", "code": 400}

RAW = [
    Raw("1 reset header", OPENAI, "429 Too Many", openai_error("rate_limit_exceeded", "requests"), S.RATE_LIMITED,
        ("x-ratelimit-reset-requests: 6m0s",)),
    Raw("3 code alone", ANTHROPIC, "429 Too Many", anthropic_error("rate_limit_error", "ramp_limit_exceeded"),
        S.SLOW_DOWN),
    Raw("5 linked", ANTHROPIC, "429 Too Many",
        anthropic_error("rate_limit_error", "linked_organization_spend_limit_reached"), S.BILLING),
    Raw("8 ollama", SERVER, "503 Busy", OLLAMA_BUSY, S.OVERLOADED),
    Raw("9 timeout_error", ANTHROPIC, "504 Timeout", anthropic_error("timeout_error"), S.SERVER_ERROR),
    Raw("9 tgi 424", SERVER, "424 Failed", {"error": "x", "error_type": "generation"}, S.SERVER_ERROR),
    Raw("10 llama.cpp", SERVER, "503 Wait", LLAMA_LOADING, S.MODEL_LOADING),
    Raw("10 key", ANTHROPIC, "503 Wait", anthropic_error("api_error", "cmek_key_unreachable"), S.ENCRYPTION_KEY_AWAY),
    Raw("10 context", ANTHROPIC, "503 Wait", anthropic_error("api_error", "cmek_context_unavailable"),
        S.ENCRYPTION_KEY_AWAY),
    Raw("15 sglang", SERVER, "400 Bad", SGLANG_CONTEXT, S.CONTEXT_TOO_LONG),
    Raw("15 tgi", SERVER, "422 Bad", TGI_CONTEXT, S.CONTEXT_TOO_LONG),
    Raw("15 vllm", SERVER, "400 Bad", VLLM_LIMIT, S.CONTEXT_TOO_LONG),
    Raw("16 unknown", ANTHROPIC, "400 Bad", anthropic_error("invalid_request_error", None, "x: Extra inputs are not "
        "permitted"), S.PARAMETER_REFUSED),
    Raw("16 too much", ANTHROPIC, "400 Bad", anthropic_error("invalid_request_error", None, "max_tokens: 200000 > "
        "64000, which is the maximum"), S.PARAMETER_REFUSED),
    Raw("17 aibrix", SERVER, "413 Big", {"detail": {"error": {"code": "content_size_limit_exceeded"}}}, S.TOO_LARGE),
    Raw("17 tokens", OPENAI, "400 Bad", openai_error("string_above_max_length", "invalid_request_error"), S.TOO_LARGE),
    Raw("18 vllm", SERVER, "401 Who", {"error": "Unauthorized"}, S.KEY_REFUSED),
    Raw("19 hold", ANTHROPIC, "400 Bad", anthropic_error("invalid_request_error", "organization_on_hold"), S.ON_HOLD),
    Raw("19 key", ANTHROPIC, "400 Bad", anthropic_error("invalid_request_error", "cmek_key_disabled"), S.ON_HOLD),
    Raw("19 none", SERVER, "501 None", {}, S.ENDPOINT_MISSING),
    Raw("27 bytes", OPENAI, "200 OK", b"\xff\xfe{}", S.BODY_MALFORMED),
    Raw("27 cap", OPENAI, "200 OK", b" " * ((8 << 20) + 1), S.BODY_OVER_CAP),
    Raw("28 key", OPENAI, "200 OK", openai_error("invalid_api_key"), S.KEY_REFUSED),
    Raw("28 credit", ANTHROPIC, "200 OK", anthropic_error("billing_error"), S.BILLING),
    Raw("28 hollow", ANTHROPIC, "200 OK", {"content": None, "stop_reason": None}, S.UNEXPECTED_SHAPE),
    Raw("28 queued", RESPONSES, "200 OK", {"object": "response", "status": "queued", "output": []}, S.UNEXPECTED_SHAPE),
    Raw("28 failed", RESPONSES, "200 OK", failed_response("server_error"), S.SERVER_ERROR),
    Raw("28 limited", RESPONSES, "200 OK", failed_response("rate_limit_exceeded"), S.RATE_LIMITED),
    Raw("28 nameless", RESPONSES, "200 OK", failed_response("vector_store_timeout"), S.ERROR_IN_SUCCESS),
    Raw("34 cancelled", RESPONSES, "200 OK", incomplete("x") | {"status": "cancelled"}, S.FINISH_ABORTED),
    Raw("34 steered", RESPONSES, "200 OK", incomplete("steered"), S.FINISH_ABORTED),
    Raw("36 incomplete", RESPONSES, "200 OK", incomplete("content_filter"), S.CONTENT_FILTER),
    Raw("36 failed", RESPONSES, "200 OK", failed_response("invalid_prompt"), S.PROMPT_FILTERED),
]  # fmt: skip
