"""The asyncio side of the outbox: marks and answers become durable, group after group, before anything follows.

A write waits for the disk whatever it carries, and costs as much as a call. So a group gathers for a moment, one write
carries all marks and answers that are at hand, and the next group gathers while it runs.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from nightmill.kernel.runtime.service import Unavailable
from nightmill.kernel.wire.messages import AttemptAnswered
from nightmill.provider_gateway.caller import Call, CallResult
from nightmill.provider_gateway.orders import is_long, offloaded
from nightmill.provider_gateway.outbox import Landed, Outbox

log = logging.getLogger(__name__)

#: groups begin so far apart; a call waits as long at most, and for the write before its own, until it is marked
GATHER_S = 0.003
_STORE_RETRY_S = 1.0


class Journal:
    """Marks and answers on their way to disk. Of one asyncio thread, but for `close`."""

    def __init__(
        self,
        outbox: Outbox,
        *,
        put_blob: Callable[[bytes], str],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        on_marked: Callable[[Sequence[Call]], None],
        on_landed: Callable[[CallResult], None],
    ) -> None:
        """`on_marked` hears of calls whose marks are durable, `on_landed` of answers that are, long ones as blobs."""
        self._outbox, self._put_blob, self._spawn = outbox, put_blob, spawn
        self._on_marked, self._on_landed = on_marked, on_landed
        self._begun: list[Call] = []
        self._ended: list[CallResult] = []
        self._writing = False
        # a thread of its own, since a write waits for the disk
        self._disk = ThreadPoolExecutor(1, "outbox")
        self._blobs = ThreadPoolExecutor(4, "long-outputs")

    def mark(self, call: Call) -> None:
        """Write the mark of a call that is to be sent soon."""
        self._begun.append(call)
        self._wake()

    def land(self, result: CallResult) -> None:
        """Write the answer of a call that ended."""
        self._ended.append(result)
        self._wake()

    def close(self) -> None:
        self._disk.shutdown(wait=False)
        self._blobs.shutdown(wait=False)

    def _wake(self) -> None:
        if not self._writing:
            self._writing = True
            self._spawn(self._write())

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        since_s = loop.time()
        try:
            while self._begun or self._ended:
                await asyncio.sleep(max(0.0, since_s + GATHER_S - loop.time()))
                since_s = loop.time()
                begun, self._begun = self._begun, []
                ended, self._ended = self._ended, []
                marks = [(order.key, order.partition) for call in begun for order in call.orders]
                landed = [Landed(partition=r.call.order.partition, answered=each) for r in ended for each in r.answers]
                await self._stored(marks, landed)
                self._on_marked(begun)
                for result in ended:
                    self._hand_over(result)
        finally:
            self._writing = False

    async def _stored(self, marks: Sequence[tuple[str, int]], landed: Sequence[Landed]) -> None:
        """Written, however long the disk refuses: no call starts meanwhile, no answer is forgotten (M4)."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                await loop.run_in_executor(self._disk, self._outbox.write, marks, landed)
            except Unavailable as error:
                log.warning("outbox waits", extra={"action": "outbox_waits", "reason": str(error)})
                await asyncio.sleep(_STORE_RETRY_S)
            else:
                return

    def _hand_over(self, result: CallResult) -> None:
        if any(map(is_long, result.answers)):
            self._spawn(self._offload(result))
        else:
            self._on_landed(result)

    async def _offload(self, result: CallResult) -> None:
        """Store a long output. While the store is away the answer waits in the outbox; the model is not asked again."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                answers = await loop.run_in_executor(self._blobs, self._offloaded, result.answers)
            except Unavailable:
                await asyncio.sleep(_STORE_RETRY_S)
            else:
                self._on_landed(replace(result, answers=answers))
                return

    def _offloaded(self, answers: Sequence[AttemptAnswered]) -> tuple[AttemptAnswered, ...]:
        return tuple(offloaded(each, self._put_blob) for each in answers)
