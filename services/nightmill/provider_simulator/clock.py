"""The provider's own clock: it may run faster than real time or be put forward, so that 24 hours pass in seconds.

Files, batches and webhooks live on it. Latency, rate limits and the books are on real time, which clients measure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_LONGEST_S = 600.0  # a wait looks again after this long at the latest


class Clock:
    """Virtual milliseconds since the epoch; with speed 1 and never advanced they are the real ones."""

    def __init__(self, real_now_ms: Callable[[], int], *, speed: float = 1.0, ahead_ms: int = 0) -> None:
        self._real_now_ms = real_now_ms
        self._speed = speed
        self._since_real_ms = real_now_ms()
        self._since_ms = self._since_real_ms + ahead_ms
        self._moved = asyncio.Event()

    @property
    def speed(self) -> float:
        """Virtual milliseconds per real one."""
        return self._speed

    @property
    def ahead_ms(self) -> int:
        """How far the clock is ahead of real time."""
        return self.now_ms() - self._real_now_ms()

    def now_ms(self) -> int:
        """The time here."""
        return self._since_ms + int((self._real_now_ms() - self._since_real_ms) * self._speed)

    def set(self, *, advance_ms: int = 0, speed: float | None = None) -> None:
        """Put the clock forward, and from now on let it run at `speed`."""
        self._since_ms, self._since_real_ms = self.now_ms() + advance_ms, self._real_now_ms()
        if speed is not None:
            self._speed = speed
        self.wake()

    def wake(self) -> None:
        """Let everybody who waits look again."""
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def until(self, at_ms: int | None) -> None:
        """Return at `at_ms` at the latest, None: some time; earlier when something has changed, or for no reason."""
        left_ms = None if at_ms is None else (at_ms - self.now_ms()) / self._speed
        if left_ms is not None and left_ms <= 0:
            return
        longest_s = _LONGEST_S if left_ms is None else min(_LONGEST_S, left_ms / 1000 + 0.001)
        try:
            async with asyncio.timeout(longest_s):
                await self._moved.wait()
        except TimeoutError:
            return
