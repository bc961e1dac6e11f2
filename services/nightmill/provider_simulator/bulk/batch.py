"""One batch: what is kept of it, and the objects that both providers show of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from pydantic import JsonValue, TypeAdapter

from nightmill.provider_simulator.bulk.states import Status, check_move, terminal
from nightmill.provider_simulator.reply import Side
from nightmill.provider_simulator.stories import BatchStory

RESULTS_MS = 29 * 86_400_000  # Anthropic keeps results this long after the batch was created

_STORIES: TypeAdapter[list[BatchStory]] = TypeAdapter(list[BatchStory])
_Story = TypeVar("_Story")


@dataclass(slots=True, kw_only=True)
class Counts:
    """How many lines ended how."""

    total: int = 0
    completed: int = 0
    failed: int = 0
    expired: int = 0
    cancelled: int = 0


@dataclass(slots=True, kw_only=True)
class Batch:
    """One batch of either provider. Times are virtual."""

    id: str
    side: Side
    status: Status
    endpoint: str
    input_file_id: str  # Anthropic: the file its requests were written to
    created_at_ms: int
    expires_at_ms: int
    version: str = ""  # Anthropic's, of the call that created it
    metadata: dict[str, str] | None = None
    output_expiry_s: int | None = None
    at_ms: dict[str, int] = field(default_factory=dict)  # when each later state began
    counts: Counts = field(default_factory=Counts)
    errors: list[dict[str, JsonValue]] = field(default_factory=list)
    model: str | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    enqueued_tokens: int = 0
    usage: list[int] = field(default_factory=lambda: [0, 0, 0, 0])  # input, cached, output, reasoning
    stories: Sequence[BatchStory] = ()
    deleted: bool = False  # Anthropic: by a client; the books stay

    def move(self, status: Status, *, now_ms: int) -> None:
        """Go on to `status`. Raises `ValueError` on an illegal move."""
        check_move(self.side, self.status, status)
        self.status = status
        self.at_ms[status] = now_ms

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return terminal(self.side, self.status)

    def story(self, kind: type[_Story]) -> _Story | None:
        """The odd turn of this kind that the batch takes."""
        return next((found for found in self.stories if isinstance(found, kind)), None)

    def as_row(self) -> dict[str, JsonValue]:
        """What the journal keeps."""
        row = {name: value for name, value in asdict(self).items() if name != "stories"}
        row["stories"] = _STORIES.dump_python(list(self.stories), mode="json")
        return row


def batch_of_row(row: dict[str, JsonValue]) -> Batch:
    """The batch that `as_row` wrote."""
    return TypeAdapter(Batch).validate_python(row)


def iso(at_ms: int | None) -> str | None:
    """RFC 3339 with microseconds, as Anthropic writes times."""
    if at_ms is None:
        return None
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
