"""One table of what can go wrong with a call: signal → class, retry budget, billed; and the rows common to providers.

Rows and their numbers are those of the failure table the project works from (OpenAI error guide and SDK 3.57,
vLLM, SGLang, llama.cpp, Ollama and TGI sources, as of 2026-11-29). An adapter recognises its provider's own signals
first; what it does not know falls through to `signal_of_status`. Messages are written here and never quoted from a
response, which may repeat document text.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum

from nightmill.kernel.domain.failures import Billed, FailureClass
from nightmill.kernel.wire.messages import Failure

MAX_RETRY_AFTER_MS = 3_600_000


class Signal(StrEnum):
    """Every signal the gateway tells apart."""

    RATE_LIMITED = "rate_limited"
    REQUEST_OVER_RATE = "request_over_rate"
    SLOW_DOWN = "slow_down"
    OUT_OF_CREDIT = "out_of_credit"
    BILLING = "billing"
    UNKNOWN_429 = "unknown_429"
    TIER_UNAVAILABLE = "tier_unavailable"
    OVERLOADED = "overloaded"
    SERVER_ERROR = "server_error"
    MODEL_LOADING = "model_loading"
    REQUEST_TIMEOUT = "request_timeout"
    CONFLICT = "conflict"
    TOO_EARLY = "too_early"
    BAD_REQUEST = "bad_request"
    CONTEXT_TOO_LONG = "context_too_long"
    PARAMETER_REFUSED = "parameter_refused"
    TOO_LARGE = "too_large"
    KEY_REFUSED = "key_refused"
    MODEL_REFUSED = "model_refused"
    ENDPOINT_MISSING = "endpoint_missing"
    NOT_CONNECTED = "not_connected"
    PROXY_AUTHENTICATION = "proxy_authentication"
    CONNECTION_LOST = "connection_lost"
    DEADLINE_PASSED = "deadline_passed"
    BODY_INCOMPLETE = "body_incomplete"
    BODY_CUT = "body_cut"
    BODY_MALFORMED = "body_malformed"
    BODY_UNDECODABLE = "body_undecodable"
    BODY_OVER_CAP = "body_over_cap"
    ERROR_IN_SUCCESS = "error_in_success"
    UNEXPECTED_SHAPE = "unexpected_shape"
    HTML_BODY = "html_body"
    HTML_PROXY = "html_proxy"
    REDIRECT = "redirect"
    GATEWAY_HTML = "gateway_html"
    FINISH_ABORTED = "finish_aborted"
    REFUSAL = "refusal"
    CONTENT_FILTER = "content_filter"
    PROMPT_FILTERED = "prompt_filtered"
    TOOL_CALL = "tool_call"
    EMPTY_CONTENT = "empty_content"
    POOL_UNUSABLE = "pool_unusable"
    PROMPT_UNRENDERABLE = "prompt_unrenderable"
    DOCUMENT_MISSING = "document_missing"
    CRASHED = "crashed"
    MOVED = "moved"
    NO_DESCRIPTORS = "no_descriptors"


@dataclass(frozen=True, slots=True)
class Row:
    """What a signal means for the attempt."""

    failure_class: FailureClass
    uses_retry_budget: bool
    billed: Billed
    says: str
    #: the call may have been carried out although no answer came: the attempt is UNKNOWN, not FAILED
    outcome_unknown: bool = False


_C, _S = FailureClass, Signal
_NO, _YES, _MAYBE = Billed.NO, Billed.YES, Billed.UNKNOWN

ROWS: dict[Signal, Row] = {
    # row 1
    _S.RATE_LIMITED: Row(_C.CAPACITY, False, _NO, "the provider's rate limit is reached"),
    # row 2
    _S.REQUEST_OVER_RATE: Row(_C.BAD_INPUT, True, _NO, "this one request is over the tokens-per-minute limit"),
    # row 3
    _S.SLOW_DOWN: Row(_C.CAPACITY, False, _NO, "the provider asks to slow down"),
    # row 4
    _S.OUT_OF_CREDIT: Row(_C.ACCOUNT, False, _NO, "the account has no credit or has reached its spend limit"),
    # row 5
    _S.BILLING: Row(_C.ACCOUNT, False, _NO, "the provider refuses for a billing reason"),
    # row 6
    _S.UNKNOWN_429: Row(_C.CAPACITY, False, _MAYBE, "429 without a code and without Retry-After"),
    # row 7
    _S.TIER_UNAVAILABLE: Row(_C.CAPACITY, False, _NO, "the service tier has no room now"),
    # row 8
    _S.OVERLOADED: Row(_C.TRANSIENT, True, _NO, "the server is overloaded"),
    # row 9
    _S.SERVER_ERROR: Row(_C.TRANSIENT, True, _MAYBE, "the server failed"),
    # row 10
    _S.MODEL_LOADING: Row(_C.TRANSIENT, False, _NO, "the server still loads its model"),
    # row 11
    _S.REQUEST_TIMEOUT: Row(_C.TRANSIENT, True, _MAYBE, "the server gave the request up"),
    # row 12
    _S.CONFLICT: Row(_C.TRANSIENT, True, _NO, "the server reports a conflict"),
    # row 13
    _S.TOO_EARLY: Row(_C.TRANSIENT, True, _NO, "the server asks to try again later"),
    # row 14
    _S.BAD_REQUEST: Row(_C.BAD_INPUT, True, _NO, "the provider refuses the request"),
    # row 15
    _S.CONTEXT_TOO_LONG: Row(_C.BAD_INPUT, True, _NO, "prompt and answer do not fit the model's context"),
    # row 16, and its like on compatible servers: every item would fail, so the pool stops instead
    _S.PARAMETER_REFUSED: Row(_C.ACCOUNT, False, _NO, "the model does not take a parameter that the pipeline sets"),
    # row 17
    _S.TOO_LARGE: Row(_C.BAD_INPUT, True, _NO, "the request is too large for the provider"),
    # row 18
    _S.KEY_REFUSED: Row(_C.ACCOUNT, False, _NO, "the provider refuses the key; check the pool's key in pools.yaml"),
    # row 19
    _S.MODEL_REFUSED: Row(_C.ACCOUNT, False, _NO, "no such model, or no right to use it; check model in pools.yaml"),
    _S.ENDPOINT_MISSING: Row(_C.ACCOUNT, False, _NO, "no such endpoint; check base_url in pools.yaml"),
    # row 21
    _S.NOT_CONNECTED: Row(_C.TRANSIENT, False, _NO, "no connection to the provider; the request never left"),
    _S.PROXY_AUTHENTICATION: Row(_C.TRANSIENT, False, _NO, "a proxy wants a login; the request never left"),
    # row 22
    _S.CONNECTION_LOST: Row(_C.TRANSIENT, True, _MAYBE, "the connection broke before an answer", True),
    # row 23
    _S.DEADLINE_PASSED: Row(_C.TRANSIENT, True, _MAYBE, "no complete answer within the call deadline", True),
    # row 25
    _S.BODY_INCOMPLETE: Row(_C.TRANSIENT, True, _YES, "the answer's body ended early"),
    # row 26
    _S.BODY_CUT: Row(_C.TRANSIENT, True, _YES, "the answer's JSON is cut"),
    # row 27
    _S.BODY_MALFORMED: Row(_C.TRANSIENT, True, _MAYBE, "the answer's body is no JSON"),
    _S.BODY_UNDECODABLE: Row(_C.TRANSIENT, True, _MAYBE, "the answer's compression can not be undone"),
    _S.BODY_OVER_CAP: Row(_C.TRANSIENT, True, _MAYBE, "the answer's body is over 8 MiB"),
    # row 28
    _S.ERROR_IN_SUCCESS: Row(_C.TRANSIENT, True, _MAYBE, "an error came with status 200"),
    _S.UNEXPECTED_SHAPE: Row(_C.TRANSIENT, True, _MAYBE, "the answer has not the shape of a chat completion"),
    _S.HTML_BODY: Row(_C.TRANSIENT, True, _MAYBE, "a web page came instead of an answer"),
    _S.HTML_PROXY: Row(_C.ACCOUNT, False, _MAYBE, "web pages come instead of answers: a proxy or a wrong base_url"),
    # row 29
    _S.REDIRECT: Row(_C.ACCOUNT, False, _NO, "the provider redirects; check base_url in pools.yaml"),
    # row 30
    _S.GATEWAY_HTML: Row(_C.TRANSIENT, True, _MAYBE, "a proxy before the provider failed"),
    # row 34
    _S.FINISH_ABORTED: Row(_C.OUTPUT_INVALID, True, _YES, "the server broke the generation off"),
    # row 35
    _S.REFUSAL: Row(_C.POLICY, True, _YES, "the model refuses"),
    # row 36
    _S.CONTENT_FILTER: Row(_C.POLICY, True, _YES, "the provider filtered the answer"),
    _S.PROMPT_FILTERED: Row(_C.POLICY, True, _NO, "the provider's policy refuses the prompt"),
    # row 37
    _S.TOOL_CALL: Row(_C.OUTPUT_INVALID, True, _YES, "the model calls a tool instead of answering"),
    # row 38
    _S.EMPTY_CONTENT: Row(_C.OUTPUT_INVALID, True, _YES, "the answer is empty"),
    # our own side
    _S.POOL_UNUSABLE: Row(_C.ACCOUNT, False, _NO, "the pool can not be used"),
    _S.PROMPT_UNRENDERABLE: Row(_C.BAD_INPUT, True, _NO, "the row can not be rendered"),
    _S.DOCUMENT_MISSING: Row(_C.INTERNAL, True, _NO, "a block or pipeline is not in the blob store"),
    _S.CRASHED: Row(_C.TRANSIENT, True, _MAYBE, "the gateway stopped while the call was under way", True),
    _S.NO_DESCRIPTORS: Row(
        _C.TRANSIENT, False, _NO, "the gateway has no file descriptor left for a connection; raise its ulimit -n"
    ),
    _S.MOVED: Row(_C.TRANSIENT, True, _MAYBE, "the shard moved here while its calls were under way elsewhere", True),
}

_STATUS: dict[int, Signal] = {
    402: Signal.BILLING,
    401: Signal.KEY_REFUSED,
    403: Signal.KEY_REFUSED,
    404: Signal.ENDPOINT_MISSING,
    405: Signal.ENDPOINT_MISSING,
    407: Signal.PROXY_AUTHENTICATION,
    408: Signal.REQUEST_TIMEOUT,
    409: Signal.CONFLICT,
    413: Signal.TOO_LARGE,
    424: Signal.SERVER_ERROR,
    425: Signal.TOO_EARLY,
    501: Signal.ENDPOINT_MISSING,
    503: Signal.OVERLOADED,
    529: Signal.OVERLOADED,
}
_GATEWAY_STATUS = frozenset({502, 503, 504})


def signal_of_status(status: int, *, html: bool, hinted: bool) -> Signal:
    """The signal of a status that is not 200, when nothing in the body is recognised.

    `hinted`: the response says when to come back.
    """
    if status == 429:
        return Signal.RATE_LIMITED if hinted else Signal.UNKNOWN_429
    if html and status in _GATEWAY_STATUS:
        return Signal.GATEWAY_HTML
    if status in _STATUS:
        return _STATUS[status]
    if status >= 500:
        return Signal.SERVER_ERROR
    if status >= 400:
        return Signal.BAD_REQUEST
    return Signal.REDIRECT if status >= 300 else Signal.UNEXPECTED_SHAPE


_PLAIN = re.compile(r"^[A-Za-z0-9_.\[\]-]{1,64}$")


def failure(
    signal: Signal,
    *,
    status: int | None = None,
    code: str | None = None,
    param: str | None = None,
    detail: str | None = None,
    retry_after_ms: int | None = None,
) -> Failure:
    """The failure of a signal. `code` and `param` come from a response and are kept only if they are plain names."""
    row = ROWS[signal]
    named = param if param is not None and _PLAIN.match(param) else None
    facts = [f"status {status}"] if status is not None else []
    facts += [f"code {code}"] if code is not None and _PLAIN.match(code) else []
    facts += [f"parameter {named}"] if named is not None else []
    facts += [detail] if detail is not None else []
    return Failure(
        failure_class=row.failure_class,
        signal=signal,
        message=f"{row.says} ({', '.join(facts)})" if facts else row.says,
        uses_retry_budget=row.uses_retry_budget,
        billed=row.billed,
        retry_after_ms=retry_after_ms,
        param=named,
    )


def outcome_unknown(of: Failure) -> bool:
    """Whether the failed call may have been carried out without our seeing its answer."""
    return ROWS[Signal(of.signal)].outcome_unknown


def never_left(of: Failure) -> bool:
    """Whether the failed call surely never reached the provider, so that it counts for none of its limits."""
    return of.signal in (Signal.NOT_CONNECTED, Signal.PROXY_AUTHENTICATION, Signal.NO_DESCRIPTORS)


def retry_after_ms(headers: Mapping[str, str], *, now_ms: int) -> int | None:
    """When to come back: `retry-after-ms`, else `Retry-After` in seconds, else as an HTTP date.

    The order is the one of OpenAI's SDK. Garbage counts as absent; at most one hour, at least 0.
    """
    wait = _number(headers.get("retry-after-ms"), 1)
    if wait is None:
        wait = _number(headers.get("retry-after"), 1000)
    if wait is None:
        wait = _date(headers.get("retry-after"), now_ms)
    return None if wait is None else int(min(max(wait, 0.0), MAX_RETRY_AFTER_MS))


def _number(text: str | None, scale: int) -> float | None:
    try:
        value = float(text) * scale if text is not None else None
    except ValueError:
        return None
    # nan and negative numbers are garbage; infinity is clamped
    return value if value is not None and value >= 0 else None


def _date(text: str | None, now_ms: int) -> float | None:
    if text is None:
        return None
    try:
        return parsedate_to_datetime(text).timestamp() * 1000 - now_ms
    except (ValueError, OverflowError, TypeError):
        return None


_GO_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_GO_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}


def go_duration_ms(text: str | None) -> int | None:
    """Milliseconds of a Go duration such as `6m0s` or `12ms` (the form of x-ratelimit-reset-*); None for garbage."""
    if not text or _GO_DURATION.sub("", text) != "":
        return None
    total = sum(float(number) * _GO_UNIT_MS[unit] for number, unit in _GO_DURATION.findall(text))
    return int(min(total, MAX_RETRY_AFTER_MS))
