"""How fast a job goes and how long it may still take, from what was seen of it lately (pure: time is an argument)."""

from collections import deque
from dataclasses import dataclass

from nightmill.api.models import JobStatus
from nightmill.kernel.domain.lifecycle import BatchState

#: a job in one of these goes on only when a person says so
STOPPED = frozenset(
    {BatchState.PUBLISHED, BatchState.PARTIAL_FAILED, BatchState.REFUSED, BatchState.CANCELLED, BatchState.HELD}
)
_WINDOW_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A job at one moment. Rate and time left are None until they can be told."""

    status: JobStatus
    items_per_s: float | None
    left_s: float | None


class Pace:
    """Rate over the last half minute."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def observe(self, status: JobStatus, now_s: float) -> Progress:
        """Progress at `now_s`, a monotonic time in seconds."""
        if self._seen and status.settled < self._seen[-1][1]:
            self._seen.clear()  # a new generation counts anew
        self._seen.append((now_s, status.settled))
        while len(self._seen) > 2 and now_s - self._seen[1][0] >= _WINDOW_S:
            self._seen.popleft()
        since_s, before = self._seen[0]
        rate = (status.settled - before) / (now_s - since_s) if now_s > since_s else None
        left = None if status.planned is None else status.planned - status.settled
        left_s = left / rate if rate and left is not None else None
        return Progress(status=status, items_per_s=rate, left_s=left_s)
