"""The rules of a scenario: which calls they select, and what the model says to them."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import cached_property
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from nightmill.provider_simulator.operations import GENERATING, GROUPS, Operation

OperationName = Operation | Literal["generate", "files", "batches", "any"]


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
    NULL = "null"  # content null
    NAN = "nan"  # JSON with NaN for its first field
    ABORTED = "aborted"  # finish reason `abort`, half of the content
    REPETITION = "repetition"  # finish reason `repetition`
    PAUSED = "paused"  # Anthropic's `pause_turn`
    TOOL_CALL = "tool_call"  # a call of a tool that nobody offered
    CONTEXT_FULL = "context_full"  # Anthropic's `model_context_window_exceeded`
    LINE_SEPARATORS = "line_separators"  # U+2028, U+0085 and CRLF inside the text
    NON_ASCII = "non_ascii"  # ids of the response hold letters beyond ASCII


class VectorForm(StrEnum):
    """What is wrong with the vectors of an embedding call."""

    PLAIN = "plain"
    COUNT = "count"  # one vector is missing
    DIMENSION = "dimension"  # the last vector is shorter
    NAN = "nan"
    ZERO = "zero"


class UsageForm(StrEnum):
    """How the answer reports what it cost; the bill stays right."""

    FULL = "full"
    MISSING = "missing"
    NULL = "null"
    ZERO = "zero"


class Model(BaseModel):
    """A part of a scenario: frozen, and unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Selector(Model):
    """Which calls a rule is for."""

    default_on: ClassVar[frozenset[Operation]] = GENERATING

    on: tuple[OperationName, ...] = ()  # empty: every call that makes a model work
    rate: float = Field(default=1.0, ge=0, le=1)  # share of the calls, by hash: the same calls in every run
    first: int | None = Field(default=None, ge=1)  # only the first n calls since the scenario was set
    occurrences: tuple[Annotated[int, Field(ge=1)], ...] = ()  # 1 = the first time this body is seen since a reset
    model: str | None = None  # asked for by exactly this name
    match: str | None = None  # substring of the prompt
    regex: re.Pattern[str] | None = None  # searched in the prompt
    from_ms: int = Field(default=0, ge=0)  # window since the scenario was set
    until_ms: int | None = Field(default=None, ge=0)

    @cached_property
    def operations(self) -> frozenset[Operation]:
        """The operations that `on` names, groups resolved."""
        if not self.on:
            return self.default_on
        named: set[Operation] = set()
        for name in self.on:
            if isinstance(name, Operation):
                named.add(name)
            else:
                named |= GROUPS[name]
        return frozenset(named)


class AnswerUsage(Model):
    """Parts of the usage, as shares of the prompt (cache) or of the completion (reasoning)."""

    report: UsageForm = UsageForm.FULL
    cached: float = Field(default=0, ge=0, le=1)
    cache_write: float = Field(default=0, ge=0, le=1)  # Anthropic: with a life of 5 minutes
    cache_write_1h: float = Field(default=0, ge=0, le=1)  # Anthropic alone
    reasoning_tokens: int = Field(default=0, ge=0)  # on top of the answer's own

    @model_validator(mode="after")
    def _parts_fit(self) -> AnswerUsage:
        if self.cached + self.cache_write + self.cache_write_1h > 1:
            raise ValueError("cached + cache_write + cache_write_1h must be at most 1")
        return self


class AnswerRule(Selector):
    """What the model says to the calls selected, lines of batches included; without `content` it is made from the
    request."""

    default_on: ClassVar[frozenset[Operation]] = GENERATING | {Operation.LINE}

    content: JsonValue = None  # a text, or a value that is sent as JSON
    expand: bool = False  # put the groups of `regex` into a text: \1, \g<name>, JSON-escaped
    form: AnswerForm = AnswerForm.PLAIN
    vectors: VectorForm = VectorForm.PLAIN
    usage: AnswerUsage = AnswerUsage()
    service_tier: str | None = None  # what the answer says was used; a lower one than asked is billed as such

    @model_validator(mode="after")
    def _expansion_has_groups(self) -> AnswerRule:
        if self.expand and (self.regex is None or not isinstance(self.content, str)):
            raise ValueError("expand needs `regex` and a `content` that is a text")
        return self
