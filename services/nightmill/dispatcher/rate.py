"""How fast a pool answers, as judgements show it: where no rate is configured, three seconds of it may be under way.

A pool's slots say how many calls run at once, not how many a second: an instant provider would wait for the six
commits between two shards. What is allowed grows with real progress only, and falls when answers fail to come for some
seconds. They come in bursts, one for each commit on their way, and a slow second is no reason to let a pool run dry, so
the best of the last windows counts.
"""

from collections import Counter, deque

_WINDOW_MS = 500
_WINDOWS = 20
_AHEAD_S = 3
_MOST_OUTSTANDING = 20_000  #: per pool and partition, so that cancel and order stay in force


class AnswerRate:
    """Judgements by pool in each of the last whole windows."""

    def __init__(self) -> None:
        self._since_ms: int | None = None
        self._now: Counter[str] = Counter()
        self._before: deque[tuple[int, Counter[str]]] = deque(maxlen=_WINDOWS)  #: length in ms, and counts

    def answered(self, pool: str) -> None:
        """One dispatched item of the pool came back."""
        self._now[pool] += 1

    def turn(self, now_ms: int) -> None:
        """Time passes."""
        if self._since_ms is None:
            self._since_ms = now_ms
        passed_ms = now_ms - self._since_ms
        if passed_ms >= _WINDOW_MS:
            self._before.append((passed_ms, self._now))
            self._now = Counter()
            self._since_ms = now_ms

    def most_outstanding(self, pool: str, configured: int) -> int:
        """What may be under way: the configured limit, or three seconds of the rate that was seen, if that is more."""
        seen = max((counts[pool] * 1_000 // passed_ms for passed_ms, counts in self._before), default=0)
        return max(configured, min(_AHEAD_S * seen, _MOST_OUTSTANDING))

    def mean_per_s(self, pool: str) -> float:
        """Over the last windows; 0 if nothing came."""
        passed_ms = sum(passed_ms for passed_ms, _ in self._before)
        return 0.0 if not passed_ms else sum(counts[pool] for _, counts in self._before) * 1_000 / passed_ms
