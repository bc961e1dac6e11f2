"""The ways in which one HTTP call fails or looks odd; `stories` has those of batches, lines, files and webhooks."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from nightmill.provider_simulator.rules import Selector


class RetryAfterForm(StrEnum):
    """How a failure says when to come back."""

    SECONDS = "seconds"
    MILLISECONDS = "milliseconds"  # header `retry-after-ms`
    HTTP_DATE = "http_date"
    GARBAGE = "garbage"
    MISSING = "missing"


class Framing(StrEnum):
    """How the body that is cut short was announced."""

    CONTENT_LENGTH = "content_length"  # the client can see that bytes are missing
    CHUNKED = "chunked"  # the last chunk is missing
    CLOSE = "close"  # the end of the connection is the end of the body: only the JSON tells


class HttpFault(Selector):
    """A fault that ends in an HTTP answer."""

    should_retry: bool | None = None  # header `x-should-retry`


class _RetryAfter(HttpFault):
    retry_after: RetryAfterForm = RetryAfterForm.SECONDS
    retry_after_s: int = 1


class RateLimited(_RetryAfter):
    """429 `rate_limit_exceeded`."""

    kind: Literal["rate_limited"]
    dimension: Literal["requests", "tokens"] = "requests"


class QuotaExhausted(HttpFault):
    """429 that no waiting cures; real ones carry no Retry-After."""

    kind: Literal["quota_exhausted"]
    code: str = "insufficient_quota"


def _only_the_ramp_is_over_soon(stated: dict[str, Any]) -> RetryAfterForm:
    return RetryAfterForm.SECONDS if stated.get("form") == "ramp" else RetryAfterForm.MISSING


class SpendLimit(HttpFault):
    """Anthropic's spend limits: two 429, a ramp that alone has a Retry-After, two 400 of one's own limits, the 402."""

    kind: Literal["spend_limit"]
    form: Literal["enforced", "contract", "ramp", "own", "workspace", "billing"] = "enforced"
    retry_after: RetryAfterForm = Field(default_factory=_only_the_ramp_is_over_soon)
    retry_after_s: int = 1


class SlowDown(_RetryAfter):
    """`slow_down`: 429, or 503 on older endpoints."""

    kind: Literal["slow_down"]
    status: Literal[429, 503] = 429


class Overloaded(_RetryAfter):
    """529 `overloaded_error` or 503 `server_is_overloaded`; by default whichever the provider has."""

    kind: Literal["overloaded"]
    status: Literal[503, 529] | None = None
    retry_after: RetryAfterForm = RetryAfterForm.MISSING


class ServerError(_RetryAfter):
    """5xx in JSON; `billed` says whether the work was done before it failed."""

    kind: Literal["server_error"]
    status: int = Field(default=500, ge=500, le=599)
    retry_after: RetryAfterForm = RetryAfterForm.MISSING
    billed: bool = False


class ClientError(_RetryAfter):
    """Any 4xx, in JSON or as a proxy's page: 403, 404, 408, 409, 413, 422, 425, ..."""

    kind: Literal["client_error"]
    status: int = Field(ge=400, le=499)
    body: Literal["json", "html", "empty"] = "json"
    code: str | None = None
    type: str | None = None
    message: str | None = None
    param: str | None = None
    retry_after: RetryAfterForm = RetryAfterForm.MISSING


class HtmlPage(HttpFault):
    """A proxy's page in place of an answer."""

    kind: Literal["html"]
    status: int = Field(default=502, ge=200, le=599)
    billed: bool = False


class Redirect(HttpFault):
    """3xx to another place."""

    kind: Literal["redirect"]
    status: Literal[301, 302, 303, 307, 308] = 307
    location: str = "http://elsewhere.invalid/"


class OddBody(HttpFault):
    """200 with an error, nothing, half of a JSON value, null or a stream's error frame as the body."""

    kind: Literal["odd_body"]
    form: Literal["error", "empty", "malformed", "null", "bom", "event_stream"] = "error"
    billed: bool = False


class BadGzip(HttpFault):
    """200, billed, `Content-Encoding: gzip` over bytes that are none."""

    kind: Literal["bad_gzip"]


class CutJson(HttpFault):
    """200, billed, and the body ends early."""

    kind: Literal["cut_json"]
    framing: Framing = Framing.CONTENT_LENGTH
    keep: float = Field(default=0.5, ge=0, lt=1)


class Slow(HttpFault):
    """The right answer, late."""

    kind: Literal["slow"]
    delay_ms: int = Field(ge=0)


class Drip(HttpFault):
    """The right answer, a few bytes at a time: no single read ever times out."""

    kind: Literal["drip"]
    chunk_bytes: int = Field(default=16, ge=1)
    every_ms: int = Field(default=50, ge=0)


class LimitHeaders(HttpFault):
    """The right answer with odd rate-limit headers."""

    kind: Literal["limit_headers"]
    form: Literal["absent", "zero", "project"] = "absent"


class ResetAfterBilling(Selector):
    """The work is done and billed, and the client sees a connection reset."""

    kind: Literal["reset_after_billing"]


class ResetBeforeBilling(Selector):
    """A connection reset before any work, after the request was read."""

    kind: Literal["reset_before_billing"]


class ResetEarly(Selector):
    """A connection reset before the body of the request is read; selected by rate, window and `first` alone."""

    kind: Literal["reset_early"]


class Disconnect(Selector):
    """The connection is closed in good order, without an answer."""

    kind: Literal["disconnect"]
    billed: bool = False


class Unauthorized(HttpFault):
    """401, as after a key was revoked in the middle of a run."""

    kind: Literal["unauthorized"]


class ContextLengthExceeded(HttpFault):
    """400 `context_length_exceeded`."""

    kind: Literal["context_length_exceeded"]


class Hang(Selector):
    """No answer until the client leaves or `for_ms` is over; then the connection is closed."""

    kind: Literal["hang"]
    for_ms: int = Field(default=600_000, ge=0)
    billed: bool = False


CallFault = (
    RateLimited
    | QuotaExhausted
    | SpendLimit
    | SlowDown
    | Overloaded
    | ServerError
    | ClientError
    | HtmlPage
    | Redirect
    | OddBody
    | BadGzip
    | CutJson
    | Slow
    | Drip
    | LimitHeaders
    | ResetAfterBilling
    | ResetBeforeBilling
    | ResetEarly
    | Disconnect
    | Unauthorized
    | ContextLengthExceeded
    | Hang
)
