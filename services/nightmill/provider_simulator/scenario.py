"""A scenario: what the simulated provider knows, how fast it is, what it says, and how it fails.

This file is the truth of the scenario's fields; unknown fields are refused. Rules are tried from the top, and the
first one that selects a call wins. All conditions that a rule states must hold together; a rule without any selects
every call.

    seed: 7
    latency: {fixed_ms: 200, jitter_ms: 50}
    answers:
      - {match: "MIT License", content: {licence: MIT}}
      - {rate: 0.02, form: fenced}
    faults:
      - {kind: rate_limited, rate: 0.05, retry_after_s: 2}
      - {kind: reset_after_billing, match: "contract 17", occurrences: [1]}
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator


class ScenarioError(ValueError):
    """A scenario that cannot be used; the text names the place, the field, the value and what is allowed."""


class Dialect(StrEnum):
    """Whose manners the provider has."""

    OPENAI = "openai"  # a call without a key is refused
    SELF_HOSTED = "self_hosted"  # a call without a key is served


class AnswerForm(StrEnum):
    """What is done to the right content before it is sent."""

    PLAIN = "plain"
    FENCED = "fenced"  # inside a Markdown code fence
    PROSE = "prose"  # with a sentence before and after
    CUT = "cut"  # the second half is missing, finish reason `stop`
    LENGTH = "length"  # the second half is missing, finish reason `length`
    REFUSED = "refused"  # no content but a refusal
    CONTENT_FILTER = "content_filter"  # no content, finish reason `content_filter`
    WRONG_SCHEMA = "wrong_schema"  # JSON whose first field has another type
    EMPTY = "empty"


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


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Selector(_Model):
    """Which calls a rule is for."""

    rate: float = Field(default=1.0, ge=0, le=1)  # share of the calls, by hash: the same calls in every run
    first: int | None = Field(default=None, ge=1)  # only the first n calls since the scenario was set
    occurrences: tuple[Annotated[int, Field(ge=1)], ...] = ()  # 1 = the first time this body is seen since a reset
    match: str | None = None  # substring of the prompt
    regex: re.Pattern[str] | None = None  # searched in the prompt
    from_ms: int = Field(default=0, ge=0)  # window since the scenario was set
    until_ms: int | None = Field(default=None, ge=0)


class AnswerRule(Selector):
    """What the model says to the calls selected; without `content` it is made from the request."""

    content: JsonValue = None  # a text, or a value that is sent as JSON
    expand: bool = False  # put the groups of `regex` into a text: \1, \g<name>, JSON-escaped
    form: AnswerForm = AnswerForm.PLAIN

    @model_validator(mode="after")
    def _expansion_has_groups(self) -> AnswerRule:
        if self.expand and (self.regex is None or not isinstance(self.content, str)):
            raise ValueError("expand needs `regex` and a `content` that is a text")
        return self


class _RetryAfter(_Model):
    retry_after: RetryAfterForm = RetryAfterForm.SECONDS
    retry_after_s: int = 1


class RateLimited(Selector, _RetryAfter):
    """429 `rate_limit_exceeded`."""

    kind: Literal["rate_limited"]
    dimension: Literal["requests", "tokens"] = "requests"


class QuotaExhausted(Selector):
    """429 that no waiting cures; real ones carry no Retry-After."""

    kind: Literal["quota_exhausted"]
    code: str = "insufficient_quota"


class ServerError(Selector, _RetryAfter):
    """5xx in JSON; `billed` says whether the work was done before it failed."""

    kind: Literal["server_error"]
    status: int = Field(default=500, ge=500, le=599)
    retry_after: RetryAfterForm = RetryAfterForm.MISSING
    billed: bool = False


class HtmlPage(Selector):
    """A proxy's page in place of an answer."""

    kind: Literal["html"]
    status: int = Field(default=502, ge=200, le=599)
    billed: bool = False


class CutJson(Selector):
    """200, billed, and the body ends early."""

    kind: Literal["cut_json"]
    framing: Framing = Framing.CONTENT_LENGTH
    keep: float = Field(default=0.5, ge=0, lt=1)


class Slow(Selector):
    """The right answer, late."""

    kind: Literal["slow"]
    delay_ms: int = Field(ge=0)


class Drip(Selector):
    """The right answer, a few bytes at a time: no single read ever times out."""

    kind: Literal["drip"]
    chunk_bytes: int = Field(default=16, ge=1)
    every_ms: int = Field(default=50, ge=0)


class ResetAfterBilling(Selector):
    """The work is done and billed, and the client sees a connection reset."""

    kind: Literal["reset_after_billing"]


class ResetBeforeBilling(Selector):
    """A connection reset before any work."""

    kind: Literal["reset_before_billing"]


class Unauthorized(Selector):
    """401, as after a key was revoked in the middle of a run."""

    kind: Literal["unauthorized"]


class ContextLengthExceeded(Selector):
    """400 `context_length_exceeded`."""

    kind: Literal["context_length_exceeded"]


class Hang(Selector):
    """No answer until the client leaves or `for_ms` is over; then the connection is closed."""

    kind: Literal["hang"]
    for_ms: int = Field(default=600_000, ge=0)
    billed: bool = False


Fault = Annotated[
    RateLimited
    | QuotaExhausted
    | ServerError
    | HtmlPage
    | CutJson
    | Slow
    | Drip
    | ResetAfterBilling
    | ResetBeforeBilling
    | Unauthorized
    | ContextLengthExceeded
    | Hang,
    Field(discriminator="kind"),
]


class Latency(_Model):
    """Time before the first byte of an answer; failures that need no model come at once."""

    fixed_ms: int = Field(default=0, ge=0)
    jitter_ms: int = Field(default=0, ge=0)  # up to this much more, by hash of seed, body and occurrence
    per_token_us: int = Field(default=0, ge=0)  # times the completion tokens


class RateLimit(_Model):
    """The hidden buckets: refilled evenly, `burst` deep. Without a burst a bucket holds a tenth of a minute."""

    requests_per_min: int | None = Field(default=None, ge=1)
    tokens_per_min: int | None = Field(default=None, ge=1)
    burst_requests: int | None = Field(default=None, ge=1)
    burst_tokens: int | None = Field(default=None, ge=1)


class Scenario(_Model):
    """Everything that decides the simulator's behaviour, besides the requests."""

    seed: int = 0
    dialect: Dialect = Dialect.SELF_HOSTED
    models: tuple[str, ...] = ()  # empty: every model name is served
    context_tokens: int | None = Field(default=None, ge=1)
    latency: Latency = Latency()
    rate_limit: RateLimit = RateLimit()
    answers: tuple[AnswerRule, ...] = ()
    faults: tuple[Fault, ...] = ()


def parse_scenario(data: object, *, where: str) -> Scenario:
    """The scenario in `data`; `where` (a file name, a request) begins every line of the `ScenarioError`."""
    try:
        return Scenario.model_validate({} if data is None else data)
    except ValidationError as exc:
        lines = [f"{where}: {_field(e['loc'])}: {e['input']!r:.200}: {e['msg']}" for e in exc.errors()]
        raise ScenarioError("\n".join(lines)) from exc


def _field(loc: Sequence[int | str]) -> str:
    """`faults[0].rate`; the tag that pydantic adds after the index of a fault is left out."""
    if len(loc) > 2 and loc[0] == "faults":
        loc = [*loc[:2], *loc[3:]]
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".") or "(top)"
