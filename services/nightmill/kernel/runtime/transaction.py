"""What the open transaction holds, and when it is time to commit it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from nightmill.kernel.runtime.log import Outgoing, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long a transaction is filled and how much a step takes.

    What comes after a quiet time is committed as soon as the input is idle, or has filled one poll: a flow that begins
    is not kept from whoever comes next. In a flow the input is idle every few milliseconds, and a commit costs the
    broker 5-13 ms of CPU: there, two of them are `commit_gap_ms` apart.
    """

    poll_records: int = 500
    commit_gap_ms: int = 100
    commit_every_ms: int = 500
    commit_messages: int = 5_000


@dataclass(slots=True)
class Transaction:
    """Gathered since the last commit; rows wait in the stores' overlays, only their number is here."""

    outgoing: list[Outgoing] = field(default_factory=list)
    effects: list[object] = field(default_factory=list)
    handled: list[Record] = field(default_factory=list)
    rows: int = 0
    opened_ms: int | None = None

    @property
    def size(self) -> int:
        return len(self.outgoing) + len(self.handled) + self.rows

    @property
    def is_empty(self) -> bool:
        return self.size == 0 and not self.effects

    def add(self, outgoing: Sequence[Outgoing], effects: Sequence[object], rows: int) -> None:
        self.outgoing.extend(outgoing)
        self.effects.extend(effects)
        self.rows += rows

    def is_due(self, now_ms: int, pace: Pace, *, idle: bool, committed_ms: int) -> bool:
        """Whether to commit now: when the input is idle and the last commit some time ago, else by time or size."""
        if self.is_empty:
            return False
        if self.opened_ms is None:
            self.opened_ms = now_ms
        if idle and not 0 <= now_ms - committed_ms < pace.commit_gap_ms:
            return True
        was_quiet = not 0 <= self.opened_ms - committed_ms < pace.commit_every_ms
        enough = pace.poll_records if was_quiet else pace.commit_messages
        return now_ms - self.opened_ms >= pace.commit_every_ms or self.size >= enough
