"""A fault befalls a call: which reply comes of it, and whether the work is done first.

The same for every call of every provider: `work` does what the call asks for and returns its reply; a fault comes
before the work, in place of its answer, or changes how the answer is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from nightmill.provider_simulator import errors, faults
from nightmill.provider_simulator.buckets import Buckets
from nightmill.provider_simulator.call_faults import (
    BadGzip,
    CallFault,
    ClientError,
    ContextLengthExceeded,
    CutJson,
    Disconnect,
    Drip,
    Hang,
    HtmlPage,
    HttpFault,
    LimitHeaders,
    OddBody,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    Redirect,
    ResetAfterBilling,
    ResetBeforeBilling,
    ResetEarly,
    ServerError,
    Slow,
    SlowDown,
    SpendLimit,
    Unauthorized,
)
from nightmill.provider_simulator.envelopes import HTML
from nightmill.provider_simulator.errors import ApiError
from nightmill.provider_simulator.reply import Manner, Reply, Side, Voice
from nightmill.provider_simulator.scenario import RateLimit

DEFAULT_CONTEXT_TOKENS = 128_000
_WIDE = RateLimit(
    requests_per_min=30_000,
    tokens_per_min=150_000_000,
    input_tokens_per_min=10_000_000,
    output_tokens_per_min=2_000_000,
)

_TurnedAway = (
    RateLimited
    | QuotaExhausted
    | SpendLimit
    | SlowDown
    | Overloaded
    | ClientError
    | Unauthorized
    | ContextLengthExceeded
)
_Replaced = ServerError | HtmlPage | Redirect | OddBody | Hang | Disconnect | ResetBeforeBilling | ResetEarly
_ODD_BODIES = {
    "empty": b"",
    "null": b"null",
    "malformed": b'{"id":"x","choices":[{"index":0,',
    "bom": b"\xef\xbb\xbf{}",
}


class Asked(NamedTuple):
    """What a fault may want to know of the call."""

    model: str = ""
    wanted_tokens: int = 0  # prompt and reserved completion
    context_tokens: int | None = None


def befall(fault: CallFault | None, work: Callable[[], Reply], voice: Voice, asked: Asked, *, now_ms: int) -> Reply:
    """The reply to the call under `fault`."""
    if fault is None:
        return work()
    match fault:
        case (
            RateLimited()
            | QuotaExhausted()
            | SpendLimit()
            | SlowDown()
            | Overloaded()
            | ClientError()
            | Unauthorized()
            | ContextLengthExceeded()
        ):
            reply = voice.refusal(_error(fault, voice, asked), fault=fault.kind)
            if not isinstance(fault, QuotaExhausted | Unauthorized | ContextLengthExceeded):
                reply.headers.update(faults.retry_after_header(fault.retry_after, fault.retry_after_s, now_ms=now_ms))
            if isinstance(fault, ClientError) and fault.body == "empty":
                reply.body = b""
        case Slow() | Drip() | CutJson() | ResetAfterBilling() | BadGzip() | LimitHeaders():
            reply = _sent_oddly(fault, work())
        case _:
            reply = _replaced(fault, work, voice, now_ms=now_ms)
    if isinstance(fault, HttpFault) and fault.should_retry is not None:
        reply.headers["x-should-retry"] = "true" if fault.should_retry else "false"
    return reply


def _error(fault: _TurnedAway, voice: Voice, asked: Asked) -> ApiError:
    """Refusals: no work, no bill."""
    anthropic = voice.side is Side.ANTHROPIC
    match fault:
        case RateLimited():
            if anthropic:
                return errors.anthropic_rate_limit(f"{fault.dimension} per minute", 4000)
            detail = "Please try again later."
            return errors.rate_limit_exceeded(model=asked.model, dimension=fault.dimension, detail=detail)
        case QuotaExhausted():
            return errors.quota_exhausted(fault.code)
        case SpendLimit():
            return errors.spend_limit(fault.form)
        case SlowDown():
            return errors.slow_down(fault.status)
        case Overloaded():
            return errors.overloaded(fault.status or (529 if anthropic else 503))
        case Unauthorized():
            return errors.invalid_anthropic_key() if anthropic else errors.invalid_key()
        case ContextLengthExceeded():
            limit = asked.context_tokens or DEFAULT_CONTEXT_TOKENS
            wanted = max(limit + 1, asked.wanted_tokens)
            return context_error(voice, limit_tokens=limit, wanted_tokens=wanted)
        case ClientError():
            return ApiError(
                status=fault.status,
                message=fault.message or f"The request was refused with status {fault.status}.",
                type=fault.type or "invalid_request_error",
                param=fault.param,
                code=fault.code,
                details=fault.code,
                html=fault.body == "html",
            )


def context_error(voice: Voice, *, limit_tokens: int, wanted_tokens: int) -> ApiError:
    """A prompt that does not fit, in the words of the side that was called."""
    if voice.side is Side.ANTHROPIC:
        message = f"prompt is too long: {wanted_tokens} tokens > {limit_tokens} maximum"
        return ApiError(status=400, message=message)
    return errors.context_length_exceeded(limit_tokens=limit_tokens, requested_tokens=wanted_tokens)


def _sent_oddly(fault: Slow | Drip | CutJson | ResetAfterBilling | BadGzip | LimitHeaders, reply: Reply) -> Reply:
    """The work's own answer, sent the way the fault wants it."""
    reply.fault = fault.kind
    size = len(reply.body) if reply.file is None else reply.file.stop - reply.file.start
    match fault:
        case Slow():
            reply.wait_ms += fault.delay_ms
        case Drip():
            reply.manner, reply.chunk_bytes, reply.every_ms = Manner.DRIP, fault.chunk_bytes, fault.every_ms
        case CutJson():
            reply.manner, reply.framing, reply.completion = Manner.CUT, fault.framing, False
            reply.keep_bytes = int(size * fault.keep)
        case ResetAfterBilling():
            reply.manner, reply.completion = Manner.RESET, False
        case BadGzip():
            reply.headers["Content-Encoding"], reply.completion = "gzip", False
        case LimitHeaders():
            pass  # the headers are put on later, by `limit_headers`
    return reply


def limit_headers(fault: CallFault, headers: dict[str, str], side: Side, *, now_ms: int) -> dict[str, str]:
    """The rate-limit headers as the fault wants them; where the account has no limits, those of one with wide ones."""
    if not isinstance(fault, LimitHeaders):
        return headers
    if not headers:
        wide = Buckets(_WIDE, now_ms=now_ms)
        headers = wide.anthropic_headers(now_ms=now_ms) if side is Side.ANTHROPIC else wide.headers()
    match fault.form:
        case "absent":
            return {}
        case "zero":
            return {name: "0" if "remaining" in name else value for name, value in headers.items()}
        case "project":
            found = {name.replace("-tokens", "-project-tokens"): v for name, v in headers.items() if "tokens" in name}
            return {**headers, **found}


def _replaced(fault: _Replaced, work: Callable[[], Reply], voice: Voice, *, now_ms: int) -> Reply:
    """Taken up and then failed; the work is done and billed only where the scenario says so."""
    usage, wait_ms, tier = None, 0.0, "default"
    if getattr(fault, "billed", False):
        done = work()
        usage, wait_ms, tier = done.usage, done.wait_ms, done.tier
    reply = _failed(fault, voice, now_ms=now_ms)
    return replace(reply, usage=usage, wait_ms=wait_ms, tier=tier, fault=fault.kind, accepted=True)


def _failed(fault: _Replaced, voice: Voice, *, now_ms: int) -> Reply:
    match fault:
        case ServerError():
            reply = voice.refusal(errors.server_failed(fault.status))
            reply.headers.update(faults.retry_after_header(fault.retry_after, fault.retry_after_s, now_ms=now_ms))
            return reply
        case HtmlPage():
            body = HTML.format(status=fault.status).encode()
            return Reply(status=fault.status, body=body, content_type="text/html")
        case Redirect():
            return Reply(status=fault.status, headers={"Location": fault.location})
        case OddBody():
            return _odd(fault, voice)
        case Hang():
            return Reply(status=200, manner=Manner.HANG, hold_ms=fault.for_ms)
        case Disconnect():
            return Reply(status=200, manner=Manner.HANG, hold_ms=0)
        case ResetBeforeBilling() | ResetEarly():
            return Reply(status=200, manner=Manner.RESET)


def _odd(fault: OddBody, voice: Voice) -> Reply:
    if fault.form == "error":
        return replace(voice.refusal(errors.server_failed(500)), status=200)
    if fault.form == "event_stream":
        body = b"data: " + voice.refusal(errors.server_failed(500)).body + b"\n\ndata: [DONE]\n\n"
        return Reply(status=200, body=body, content_type="text/event-stream")
    return Reply(status=200, body=_ODD_BODIES[fault.form])
