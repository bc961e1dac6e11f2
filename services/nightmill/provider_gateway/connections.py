"""Connections to providers: one exchange of a request and its whole response, and what its errors mean.

Of aiohttp there are connections and the reading of responses. Its `ClientSession` is left out: requests, cookies,
redirects, proxies and traces of a general client took 150 µs of each call, more than everything else of it together.
"""

import asyncio
import errno
import os
from collections.abc import Mapping
from typing import Any

import aiohttp
from aiohttp.http_exceptions import ContentEncodingError, HttpProcessingError
from yarl import URL

from nightmill.provider_gateway.exchange import Response
from nightmill.provider_gateway.failures import Signal

MAX_BODY_BYTES = 8 << 20
_KEEPALIVE_S = 30.0
#: connections in a row that are closed unused; more than a pool is likely to have at rest
_MOST_SPOILT = 1_000


class _BodyOverCap(Exception):
    """The body is longer than we are willing to hold."""


#: what broke → signal; the first that fits, so special cases stand above their families
_BROKEN: tuple[tuple[type[BaseException], Signal], ...] = (
    (_BodyOverCap, Signal.BODY_OVER_CAP),
    (aiohttp.ClientPayloadError, Signal.BODY_INCOMPLETE),
    (aiohttp.InvalidURL, Signal.ENDPOINT_MISSING),
    (aiohttp.ClientConnectorError, Signal.NOT_CONNECTED),  # refused, DNS, TLS
    (aiohttp.ConnectionTimeoutError, Signal.NOT_CONNECTED),
    (aiohttp.ClientError, Signal.CONNECTION_LOST),  # reset, disconnected
    (HttpProcessingError, Signal.CONNECTION_LOST),  # no HTTP
    (TimeoutError, Signal.DEADLINE_PASSED),
    (OSError, Signal.CONNECTION_LOST),
)
CALL_ERRORS = tuple(kind for kind, _ in _BROKEN)


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


def place_of_exception(error: BaseException) -> str | None:
    """Who could not be reached and why, for a person; None of an error of a call that was under way."""
    match error:
        case aiohttp.ConnectionTimeoutError():
            return str(error)
        case aiohttp.ClientConnectorDNSError():
            why = "no such name, or nobody to ask for it"
        case aiohttp.ClientSSLError():
            why = "no TLS that can be trusted"
        case aiohttp.ClientConnectorError():
            number = error.os_error.errno
            why = os.strerror(number) if number is not None and number > 0 else "no connection"
        case _:
            return None
    return f"{error.host}:{error.port}: {why}"


class Connections:
    """Connections to providers, as many as there are slots: kept, and used again. Of one asyncio thread."""

    def __init__(self) -> None:
        self._connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_S)
        self._routes: dict[str, tuple[aiohttp.ClientRequest, str]] = {}  #: by URL: what connects, how a request begins

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, *, connect_s: float) -> Response:
        """The whole response. Raises one of `CALL_ERRORS`."""
        way, begin = self._route(url)
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        head = f"{begin}{lines}content-length: {len(body)}\r\n\r\n"
        connection = await self._connected(way, connect_s)
        try:
            response = await _exchange(connection, head.encode() + body)
        except BaseException:
            connection.close()
            raise
        connection.release()
        return response

    async def close(self) -> None:
        await self._connector.close()

    async def _connected(self, way: aiohttp.ClientRequest, connect_s: float) -> Any:
        """A connection on which nothing lies that nobody asked for: it would be taken for the answer to this request,
        and each answer for that of the next one.
        """
        for _ in range(_MOST_SPOILT):
            try:
                connection = await self._connector.connect(way, [], aiohttp.ClientTimeout(connect=connect_s))
            except TimeoutError as error:
                raise aiohttp.ConnectionTimeoutError(f"{way.url.host}:{way.url.port}: not reached in time") from error
            if connection.protocol is not None and not connection.protocol.should_close:
                return connection
            connection.close()
        raise aiohttp.ConnectionTimeoutError(f"{way.url.host}:{way.url.port}: speaks before it is asked")

    def _route(self, url: str) -> tuple[aiohttp.ClientRequest, str]:
        known = self._routes.get(url)
        if known is None:
            try:
                way = aiohttp.ClientRequest("POST", URL(url), loop=asyncio.get_running_loop())
            except ValueError as error:
                raise aiohttp.InvalidURL(url) from error
            own = {name: value for name, value in way.headers.items() if name.lower() not in _PER_REQUEST}
            lines = "".join(f"{name}: {value}\r\n" for name, value in own.items())
            known = self._routes[url] = way, f"POST {way.url.raw_path_qs} HTTP/1.1\r\n{lines}"
        return known


#: headers that the adapter or the call itself sets
_PER_REQUEST = frozenset({"accept", "content-type", "content-length"})


async def _exchange(connection: Any, request: bytes) -> Response:
    protocol = connection.protocol
    if not protocol.is_connected():
        raise aiohttp.ClientConnectionResetError("the connection was closed again")
    protocol.set_response_params(read_until_eof=True)
    protocol.transport.write(request)
    message, content = await protocol.read()
    while 100 <= message.code < 200 and message.code != 101:  # an interim response; the real one follows
        message, content = await protocol.read()
    names = {name.lower(): value for name, value in message.headers.items()}
    return Response(status=message.code, headers=names, body=await _read(content))


async def _read(content: aiohttp.StreamReader) -> bytes:
    """The decoded body. Raises `_BodyOverCap`."""
    chunks, size = [], 0
    while chunk := await content.readany():
        chunks.append(chunk)
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise _BodyOverCap
    return b"".join(chunks)
