"""Lines of a batch by how they ended, and the tokens they cost, while the batch runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from nightmill.provider_simulator.bulk.batch import Batch
from nightmill.provider_simulator.bulk.rows import Done


@dataclass(slots=True)
class Tally:
    """Counts of one run."""

    completed: int = 0
    failed: int = 0
    expired: int = 0
    cancelled: int = 0
    usage: list[int] = field(default_factory=lambda: [0, 0, 0, 0])  # input, cached, output, reasoning

    def add(self, done: Done) -> None:
        """One line ran."""
        if done.good:
            self.completed += 1
        else:
            self.failed += 1
        usage = None if done.reply is None else done.reply.usage
        if usage is not None:
            total = self.usage
            total[0] += usage.prompt_tokens
            total[1] += usage.cached_tokens
            total[2] += usage.completion_tokens
            total[3] += usage.reasoning_tokens

    def store(self, batch: Batch) -> None:
        """Put the counts into the batch."""
        counts = batch.counts
        counts.completed, counts.failed = self.completed, self.failed
        counts.expired, counts.cancelled = self.expired, self.cancelled
        batch.usage = list(self.usage)
