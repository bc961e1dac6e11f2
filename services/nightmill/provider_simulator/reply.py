"""What goes on the wire for one call, and what it costs: decided whole, before a byte is sent."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from pydantic_core import to_json

from nightmill.provider_simulator import errors, faults
from nightmill.provider_simulator.answers import Answer, compose
from nightmill.provider_simulator.bill import Usage
from nightmill.provider_simulator.buckets import Refused
from nightmill.provider_simulator.chat import ChatRequest
from nightmill.provider_simulator.draw import fraction
from nightmill.provider_simulator.errors import ApiError
from nightmill.provider_simulator.faults import Occasion
from nightmill.provider_simulator.scenario import (
    ContextLengthExceeded,
    CutJson,
    Drip,
    Framing,
    Hang,
    HtmlPage,
    QuotaExhausted,
    RateLimited,
    ResetAfterBilling,
    ResetBeforeBilling,
    Scenario,
    ServerError,
    Slow,
    Unauthorized,
)

DEFAULT_CONTEXT_TOKENS = 128_000

_JSON = "application/json"
_HTML = (
    "<!DOCTYPE html>\n<html><head><title>{status}</title></head>"
    "<body><center><h1>{status}</h1></center><hr><center>proxy</center></body></html>\n"
)
_COMPLETION = (
    b'{"id":"chatcmpl-%b","object":"chat.completion","created":%d,"model":%b,"choices":[{"index":0,"message":'
    b'{"role":"assistant","content":%b,"refusal":%b,"annotations":[]},"logprobs":null,"finish_reason":"%b"}],'
    b'"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":'
    b'{"cached_tokens":0,"cache_write_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,'
    b'"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default",'
    b'"system_fingerprint":null}'
)


class Manner(StrEnum):
    """How the body is sent."""

    WHOLE = "whole"
    DRIP = "drip"
    CUT = "cut"  # part of the body, then the connection is closed
    RESET = "reset"  # nothing, and the connection is reset
    HANG = "hang"  # nothing for `hold_ms`, then the connection is closed


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One reply. `wait_ms` passes first, then `usage` is billed, then the bytes are sent."""

    status: int
    body: bytes = b""
    content_type: str = _JSON
    headers: dict[str, str] = field(default_factory=dict)
    manner: Manner = Manner.WHOLE
    accepted: bool = True
    usage: Usage | None = None  # billed if not None
    completion: bool = False  # the body is the answer that is owed, so sending all of it is a delivery
    wait_ms: float = 0.0
    code: str | None = None
    fault: str | None = None
    framing: Framing = Framing.CONTENT_LENGTH  # of CUT
    keep_bytes: int = 0  # of CUT
    chunk_bytes: int = 1  # of DRIP
    every_ms: int = 0  # of DRIP
    hold_ms: int = 0  # of HANG


def refused(
    error: ApiError, *, headers: dict[str, str] | None = None, fault: str | None = None, accepted: bool = False
) -> Reply:
    """The error, at once and unbilled."""
    return Reply(
        status=error.status,
        body=error.body(),
        headers=headers or {},
        accepted=accepted,
        code=error.code or error.type,
        fault=fault,
    )


def over_limit(refusal: Refused, *, model: str) -> Reply:
    """The 429 of a bucket that is too low. A call that never fits gets no Retry-After."""
    detail = f"Limit {refusal.limit_per_min}. Please try again later."
    headers = {}
    if refusal.retry_after_ms is None:
        detail = f"Request too large. Limit {refusal.limit_per_min}."
    else:
        headers["Retry-After"] = str(max(1, -(-refusal.retry_after_ms // 1000)))
    return refused(errors.rate_limit_exceeded(model=model, dimension=refusal.dimension, detail=detail), headers=headers)


def plan(scenario: Scenario, request: ChatRequest, occasion: Occasion, *, now_ms: int) -> Reply:
    """The reply to a valid call that is within the limits. Same arguments, same reply."""
    fault = faults.decide(scenario, occasion)
    match fault:
        case None | Slow() | Drip() | CutJson() | ResetAfterBilling():
            return _answered(scenario, request, occasion, fault, now_ms=now_ms)
        case RateLimited() | QuotaExhausted() | Unauthorized() | ContextLengthExceeded():
            return _turned_away(scenario, request, fault, now_ms=now_ms)
        case ServerError() | HtmlPage() | Hang() | ResetBeforeBilling():
            return _failed(scenario, request, occasion, fault, now_ms=now_ms)


def _answered(
    scenario: Scenario,
    request: ChatRequest,
    occasion: Occasion,
    fault: Slow | Drip | CutJson | ResetAfterBilling | None,
    *,
    now_ms: int,
) -> Reply:
    """The model's answer, sent the way the fault wants it."""
    answer, usage, wait_ms = _work(scenario, request, occasion)
    body = _completion(request, answer, usage, occasion, now_ms=now_ms)
    kind = None if fault is None else fault.kind
    match fault:
        case None:
            return Reply(status=200, body=body, usage=usage, completion=True, wait_ms=wait_ms)
        case Slow():
            wait_ms += fault.delay_ms
            return Reply(status=200, body=body, usage=usage, completion=True, wait_ms=wait_ms, fault=kind)
        case Drip():
            return Reply(
                status=200,
                body=body,
                usage=usage,
                completion=True,
                wait_ms=wait_ms,
                fault=kind,
                manner=Manner.DRIP,
                chunk_bytes=fault.chunk_bytes,
                every_ms=fault.every_ms,
            )
        case CutJson():
            return Reply(
                status=200,
                body=body,
                usage=usage,
                wait_ms=wait_ms,
                fault=kind,
                manner=Manner.CUT,
                framing=fault.framing,
                keep_bytes=int(len(body) * fault.keep),
            )
        case ResetAfterBilling():
            return Reply(status=200, usage=usage, wait_ms=wait_ms, fault=kind, manner=Manner.RESET)


def _turned_away(
    scenario: Scenario,
    request: ChatRequest,
    fault: RateLimited | QuotaExhausted | Unauthorized | ContextLengthExceeded,
    *,
    now_ms: int,
) -> Reply:
    """Refusals: no work, no bill."""
    match fault:
        case RateLimited():
            headers = faults.retry_after_header(fault.retry_after, fault.retry_after_s, now_ms=now_ms)
            error = errors.rate_limit_exceeded(
                model=request.model, dimension=fault.dimension, detail="Please try again later."
            )
            return refused(error, headers=headers, fault=fault.kind)
        case QuotaExhausted():
            return refused(errors.quota_exhausted(fault.code), fault=fault.kind)
        case Unauthorized():
            return refused(errors.invalid_key(), fault=fault.kind)
        case ContextLengthExceeded():
            limit = scenario.context_tokens or DEFAULT_CONTEXT_TOKENS
            requested = max(limit + 1, request.prompt_tokens + (request.max_tokens or 0))
            error = errors.context_length_exceeded(limit_tokens=limit, requested_tokens=requested)
            return refused(error, fault=fault.kind)


def _failed(
    scenario: Scenario,
    request: ChatRequest,
    occasion: Occasion,
    fault: ServerError | HtmlPage | Hang | ResetBeforeBilling,
    *,
    now_ms: int,
) -> Reply:
    """Taken up and then failed; billed only where the scenario says so."""
    usage, wait_ms = None, 0.0
    if not isinstance(fault, ResetBeforeBilling) and fault.billed:
        _, usage, wait_ms = _work(scenario, request, occasion)
    match fault:
        case ServerError():
            error = errors.server_failed(fault.status)
            return Reply(
                status=fault.status,
                body=error.body(),
                headers=faults.retry_after_header(fault.retry_after, fault.retry_after_s, now_ms=now_ms),
                usage=usage,
                wait_ms=wait_ms,
                code=error.code or error.type,
                fault=fault.kind,
            )
        case HtmlPage():
            return Reply(
                status=fault.status,
                body=_HTML.format(status=fault.status).encode(),
                content_type="text/html",
                usage=usage,
                wait_ms=wait_ms,
                fault=fault.kind,
            )
        case Hang():
            return Reply(
                status=200,
                usage=usage,
                wait_ms=wait_ms,
                fault=fault.kind,
                manner=Manner.HANG,
                hold_ms=fault.for_ms,
            )
        case ResetBeforeBilling():
            return Reply(status=200, fault=fault.kind, manner=Manner.RESET)


def _work(scenario: Scenario, request: ChatRequest, occasion: Occasion) -> tuple[Answer, Usage, float]:
    """The answer, its bill, and how many milliseconds the model takes for it."""
    rule = faults.answer_rule(scenario, occasion)
    answer = compose(request, rule, seed=scenario.seed, digest=occasion.digest)
    latency = scenario.latency
    wait_ms = latency.fixed_ms + answer.completion_tokens * latency.per_token_us / 1000
    if latency.jitter_ms:
        wait_ms += latency.jitter_ms * fraction(scenario.seed, "latency", occasion.digest, occasion.occurrence)
    return answer, Usage(prompt_tokens=request.prompt_tokens, completion_tokens=answer.completion_tokens), wait_ms


def _completion(request: ChatRequest, answer: Answer, usage: Usage, occasion: Occasion, *, now_ms: int) -> bytes:
    return _COMPLETION % (
        f"{occasion.digest[:10].hex()}{occasion.occurrence:04d}".encode(),
        now_ms // 1000,
        to_json(request.model),
        to_json(answer.content),
        to_json(answer.refusal),
        answer.finish_reason.encode(),
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.prompt_tokens + usage.completion_tokens,
    )
