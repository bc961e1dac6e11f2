"""Calls over HTTP: one asyncio thread that keeps every slot busy and lets each answer land before anybody learns of it.

The order of things for one call: mark durable → take a slot → send → read to the end → free the slot → answer durable →
`completed`. Keys are added here and are in no log and no message.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import uvloop

from nightmill.kernel.domain.ids import attempt_id
from nightmill.kernel.wire.messages import Failure
from nightmill.provider_gateway.caller import Call, CallResult, Permit
from nightmill.provider_gateway.connections import CALL_ERRORS, Connections, place_of_exception, signal_of_exception
from nightmill.provider_gateway.deadline import Deadline
from nightmill.provider_gateway.exchange import Response
from nightmill.provider_gateway.failures import failure
from nightmill.provider_gateway.groups import ended
from nightmill.provider_gateway.journal import Journal
from nightmill.provider_gateway.outbox import Outbox
from nightmill.provider_gateway.slots import Slots

CONNECT_S = 10.0
_DRAIN_S = 1.5
_JOIN_S = 2.0


class HttpCaller:
    """Satisfies `Caller`. The thread starts with the object and ends with `close`."""

    def __init__(
        self,
        outbox: Outbox,
        *,
        put_blob: Callable[[bytes], str],
        authorizations: Mapping[str, str],
        clock_ms: Callable[[], int],
    ) -> None:
        """`authorizations`: value of the Authorization header by pool; a pool without one needs none."""
        self._outbox, self._clock_ms, self._authorizations = outbox, clock_ms, authorizations
        self._slots = Slots()
        self._completed: deque[CallResult] = deque()
        self._died: BaseException | None = None
        # of the asyncio thread alone
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self._journal = Journal(
            outbox, put_blob=put_blob, spawn=self._spawn, on_marked=self._marked, on_landed=self._completed.append
        )
        self._loop = uvloop.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="provider-calls", daemon=True)
        self._thread.start()

    # -- called by the poll thread

    def permit(self, lane: str, permit: Permit) -> None:
        if self._slots.permit(lane, permit):
            self._loop.call_soon_threadsafe(self._pump)

    def start(self, calls: Sequence[Call]) -> None:
        self._slots.add(calls)
        if calls:
            self._loop.call_soon_threadsafe(self._pump)

    def withdraw(self, lane: str) -> list[Call]:
        return self._slots.withdraw(lane)

    def in_flight(self, lane: str) -> int:
        return self._slots.in_flight(lane)

    def unsent(self, lane: str) -> frozenset[str]:
        return self._slots.unsent(lane)

    def completed(self) -> list[CallResult]:
        if self._died is not None:
            raise RuntimeError("the thread that makes provider calls has failed") from self._died
        results = [self._completed.popleft() for _ in range(len(self._completed))]
        for result in results:
            self._slots.heard(result.call, result.failure)
        return results

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(_JOIN_S)

    # -- the asyncio thread

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._main())
        except BaseException as error:  # completed() raises it where the process can end of it
            self._died = error
        finally:
            self._journal.close()
            self._loop.close()

    async def _main(self) -> None:
        self._connections = Connections()
        try:
            await self._stop.wait()
            self._closing = True
            await self._drain(self._loop.time() + _DRAIN_S)
            left = list(self._tasks)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            # surely not sent: the next start sends them
            if never_sent := self._slots.never_sent():
                self._outbox.forget([order.key for call in never_sent for order in call.orders])
        finally:
            await self._connections.close()

    async def _drain(self, until_s: float) -> None:
        """Wait for calls to end, and for what they bring about: an answer has to land."""
        while self._tasks and (left_s := until_s - self._loop.time()) > 0:
            await asyncio.wait(self._tasks, timeout=left_s)

    def _pump(self) -> None:
        """Send what there are slots for, and mark what may be next."""
        if self._closing:
            return
        now_ms = self._clock_ms()
        for call in self._slots.let_go(now_ms):
            self._spawn(self._call(call))
        for call in self._slots.take(now_ms):
            self._journal.mark(call)

    def _marked(self, calls: Sequence[Call]) -> None:
        self._slots.marked(calls)
        self._pump()

    async def _call(self, call: Call) -> None:
        started_ms = self._clock_ms()
        response: Response | Failure
        try:
            async with Deadline(call.deadline_s):
                # to connect takes less than the deadline, which would leave in doubt whether the request had left
                response = await self._connections.post(
                    call.request.url,
                    self._headers(call),
                    call.request.body,
                    connect_s=min(CONNECT_S, call.deadline_s / 2),
                )
        except CALL_ERRORS as error:
            response = failure(signal_of_exception(error), detail=place_of_exception(error))
        result = ended(
            call,
            response,
            started_at_ms=started_ms,
            ended_at_ms=self._clock_ms(),
            provider_request_id=_request_id(response.headers) if isinstance(response, Response) else None,
        )
        self._slots.free(call, result.failure)
        self._journal.land(result)
        self._pump()

    def _headers(self, call: Call) -> dict[str, str]:
        attempt = call.order.attempt
        headers = {**call.request.headers, "x-client-request-id": attempt_id(attempt.item_key, attempt.ordinal)}
        authorization = self._authorizations.get(call.order.shard.pool)
        if authorization is not None:
            headers["authorization"] = authorization
        return headers

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._died = task.exception()


def _request_id(headers: Mapping[str, str]) -> str | None:
    """The provider's own name of the call: OpenAI's header, or Anthropic's."""
    return headers.get("x-request-id") or headers.get("request-id")
