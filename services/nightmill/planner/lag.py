"""How far the dispatcher is behind on planned items, asked for beside the loop's thread, which must not block."""

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor

from nightmill.kernel.runtime.log import Log, LogUnavailable
from nightmill.kernel.wire.topics import ITEM_PLANNED

_FRESH_S = 1.0
_STALE_S = 5.0


class DispatcherLag:
    """The lag as last heard of. None: not known just now, so nothing should be released."""

    def __init__(self, log: Log, clock_s: Callable[[], float], asking: Executor | None = None) -> None:
        self._log, self._clock_s = log, clock_s
        self._asking = asking or ThreadPoolExecutor(max_workers=1, thread_name_prefix="dispatcher-lag")
        self._answer: Future[int] | None = None
        self._lag: int | None = None
        self._asked_s = self._heard_s = float("-inf")

    def __call__(self) -> int | None:
        """Returns at once; a new question is put when the last answer is a second old."""
        now_s = self._clock_s()
        self._hear(now_s)
        if self._answer is None and now_s - self._asked_s >= _FRESH_S:
            self._asked_s = now_s
            self._answer = self._asking.submit(self._log.lag, "dispatcher", ITEM_PLANNED.name)
        return self._lag if now_s - self._heard_s < _STALE_S else None

    def _hear(self, now_s: float) -> None:
        if self._answer is None or not self._answer.done():
            return
        answer, self._answer = self._answer, None
        try:
            self._lag = answer.result()
        except LogUnavailable:
            return
        self._heard_s = now_s
