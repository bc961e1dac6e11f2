"""The deadline of a call, which takes an answer that came while the whole process stood still.

A machine that swaps, a container that is paused, a SIGSTOP: on waking, the timer of every call is overdue, and
asyncio's own timeout would cancel calls whose answers lie in their sockets, read or not. They were paid for.
"""

import asyncio
from types import TracebackType

_LATE_S = 0.1  #: a timer that fires so much later than it was set for tells of a standstill
_GRACE_S = 1.0


class Deadline:
    """`async with Deadline(s)` raises TimeoutError as `asyncio.timeout(s)` does, on time where the loop runs.

    Where the loop stood still when the time was over, there is one more second, once, in which an answer is taken.
    """

    __slots__ = ("_at_s", "_deadline_s", "_loop", "_timeout", "_timer")

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s

    async def __aenter__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout = asyncio.timeout(None)
        await self._timeout.__aenter__()
        self._at_s = self._loop.time() + self._deadline_s
        self._timer = self._loop.call_at(self._at_s, self._passed)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        await self._timeout.__aexit__(kind, error, trace)

    def _passed(self) -> None:
        now_s = self._loop.time()
        self._timeout.reschedule(now_s + _GRACE_S if now_s - self._at_s > _LATE_S else now_s)
