"""Calls over HTTP: one asyncio thread that keeps every slot busy and lets each answer land before anybody learns of it.

aiohttp's client without what is not wanted here: redirects, cookies, proxies from the environment. The order of things
for one call: take a slot → mark durable → send → read to the end → free the slot → answer durable → `completed`.
Marks and answers that are at hand at one moment share one write, made in a thread of its own, since it waits for the
disk. Keys are added here and are in no log and no message.
"""

import asyncio
import errno
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
import uvloop
from aiohttp.http_exceptions import ContentEncodingError

from nightmill.kernel.domain.failures import FailureClass
from nightmill.kernel.domain.ids import attempt_id
from nightmill.kernel.runtime.service import Unavailable
from nightmill.provider_gateway.caller import Call, CallResult, Permit
from nightmill.provider_gateway.exchange import Reply, Response
from nightmill.provider_gateway.failures import Signal, failure
from nightmill.provider_gateway.orders import concluded, is_long, offloaded
from nightmill.provider_gateway.outbox import Landed, Outbox

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 8 << 20
CONNECT_S = 10.0
_KEEPALIVE_S = 30.0
_DRAIN_S = 1.5
_JOIN_S = 2.0
_STORE_RETRY_S = 1.0


class _BodyOverCap(Exception):
    """The body is longer than we are willing to hold."""


#: what broke → signal; the first that fits, so special cases stand above their families
_BROKEN: tuple[tuple[type[BaseException], Signal], ...] = (
    (_BodyOverCap, Signal.BODY_OVER_CAP),
    (aiohttp.ClientPayloadError, Signal.BODY_INCOMPLETE),
    (aiohttp.InvalidURL, Signal.ENDPOINT_MISSING),
    (aiohttp.ClientConnectorError, Signal.NOT_CONNECTED),  # refused, DNS, TLS
    (aiohttp.ConnectionTimeoutError, Signal.NOT_CONNECTED),
    (aiohttp.ClientError, Signal.CONNECTION_LOST),  # reset, disconnected, no HTTP
    (TimeoutError, Signal.DEADLINE_PASSED),
    (OSError, Signal.CONNECTION_LOST),
)
_CALL_ERRORS = tuple(kind for kind, _ in _BROKEN)
_CLOSES_LANE = frozenset({FailureClass.CAPACITY, FailureClass.ACCOUNT})


def signal_of_exception(error: BaseException) -> Signal:
    """The signal of an error that a call ended with. Raises the error itself when it is none of a call's."""
    cause = error.__cause__
    if isinstance(cause, ContentEncodingError):
        return Signal.BODY_UNDECODABLE
    if any(isinstance(each, OSError) and each.errno in (errno.EMFILE, errno.ENFILE) for each in (cause, error)):
        return Signal.NO_DESCRIPTORS
    for kind, signal in _BROKEN:
        if isinstance(error, kind):
            return signal
    raise error


@dataclass(slots=True)
class _Lane:
    slots: int = 0
    until_ms: int = 0
    in_flight: int = 0
    ready: deque[Call] = field(default_factory=deque)


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
        self._outbox, self._put_blob, self._clock_ms = outbox, put_blob, clock_ms
        self._authorizations = authorizations
        self._lanes: dict[str, _Lane] = {}
        self._completed: deque[CallResult] = deque()
        self._died: BaseException | None = None
        # of the asyncio thread alone
        self._begun: list[Call] = []
        self._ended: list[CallResult] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._writing = self._closing = False
        self._disk = ThreadPoolExecutor(1, "outbox")
        self._blobs = ThreadPoolExecutor(4, "long-outputs")
        self._loop = uvloop.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="provider-calls", daemon=True)
        self._thread.start()

    # -- called by the poll thread

    def permit(self, permits: Mapping[str, Permit]) -> None:
        wake = False
        for name, permit in permits.items():
            lane = self._lanes.setdefault(name, _Lane())
            changed = (lane.slots, lane.until_ms) != (permit.slots, permit.until_ms)
            lane.slots, lane.until_ms = permit.slots, permit.until_ms
            wake = wake or (changed and bool(lane.ready))
        if wake:
            self._loop.call_soon_threadsafe(self._pump)

    def start(self, calls: Sequence[Call]) -> None:
        for call in calls:
            self._lanes.setdefault(call.lane, _Lane()).ready.append(call)
        if calls:
            self._loop.call_soon_threadsafe(self._pump)

    def withdraw(self, lane: str) -> list[Call]:
        taken: list[Call] = []
        ready = self._lanes.setdefault(lane, _Lane()).ready
        while ready:
            try:
                taken.append(ready.popleft())
            except IndexError:  # the other thread took the last one
                break
        return taken

    def in_flight(self, lane: str) -> int:
        known = self._lanes.get(lane)
        return 0 if known is None else known.in_flight

    def completed(self) -> list[CallResult]:
        if self._died is not None:
            raise RuntimeError("the thread that makes provider calls has failed") from self._died
        return [self._completed.popleft() for _ in range(len(self._completed))]

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
            self._disk.shutdown(wait=False)
            self._blobs.shutdown(wait=False)
            self._loop.close()

    async def _main(self) -> None:
        async with _session() as self._session:
            await self._work()

    async def _work(self) -> None:
        await self._stop.wait()
        self._closing = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_DRAIN_S)
        left = list(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _pump(self) -> None:
        """Begin what lanes have slots for, and see to it that marks and answers are written."""
        if not self._closing:
            now_ms = self._clock_ms()
            for lane in list(self._lanes.values()):
                if now_ms < lane.until_ms:
                    self._fill(lane)
        if (self._begun or self._ended) and not self._writing:
            self._writing = True
            self._spawn(self._write())

    def _fill(self, lane: _Lane) -> None:
        while lane.in_flight < lane.slots and lane.ready:
            try:
                call = lane.ready.popleft()
            except IndexError:  # the poll thread has withdrawn the last one
                return
            lane.in_flight += 1
            self._begun.append(call)

    async def _write(self) -> None:
        """Make marks and answers durable, group after group, and let what they stand for go on."""
        try:
            while self._begun or self._ended:
                begun, self._begun = self._begun, []
                ended, self._ended = self._ended, []
                marks = [(call.order.key, call.order.partition) for call in begun]
                landed = [Landed(partition=r.call.order.partition, answered=r.answered) for r in ended]
                await self._stored(marks, landed)
                self._send(begun)
                self._hand_over(ended)
        finally:
            self._writing = False

    async def _stored(self, marks: Sequence[tuple[str, int]], landed: Sequence[Landed]) -> None:
        """Written, however long the disk refuses: no call starts meanwhile, no answer is forgotten (M4)."""
        while True:
            try:
                await self._loop.run_in_executor(self._disk, self._outbox.write, marks, landed)
            except Unavailable as error:
                log.warning("outbox waits", extra={"action": "outbox_waits", "reason": str(error)})
                await asyncio.sleep(_STORE_RETRY_S)
            else:
                return

    def _send(self, begun: Sequence[Call]) -> None:
        now_ms = self._clock_ms()
        for call in begun:
            lane = self._lanes[call.lane]
            if now_ms < lane.until_ms and not self._closing:
                self._spawn(self._call(call))
            else:
                # the disk took longer than the permit lasted: its mark stays, it is written again before the send
                lane.in_flight -= 1
                lane.ready.appendleft(call)

    def _hand_over(self, ended: Sequence[CallResult]) -> None:
        for result in ended:
            if is_long(result.answered):
                self._spawn(self._offload(result))
            else:
                self._completed.append(result)

    async def _offload(self, result: CallResult) -> None:
        """Store a long output. While the store is away the answer waits in the outbox; the model is not asked again."""
        while True:
            try:
                answered = await self._loop.run_in_executor(self._blobs, offloaded, result.answered, self._put_blob)
            except Unavailable:
                await asyncio.sleep(_STORE_RETRY_S)
            else:
                self._completed.append(replace(result, answered=answered))
                return

    async def _call(self, call: Call) -> None:
        lane = self._lanes[call.lane]
        started_ms = self._clock_ms()
        response: Response | None = None
        try:
            async with asyncio.timeout(call.deadline_s):
                response = await self._exchange(call)
        except _CALL_ERRORS as error:
            ended_ms = self._clock_ms()
            reply = Reply(failure=failure(signal_of_exception(error)))
        else:
            ended_ms = self._clock_ms()
            reply = call.adapter.reply(response, now_ms=ended_ms)
        finally:
            lane.in_flight -= 1
        if reply.failure is not None and reply.failure.failure_class in _CLOSES_LANE:
            lane.until_ms = 0
        answered = concluded(
            call.order,
            reply,
            started_at_ms=started_ms,
            ended_at_ms=ended_ms,
            http_status=None if response is None else response.status,
            provider_request_id=None if response is None else response.headers.get("x-request-id"),
        )
        self._ended.append(CallResult(call=call, answered=answered, served_model=reply.served_model))
        self._pump()

    async def _exchange(self, call: Call) -> Response:
        order, headers = call.order, dict(call.request.headers)
        headers["x-client-request-id"] = attempt_id(order.attempt.item_key, order.attempt.ordinal)
        authorization = self._authorizations.get(order.shard.pool)
        if authorization is not None:
            headers["authorization"] = authorization
        # shorter than the deadline, which would leave in doubt whether the request had left
        timeout = aiohttp.ClientTimeout(total=None, connect=min(CONNECT_S, call.deadline_s / 2))
        async with self._session.post(
            call.request.url, data=call.request.body, headers=headers, timeout=timeout, allow_redirects=False
        ) as response:
            body = await _read(response)
        names = {name.lower(): value for name, value in response.headers.items()}
        return Response(status=response.status, headers=names, body=body)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._died = task.exception()


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The decoded body. Raises `_BodyOverCap`."""
    chunks, size = [], 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise _BodyOverCap
        chunks.append(chunk)
    return b"".join(chunks)


def _session() -> aiohttp.ClientSession:
    """Connections as many as there are slots; no cookies, no proxy from the environment."""
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_S)
    return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
