"""One table of what can go wrong with a call: signal → class, retry budget, billed, and what becomes of the pool.

Rows and their numbers are those of the failure table the project works from (OpenAI error guide and SDK 3.57,
Anthropic error pages and SDK 2.14, vLLM, SGLang, llama.cpp, Ollama and TGI sources, as of 2026-11-29). What becomes of
the item follows from the class, for all services alike; what becomes of the pool stands beside it. An adapter
recognises its provider's own signals first; what it does not know falls through to `statuses`. Messages are
written here and never quoted from a response, which may repeat document text.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from nightmill.kernel.domain.failures import Billed, FailureClass
from nightmill.kernel.wire.messages import Failure


class Signal(StrEnum):
    """Every signal the gateway tells apart."""

    RATE_LIMITED = "rate_limited"
    REQUEST_OVER_RATE = "request_over_rate"
    SLOW_DOWN = "slow_down"
    OUT_OF_CREDIT = "out_of_credit"
    BILLING = "billing"
    UNKNOWN_429 = "unknown_429"
    UNEXPLAINED_429 = "unexplained_429"
    TIER_UNAVAILABLE = "tier_unavailable"
    OVERLOADED = "overloaded"
    SERVER_ERROR = "server_error"
    MODEL_LOADING = "model_loading"
    ENCRYPTION_KEY_AWAY = "encryption_key_away"
    REQUEST_TIMEOUT = "request_timeout"
    CONFLICT = "conflict"
    TOO_EARLY = "too_early"
    BAD_REQUEST = "bad_request"
    CONTEXT_TOO_LONG = "context_too_long"
    PARAMETER_REFUSED = "parameter_refused"
    TOO_LARGE = "too_large"
    KEY_REFUSED = "key_refused"
    MODEL_REFUSED = "model_refused"
    ON_HOLD = "on_hold"
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
    STREAM_ERROR = "stream_error"
    HTML_BODY = "html_body"
    HTML_PROXY = "html_proxy"
    REDIRECT = "redirect"
    GATEWAY_HTML = "gateway_html"
    CONTEXT_FULL = "context_full"
    PROMPT_CUT = "prompt_cut"
    FINISH_ABORTED = "finish_aborted"
    REFUSAL = "refusal"
    CONTENT_FILTER = "content_filter"
    PROMPT_FILTERED = "prompt_filtered"
    TOOL_CALL = "tool_call"
    TURN_PAUSED = "turn_paused"
    EMPTY_CONTENT = "empty_content"
    EMBEDDINGS_MISMATCHED = "embeddings_mismatched"
    POOL_UNUSABLE = "pool_unusable"
    PROMPT_UNRENDERABLE = "prompt_unrenderable"
    DOCUMENT_MISSING = "document_missing"
    CRASHED = "crashed"
    MOVED = "moved"
    NO_DESCRIPTORS = "no_descriptors"
    UPLOAD_DAMAGED = "upload_damaged"
    LIST_TOO_LONG = "list_too_long"
    BATCH_FAULTY = "batch_faulty"
    BATCH_REFUSED = "batch_refused"
    ENQUEUED_FULL = "enqueued_full"
    BATCH_EXPIRED = "batch_expired"
    LINE_FAILED = "line_failed"
    RESULT_MISSING = "result_missing"
    RESULTS_LOST = "results_lost"


@dataclass(frozen=True, slots=True)
class Pause:
    """A pool stands still, then one call goes first. Doubled for each pause in a row."""

    first_ms: int
    longest_ms: int
    failures: int = 1  #: so many in a row begin it


@dataclass(frozen=True, slots=True)
class Row:
    """What a signal means for the attempt, and for its pool."""

    failure_class: FailureClass
    uses_retry_budget: bool
    billed: Billed
    says: str
    #: None: the pool goes on; a provider's own time goes before it
    pause: Pause | None = None
    #: the call may have been carried out although no answer came: the attempt is UNKNOWN, not FAILED
    outcome_unknown: bool = False


_C, _S = FailureClass, Signal
_NO, _YES, _MAYBE = Billed.NO, Billed.YES, Billed.UNKNOWN
_STOP = Pause(30_000, 600_000)  #: until a person has mended the account: one call tries it out now and then
_AWAY = Pause(1_000, 30_000)
_BREAKER = Pause(1_000, 30_000, failures=8)
_HOURS = Pause(60_000, 3_600_000)

ROWS: dict[Signal, Row] = {
    # row 1
    _S.RATE_LIMITED: Row(_C.CAPACITY, False, _NO, "the provider's rate limit is reached", Pause(5_000, 60_000)),
    # row 2
    _S.REQUEST_OVER_RATE: Row(_C.BAD_INPUT, True, _NO, "this one request is over the tokens-per-minute limit"),
    # row 3
    _S.SLOW_DOWN: Row(_C.CAPACITY, False, _NO, "the provider asks to slow down", Pause(5_000, 300_000)),
    # row 4
    _S.OUT_OF_CREDIT: Row(_C.ACCOUNT, False, _NO, "the account has no credit or has reached its spend limit", _STOP),
    # row 5
    _S.BILLING: Row(_C.ACCOUNT, False, _NO, "the provider refuses for a billing reason", _STOP),
    # row 6, and its third time in a row
    _S.UNKNOWN_429: Row(_C.CAPACITY, False, _MAYBE, "429 without a code and without Retry-After", _HOURS),
    _S.UNEXPLAINED_429: Row(_C.ACCOUNT, False, _MAYBE, "429 again and again without a reason; see the account", _HOURS),
    # row 7
    _S.TIER_UNAVAILABLE: Row(_C.CAPACITY, False, _NO, "the service tier has no room now", Pause(30_000, 600_000)),
    # row 8
    _S.OVERLOADED: Row(_C.TRANSIENT, True, _NO, "the server is overloaded", _BREAKER),
    # row 9
    _S.SERVER_ERROR: Row(_C.TRANSIENT, True, _MAYBE, "the server failed"),
    # row 10
    _S.MODEL_LOADING: Row(_C.TRANSIENT, False, _NO, "the server still loads its model", Pause(1_000, 10_000)),
    _S.ENCRYPTION_KEY_AWAY: Row(_C.TRANSIENT, False, _NO, "the provider can not reach the encryption key", _AWAY),
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
    _S.PARAMETER_REFUSED: Row(
        _C.ACCOUNT, False, _NO, "the model does not take a parameter; see refuses in pools.yaml", _STOP
    ),
    # row 17
    _S.TOO_LARGE: Row(_C.BAD_INPUT, True, _NO, "the request is too large for the provider"),
    # row 18
    _S.KEY_REFUSED: Row(_C.ACCOUNT, False, _NO, "the provider refuses the key; check key in pools.yaml", _STOP),
    # row 19
    _S.MODEL_REFUSED: Row(_C.ACCOUNT, False, _NO, "no such model, or no right to it; check pools.yaml", _STOP),
    _S.ENDPOINT_MISSING: Row(_C.ACCOUNT, False, _NO, "no such endpoint; check base_url in pools.yaml", _STOP),
    _S.ON_HOLD: Row(_C.ACCOUNT, False, _NO, "the account is barred from this; see the provider's console", _STOP),
    # row 21
    _S.NOT_CONNECTED: Row(_C.TRANSIENT, False, _NO, "no connection to the provider; the request never left", _AWAY),
    _S.PROXY_AUTHENTICATION: Row(_C.TRANSIENT, False, _NO, "a proxy wants a login; the request never left", _AWAY),
    # row 22, and row 24 as far as a call of one request can tell: part of the body may have arrived
    _S.CONNECTION_LOST: Row(_C.TRANSIENT, True, _MAYBE, "the connection broke before an answer", None, True),
    # row 23
    _S.DEADLINE_PASSED: Row(_C.TRANSIENT, True, _MAYBE, "no complete answer within the call deadline", None, True),
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
    _S.UNEXPECTED_SHAPE: Row(_C.TRANSIENT, True, _MAYBE, "the answer has not the shape of one"),
    _S.HTML_BODY: Row(_C.TRANSIENT, True, _MAYBE, "a web page came instead of an answer"),
    _S.HTML_PROXY: Row(
        _C.ACCOUNT, False, _MAYBE, "web pages come instead of answers: a proxy or a wrong base_url", _STOP
    ),
    # row 29
    _S.REDIRECT: Row(_C.ACCOUNT, False, _NO, "the provider redirects; check base_url in pools.yaml", _STOP),
    # row 30
    _S.GATEWAY_HTML: Row(_C.TRANSIENT, True, _MAYBE, "a proxy before the provider failed", _BREAKER),
    # row 31
    _S.STREAM_ERROR: Row(_C.TRANSIENT, True, _YES, "a stream's frames came instead of an answer"),
    # row 33, and a server that cuts prompts without a word
    _S.CONTEXT_FULL: Row(_C.BAD_INPUT, True, _YES, "the answer ended where the model's context ends"),
    _S.PROMPT_CUT: Row(_C.BAD_INPUT, True, _YES, "the server has cut the prompt; give it a longer context"),
    # row 34
    _S.FINISH_ABORTED: Row(_C.OUTPUT_INVALID, True, _YES, "the server broke the generation off"),
    # row 35
    _S.REFUSAL: Row(_C.POLICY, True, _YES, "the model refuses"),
    # row 36
    _S.CONTENT_FILTER: Row(_C.POLICY, True, _YES, "the provider filtered the answer"),
    _S.PROMPT_FILTERED: Row(_C.POLICY, True, _NO, "the provider's policy refuses the prompt"),
    # row 37
    _S.TOOL_CALL: Row(_C.OUTPUT_INVALID, True, _YES, "the model calls a tool instead of answering"),
    _S.TURN_PAUSED: Row(_C.OUTPUT_INVALID, True, _YES, "the model paused its turn instead of answering"),
    # row 38
    _S.EMPTY_CONTENT: Row(_C.OUTPUT_INVALID, True, _YES, "the answer is empty"),
    # row 39; what is wrong with a single vector, the validator finds
    _S.EMBEDDINGS_MISMATCHED: Row(_C.OUTPUT_INVALID, True, _YES, "the vectors do not fit the inputs"),
    # our own side
    _S.POOL_UNUSABLE: Row(_C.ACCOUNT, False, _NO, "the pool can not be used", _STOP),
    _S.PROMPT_UNRENDERABLE: Row(_C.BAD_INPUT, True, _NO, "the row can not be rendered"),
    _S.DOCUMENT_MISSING: Row(_C.INTERNAL, True, _NO, "a block or pipeline is not in the blob store"),
    _S.CRASHED: Row(_C.TRANSIENT, True, _MAYBE, "the gateway stopped while the call was under way", None, True),
    _S.NO_DESCRIPTORS: Row(
        _C.TRANSIENT, False, _NO, "no file descriptor left for a connection; raise ulimit -n", Pause(1_000, 10_000)
    ),
    _S.MOVED: Row(
        _C.TRANSIENT, True, _MAYBE, "the shard moved here while its calls were under way elsewhere", None, True
    ),
    # the bulk lane; row 24
    _S.UPLOAD_DAMAGED: Row(_C.TRANSIENT, False, _NO, "the provider stored other bytes than were sent"),
    _S.LIST_TOO_LONG: Row(_C.TRANSIENT, False, _NO, "the provider's list of batches does not end"),
    # rows 41, 43
    _S.BATCH_FAULTY: Row(_C.ACCOUNT, False, _NO, "the provider finds the batch's input wrong throughout", _STOP),
    _S.BATCH_REFUSED: Row(_C.ACCOUNT, False, _NO, "the provider refuses the batch as a whole", _STOP),
    # row 42
    _S.ENQUEUED_FULL: Row(_C.CAPACITY, False, _NO, "unfinished batches hold all the tokens that may be enqueued"),
    # row 44
    _S.BATCH_EXPIRED: Row(_C.CAPACITY, False, _NO, "the batch's time was over before the request ran"),
    # row 46
    _S.LINE_FAILED: Row(_C.TRANSIENT, True, _MAYBE, "the batch brought no response to the request"),
    # row 49
    _S.RESULT_MISSING: Row(
        _C.TRANSIENT, True, _MAYBE, "the batch's results lack the request; to send it again may pay twice", None, True
    ),
    # rows 20, 52: what ran was paid for, so only a person has it run again
    _S.RESULTS_LOST: Row(_C.DOWNSTREAM, True, _YES, "the provider has lost the batch's results"),
}

_PLAIN = re.compile(r"[A-Za-z0-9_.\[\]-]{1,64}")


def plain(word: str | None) -> str | None:
    """A provider's word if it is a plain name, to be shown and logged; None if not, for it may hold a document."""
    return word if word is not None and _PLAIN.fullmatch(word) else None


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
    named, coded = plain(param), plain(code)
    facts = [f"status {status}"] if status is not None else []
    facts += [f"code {coded}"] if coded is not None else []
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
