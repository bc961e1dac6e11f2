"""A batch at the provider: its lines, how far each is, and when what happens to it."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from nightmill.kernel.wire.messages import ShardAttempt

NEVER_MS = 2**62


class Ran(StrEnum):
    """What became of a line."""

    OPEN = "open"  #: it may run yet
    RAN = "ran"
    NOT = "not"  #: and it never will


@dataclass(slots=True)
class Line:
    """One request of a batch."""

    custom_id: str
    key: str  #: of the attempt
    attempt: ShardAttempt
    run_at_ms: int
    state: Ran = Ran.OPEN
    rows: list[dict[str, Any]] = field(default_factory=list)  #: what the results say of it
    lost: bool = False  #: the results will say nothing of it. Of a cancelled batch they do: what ran in it is told
    told: bool = False  #: a row with an answer is among them


@dataclass(slots=True)
class Batch:
    """One batch of either style. Times are the world's."""

    id: str
    pool: str
    inline: bool
    status: str
    lines: list[Line]
    created_at_ms: int
    listed_at_ms: int
    starts_at_ms: int  #: it is validated then
    ends_at_ms: int
    metadata: dict[str, str] = field(default_factory=dict)
    errors: list[dict[str, Any]] = field(default_factory=list)  #: with which it fails in validation
    expires: bool = False  #: it ends with what has run by then
    forgetful: bool = False  #: its results say nothing of what did not run
    heeds_cancel: bool = True
    cancelled_at_ms: int | None = None
    output_id: str | None = None
    error_id: str | None = None
    results: bytes = b""  #: of the inline style
    deleted: bool = False

    @property
    def ended(self) -> bool:
        return self.status in ("completed", "failed", "expired", "cancelled", "ended")

    @property
    def tokens(self) -> int:
        """What counts as enqueued, by the provider's own count."""
        return sum(line.attempt.input_tokens for line in self.lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file at the provider."""

    id: str
    name: str
    content: bytes
