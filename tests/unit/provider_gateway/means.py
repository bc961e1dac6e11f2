"""What each signal must mean: the failure table as people agreed on it, beside the one in the code."""

from typing import NamedTuple

from nightmill.kernel.domain.failures import Billed, FailureClass
from nightmill.provider_gateway.failures import Signal

C, S = FailureClass, Signal
NO, YES, MAYBE = Billed.NO, Billed.YES, Billed.UNKNOWN


class Means(NamedTuple):
    """What becomes of the item, and whether it was paid for."""

    failure_class: FailureClass
    uses_retry_budget: bool
    billed: Billed


_CAPACITY = Means(C.CAPACITY, False, NO)
_STOP = Means(C.ACCOUNT, False, NO)
_BAD = Means(C.BAD_INPUT, True, NO)
_AGAIN = Means(C.TRANSIENT, True, NO)
_DOUBTFUL = Means(C.TRANSIENT, True, MAYBE)
_PAID = Means(C.TRANSIENT, True, YES)
_FREE = Means(C.TRANSIENT, False, NO)
_INVALID = Means(C.OUTPUT_INVALID, True, YES)

MEANS: dict[Signal, Means] = {
    S.RATE_LIMITED: _CAPACITY,
    S.REQUEST_OVER_RATE: _BAD,
    S.SLOW_DOWN: _CAPACITY,
    S.OUT_OF_CREDIT: _STOP,
    S.BILLING: _STOP,
    S.UNKNOWN_429: Means(C.CAPACITY, False, MAYBE),
    S.TIER_UNAVAILABLE: _CAPACITY,
    S.OVERLOADED: _AGAIN,
    S.SERVER_ERROR: _DOUBTFUL,
    S.MODEL_LOADING: _FREE,
    S.ENCRYPTION_KEY_AWAY: _FREE,
    S.REQUEST_TIMEOUT: _DOUBTFUL,
    S.CONFLICT: _AGAIN,
    S.TOO_EARLY: _AGAIN,
    S.BAD_REQUEST: _BAD,
    S.CONTEXT_TOO_LONG: _BAD,
    S.PARAMETER_REFUSED: _STOP,
    S.TOO_LARGE: _BAD,
    S.KEY_REFUSED: _STOP,
    S.MODEL_REFUSED: _STOP,
    S.ENDPOINT_MISSING: _STOP,
    S.ON_HOLD: _STOP,
    S.NOT_CONNECTED: _FREE,
    S.PROXY_AUTHENTICATION: _FREE,
    S.CONNECTION_LOST: _DOUBTFUL,
    S.DEADLINE_PASSED: _DOUBTFUL,
    S.BODY_INCOMPLETE: _PAID,
    S.BODY_CUT: _PAID,
    S.BODY_MALFORMED: _DOUBTFUL,
    S.BODY_UNDECODABLE: _DOUBTFUL,
    S.BODY_OVER_CAP: _DOUBTFUL,
    S.ERROR_IN_SUCCESS: _DOUBTFUL,
    S.UNEXPECTED_SHAPE: _DOUBTFUL,
    S.HTML_BODY: _DOUBTFUL,
    S.REDIRECT: _STOP,
    S.GATEWAY_HTML: _DOUBTFUL,
    S.STREAM_ERROR: _PAID,
    S.CONTEXT_FULL: Means(C.BAD_INPUT, True, YES),
    S.PROMPT_CUT: Means(C.BAD_INPUT, True, YES),
    S.FINISH_ABORTED: _INVALID,
    S.REFUSAL: Means(C.POLICY, True, YES),
    S.CONTENT_FILTER: Means(C.POLICY, True, YES),
    S.PROMPT_FILTERED: Means(C.POLICY, True, NO),
    S.TOOL_CALL: _INVALID,
    S.TURN_PAUSED: _INVALID,
    S.EMPTY_CONTENT: _INVALID,
    S.EMBEDDINGS_MISMATCHED: _INVALID,
}
#: signals that no call ends with by itself: what a pool's history makes of others, our own side's, and those of
#: batches, which tests/integration/test_bulk.py brings about
FOUND_BY_US = frozenset(
    {
        *(S.UNEXPLAINED_429, S.HTML_PROXY, S.POOL_UNUSABLE, S.PROMPT_UNRENDERABLE, S.DOCUMENT_MISSING),
        *(S.CRASHED, S.MOVED, S.NO_DESCRIPTORS),
        *(S.UPLOAD_DAMAGED, S.LIST_TOO_LONG, S.BATCH_FAULTY, S.BATCH_REFUSED, S.ENQUEUED_FULL),
        *(S.BATCH_EXPIRED, S.LINE_FAILED, S.RESULT_MISSING, S.RESULTS_LOST),
    }
)
