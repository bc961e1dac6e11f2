"""What goes on the wire for one call, and what it costs: decided whole, before a byte is sent."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from nightmill.provider_simulator import errors
from nightmill.provider_simulator.bill import Call
from nightmill.provider_simulator.buckets import Refused
from nightmill.provider_simulator.call_faults import Framing
from nightmill.provider_simulator.envelopes import anthropic_body, openai_body
from nightmill.provider_simulator.errors import ApiError
from nightmill.provider_simulator.prices import Usage
from nightmill.provider_simulator.scenario import Dialect

JSON = "application/json"
HTML = "text/html"


class Manner(StrEnum):
    """How the body is sent."""

    WHOLE = "whole"
    DRIP = "drip"
    CUT = "cut"  # part of the body, then the connection is closed
    RESET = "reset"  # nothing, and the connection is reset
    HANG = "hang"  # nothing for `hold_ms`, then the connection is closed


@dataclass(frozen=True, slots=True, kw_only=True)
class FileBody:
    """A part of a file on disk as a body."""

    path: Path
    start: int
    stop: int
    file_id: str


@dataclass(slots=True, kw_only=True)
class Reply:
    """One reply. `wait_ms` passes first, then `usage` is billed, then the bytes are sent."""

    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict)
    file: FileBody | None = None  # in place of `body`
    manner: Manner = Manner.WHOLE
    accepted: bool = True
    usage: Usage | None = None  # billed if not None
    tier: str = "default"  # at which it is billed
    completion: bool = False  # the body is the answer that is owed, so sending all of it is a delivery
    usage_told: bool = True  # the answer says what it used, in a way that its caller can know for its own
    wait_ms: float = 0.0
    code: str | None = None
    fault: str | None = None
    framing: Framing = Framing.CONTENT_LENGTH  # of CUT
    keep_bytes: int = 0  # of CUT
    chunk_bytes: int = 1  # of DRIP
    every_ms: int = 0  # of DRIP
    hold_ms: int = 0  # of HANG
    call: Call | None = None  # the line of the books that this reply ends
    error: ApiError | None = None  # what the body says, for the row of a batch


class Side(StrEnum):
    """Whose route was called."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"


class Voice(NamedTuple):
    """How this provider words an error on this route."""

    side: Side
    dialect: Dialect
    request_id: str

    def refusal(self, error: ApiError, *, fault: str | None = None, accepted: bool = False) -> Reply:
        """The error, at once and unbilled."""
        if self.side is Side.ANTHROPIC:
            body = anthropic_body(error, self.request_id)
        else:
            body = openai_body(error, self.dialect)
        return Reply(
            status=error.status,
            body=body,
            content_type=HTML if error.html else JSON,
            accepted=accepted,
            code=error.code or error.details or error.type,
            fault=fault,
            error=error,
        )

    def over_limit(self, refusal: Refused, *, model: str) -> Reply:
        """The 429 of a bucket that is too low. A call that never fits gets no Retry-After."""
        fits = refusal.retry_after_ms is not None
        detail = f"Limit {refusal.limit_per_min}."
        if self.side is Side.ANTHROPIC:
            error = errors.anthropic_rate_limit(f"{refusal.dimension} per minute", refusal.limit_per_min)
        elif fits:
            detail += " Please try again later."
            error = errors.rate_limit_exceeded(model=model, dimension=refusal.dimension, detail=detail)
        else:
            error = errors.request_too_large_for(model=model, dimension=refusal.dimension, detail=detail)
        reply = self.refusal(error)
        if refusal.retry_after_ms is not None:
            reply.headers["Retry-After"] = str(max(1, -(-refusal.retry_after_ms // 1000)))
        return reply
