"""The provider's HTTP face: it turns requests into `Inbound` and carries out replies over sockets.

Cut, dripped and reset replies are written to the transport directly, since a web framework exists to prevent them.
Nothing is decided here.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from nightmill.provider_simulator import routes
from nightmill.provider_simulator.call_faults import Framing
from nightmill.provider_simulator.control import Control
from nightmill.provider_simulator.errors import ApiError
from nightmill.provider_simulator.inbound import Inbound
from nightmill.provider_simulator.operations import Operation
from nightmill.provider_simulator.provider import Provider, unknown
from nightmill.provider_simulator.reply import Manner, Reply, Voice
from nightmill.provider_simulator.state import State

MAX_BODY_BYTES = 64 * 2**20
MAX_BATCH_BODY_BYTES = 257 * 2**20

_WATCH_S = 0.02  # how often a held connection is looked at
_FILE_CHUNK_BYTES = 2**18
_NO_LINGER = struct.pack("ii", 1, 0)  # close() then sends RST in place of FIN
_NO_QUERY: dict[str, str] = {}
_REASONS = {200: b"OK", 206: b"Partial Content"}


@dataclass(slots=True, kw_only=True)
class _Sent:
    """What reached the socket of a client that was still there."""

    status: int | None = None
    whole: bool = False
    sent_bytes: int = 0


class Server:
    """One provider as an HTTP server for `web.ServerRunner`."""

    def __init__(self, state: State, provider: Provider, control: Control) -> None:
        self._state = state
        self._provider = provider
        self._control = control

    def web_server(self) -> web.Server:
        """A low-level server: no router, no middlewares, which is half of the speed."""
        return web.Server(self._handle, request_factory=_request)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path, method = request.path, request.method
        query = request.query if "?" in request.path_qs else _NO_QUERY
        inbound = Inbound(method=method, path=path, query=query, headers=request.headers)
        if not path.startswith("/v1/"):
            inbound.body = await request.read()
            return await self._carry_out(request, self._control.reply(inbound))
        scenario = self._state.run.scenario
        status = routes.refused_status(path, scenario.dialect, scenario.batches.missing_status)
        route = routes.find(method, path) if status is None else None
        if route is None:
            return await self._carry_out(request, unknown(inbound, scenario.dialect, status))
        if self._provider.slams_door(inbound, route):
            _close(request, reset=True)
            return web.Response()
        if route.operation is Operation.FILE_CREATE:
            inbound.chunks = _chunks(request)
        else:
            try:
                inbound.body = await request.read()
            except web.HTTPRequestEntityTooLarge:
                voice = Voice(side=route.side, dialect=scenario.dialect, request_id="req_too_large")
                error = ApiError(status=413, message="Request too large", html=True)
                return await self._carry_out(request, voice.refusal(error))
        reply = await self._provider.reply(inbound, route)
        sent = _Sent()
        try:
            return await _perform(request, reply, sent)
        finally:
            self._provider.sent(reply, status=sent.status, whole=sent.whole, sent_bytes=sent.sent_bytes)

    async def _carry_out(self, request: web.BaseRequest, reply: Reply | AsyncIterator[bytes]) -> web.StreamResponse:
        """A reply that is in no books."""
        if isinstance(reply, Reply):
            return await _perform(request, reply, _Sent())
        response = web.StreamResponse(headers={"Content-Type": "application/jsonl"})
        await response.prepare(request)
        async for chunk in reply:
            await response.write(chunk)
        return response


def _request(
    message: Any, payload: Any, protocol: RequestHandler, writer: Any, task: asyncio.Task[None]
) -> web.BaseRequest:
    """aiohttp's request with the body sizes that the providers take."""
    most = MAX_BATCH_BODY_BYTES if message.path.startswith("/v1/messages/batches") else MAX_BODY_BYTES
    return web.BaseRequest(message, payload, protocol, writer, task, protocol._loop, client_max_size=most)


async def _chunks(request: web.BaseRequest) -> AsyncIterator[bytes]:
    while chunk := await request.content.readany():
        yield chunk


async def _perform(request: web.BaseRequest, reply: Reply, sent: _Sent) -> web.StreamResponse:
    """Send the reply as its manner says and note what was delivered."""
    try:
        match reply.manner:
            case Manner.WHOLE | Manner.DRIP:
                send: Callable[..., Awaitable[web.StreamResponse]] = _send_whole
                if reply.manner is Manner.DRIP:
                    send = _send_drip
                elif reply.file is not None:
                    send = _send_file
                return await send(request, reply, sent)
            case Manner.CUT:
                await _send_cut(request, reply, sent)
            case Manner.RESET:
                _close(request, reset=True)
            case Manner.HANG:
                await _hold(request, reply.hold_ms)
                _close(request, reset=False)
    except ConnectionError:
        pass  # the client is gone: what was sent until then is noted
    return web.Response()  # the connection is closed: aiohttp finds that out and sends nothing


async def _send_whole(request: web.BaseRequest, reply: Reply, sent: _Sent) -> web.StreamResponse:
    response = web.Response(
        status=reply.status, body=reply.body, headers=reply.headers, content_type=reply.content_type
    )
    await response.prepare(request)
    await response.write_eof()
    sent.status = reply.status
    sent.whole = await _flushed(request)
    return response


async def _send_file(request: web.BaseRequest, reply: Reply, sent: _Sent) -> web.StreamResponse:
    response = _stream(reply)
    await response.prepare(request)
    sent.status = reply.status
    for chunk in _body_chunks(reply, _FILE_CHUNK_BYTES):
        await response.write(chunk)
        if await _flushed(request):
            sent.sent_bytes += len(chunk)
    await response.write_eof()
    sent.whole = await _flushed(request)
    return response


async def _send_drip(request: web.BaseRequest, reply: Reply, sent: _Sent) -> web.StreamResponse:
    response = _stream(reply)
    await response.prepare(request)
    sent.status = reply.status
    for place, chunk in enumerate(_body_chunks(reply, reply.chunk_bytes)):
        if place:
            await asyncio.sleep(reply.every_ms / 1000)
        await response.write(chunk)
        if await _flushed(request):
            sent.sent_bytes += len(chunk)
    await response.write_eof()
    sent.whole = await _flushed(request)
    return response


def _stream(reply: Reply) -> web.StreamResponse:
    response = web.StreamResponse(status=reply.status, headers=reply.headers)
    response.content_type = reply.content_type
    response.content_length = len(reply.body) if reply.file is None else reply.file.stop - reply.file.start
    return response


def _body_chunks(reply: Reply, size: int, keep: int | None = None) -> Iterator[bytes]:
    """The body in pieces, its first `keep` bytes if given."""
    if reply.file is None:
        body = reply.body if keep is None else reply.body[:keep]
        for start in range(0, len(body), size):
            yield body[start : start + size]
        return
    left = reply.file.stop - reply.file.start if keep is None else keep
    with reply.file.path.open("rb") as file:
        file.seek(reply.file.start)
        while left > 0 and (chunk := file.read(min(size, left))):
            left -= len(chunk)
            yield chunk


async def _send_cut(request: web.BaseRequest, reply: Reply, sent: _Sent) -> None:
    transport = request.transport
    if transport is None:
        return
    size = len(reply.body) if reply.file is None else reply.file.stop - reply.file.start
    head = b"HTTP/1.1 %d %b\r\nContent-Type: %b\r\n" % (
        reply.status,
        _REASONS.get(reply.status, b""),
        reply.content_type.encode(),
    )
    head += b"".join(f"{name}: {value}\r\n".encode() for name, value in reply.headers.items())
    framing = {
        Framing.CONTENT_LENGTH: b"Content-Length: %d\r\n\r\n" % size,
        Framing.CHUNKED: b"Transfer-Encoding: chunked\r\n\r\n",
        Framing.CLOSE: b"Connection: close\r\n\r\n",
    }
    transport.write(head + framing[reply.framing])
    sent.status = reply.status
    for chunk in _body_chunks(reply, _FILE_CHUNK_BYTES, keep=reply.keep_bytes):
        transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if reply.framing is Framing.CHUNKED else chunk)
        if not await _flushed(request):
            return
        sent.sent_bytes += len(chunk)
    await _flushed(request)
    _close(request, reset=False)


async def _flushed(request: web.BaseRequest) -> bool:
    """Whether everything written so far reached the kernel while the client was still there."""
    transport = request.transport
    if transport is None or transport.is_closing():
        return False
    if transport.get_write_buffer_size() == 0:
        return True
    transport.set_write_buffer_limits(0)  # drain() then returns when the buffer is empty, not when it is low
    try:
        await request.writer.drain()
    except ConnectionError:
        return False
    return request.transport is not None


async def _hold(request: web.BaseRequest, hold_ms: int) -> None:
    """Wait until the client leaves, at most `hold_ms`."""
    loop = asyncio.get_running_loop()
    until = loop.time() + hold_ms / 1000
    while loop.time() < until and request.transport is not None and not request.transport.is_closing():
        await asyncio.sleep(_WATCH_S)


def _close(request: web.BaseRequest, *, reset: bool) -> None:
    transport = request.transport
    if transport is None:
        return
    if reset:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        transport.abort()
    else:
        transport.close()
