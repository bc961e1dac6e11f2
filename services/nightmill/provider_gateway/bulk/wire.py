"""Requests of the bulk lane over HTTP: short ones, uploads from disk, downloads to disk. Blocking, of worker threads.

Few requests, each of them long: the standard library's client is enough, and streams both ways. Redirects are not
followed. Every request has a deadline in total, which no slow drip outlasts: its socket is shut when the time is over.
"""

import http.client
import socket
import ssl
import threading
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from nightmill.kernel.runtime.disk import refusal
from nightmill.kernel.runtime.service import Unavailable
from nightmill.provider_gateway.bulk.dialect import Ask, Form
from nightmill.provider_gateway.exchange import Response
from nightmill.provider_gateway.failures import Signal

MAX_BODY_BYTES = 8 << 20
_CHUNK = 1 << 18
_CONNECT_S = 10.0
_BOUNDARY = "nightmill-7c1f9a52e0"


class Broken(Exception):
    """A request that ended without a whole response. `sent`: it may have been carried out."""

    def __init__(self, signal: Signal, *, sent: bool) -> None:
        super().__init__(signal.value)
        self.signal, self.sent = signal, sent


class NotSent(Exception):
    """The request was not sent, for its time was over when it could have been."""


@dataclass(frozen=True, slots=True, kw_only=True)
class To:
    """Whose key goes with a request, and the headers that all requests to it have."""

    pool: str
    headers: Mapping[str, str]


class Wire:
    """Connections, one a request. `close` breaks all of them off."""

    def __init__(self, authorizations: Mapping[str, str]) -> None:
        self._authorizations = authorizations
        self._tls = ssl.create_default_context()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closed = False

    def send(self, ask: Ask, to: To, *, deadline_s: float, may_send: Callable[[], bool] = lambda: True) -> Response:
        """The response. `may_send` is asked when the connection stands, right before the first byte. Raises `Broken`,
        `NotSent`.
        """
        headers = {"Accept": "application/json"}
        if ask.body is not None:
            headers |= {"Content-Length": str(len(ask.body))}
        if ask.body:
            headers |= {"Content-Type": "application/json"}
        with self._connected(ask.url, deadline_s) as connection:
            if not may_send():
                raise NotSent
            with _sent():
                self._begin(connection, ask.method, ask.url, headers, to)
                if ask.body:
                    connection.send(ask.body)
                return _response(connection)

    def upload(self, form: Form, path: Path, to: To, *, deadline_s: float) -> Response:
        """The response to an upload of the file at `path`. Raises `Broken`."""
        fields = "".join(_field(name, value) for name, value in form.fields)
        file_head = (
            f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{form.filename}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        )
        head, tail = (fields + file_head).encode(), f"\r\n--{_BOUNDARY}--\r\n".encode()
        headers = {
            "Accept": "application/json",
            "Content-Type": f"multipart/form-data; boundary={_BOUNDARY}",
            "Content-Length": str(len(head) + path.stat().st_size + len(tail)),
        }
        with self._connected(form.url, deadline_s) as connection, path.open("rb") as file, _sent():
            self._begin(connection, "POST", form.url, headers, to)
            # a server that refuses early closes while we send; its answer is there to be read all the same
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.send(head)
                while chunk := file.read(_CHUNK):
                    connection.send(chunk)
                connection.send(tail)
            return _response(connection)

    def post_file(self, url: str, path: Path, to: To, *, deadline_s: float, may_send: Callable[[], bool]) -> Response:
        """The response to a JSON body that is a file. `may_send` as in `send`. Raises `Broken`, `NotSent`."""
        headers = {
            "Accept": "application/json",
            "Content-Type": "application/json",
            "Content-Length": str(path.stat().st_size),
        }
        with self._connected(url, deadline_s) as connection, path.open("rb") as file:
            if not may_send():
                raise NotSent
            with _sent():
                self._begin(connection, "POST", url, headers, to)
                with suppress(BrokenPipeError, ConnectionResetError):
                    while chunk := file.read(_CHUNK):
                        connection.send(chunk)
                return _response(connection)

    def first_line(self, ask: Ask, to: To, *, deadline_s: float) -> Response:
        """The response with the first line of its body that holds something, if it went well. Raises `Broken`."""
        with self._connected(ask.url, deadline_s) as connection, _sent():
            self._begin(connection, ask.method, ask.url, {"Accept": "application/binary"}, to)
            response = connection.getresponse()
            if response.status != 200:
                return _whole(response)
            line = response.readline(MAX_BODY_BYTES + 1)
            while line and not line.strip():
                line = response.readline(MAX_BODY_BYTES + 1)
            if not line and response.length:  # `readline` ends at a broken connection without a word
                raise Broken(Signal.BODY_INCOMPLETE, sent=True)
            return Response(status=200, headers={}, body=line.removeprefix(BOM_UTF8))

    def download(self, ask: Ask, path: Path, to: To, *, deadline_s: float, most_bytes: int) -> Response:
        """Add to the file at `path` what it lacks; the response's body is empty unless it is an error's.

        What came before a break stays, for the next try, be it another process that makes it. A server that sends
        something else than was asked for is read from the beginning, one that does not stop until there are more than
        `most_bytes`. Raises `Broken`, and `Unavailable` when the disk refuses.
        """
        have = path.stat().st_size if path.exists() else 0
        headers = {"Accept": "application/binary"} | ({"Range": f"bytes={have}-"} if have else {})
        with self._connected(ask.url, deadline_s) as connection, _sent():
            self._begin(connection, ask.method, ask.url, headers, to)
            response = connection.getresponse()
            if response.status not in (200, 206):
                return _whole(response)
            span = response.getheader("Content-Range", "")
            if response.status == 206 and not span.startswith(f"bytes {have}-"):
                path.unlink()
                raise Broken(Signal.UNEXPECTED_SHAPE, sent=True)
            with path.open("ab" if response.status == 206 else "wb") as file:
                while file.tell() <= most_bytes and (chunk := response.read(_CHUNK)):
                    _write(file, path, chunk)
                if file.tell() > most_bytes:
                    return Response(status=200, headers={"content-range": span}, body=b"")
            if response.length:  # `read` with a size ends at a broken connection without a word
                raise Broken(Signal.BODY_INCOMPLETE, sent=True)
            return Response(status=200, headers={"content-range": span}, body=b"")

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for each in self._open:
                _shut(each)

    @contextmanager
    def _connected(self, url: str, deadline_s: float) -> Iterator[http.client.HTTPConnection]:
        parts = urlsplit(url)
        host, timeout_s = parts.hostname or "", min(_CONNECT_S, deadline_s)
        connection = (
            http.client.HTTPSConnection(host, parts.port, timeout=timeout_s, context=self._tls)
            if parts.scheme == "https"
            else http.client.HTTPConnection(host, parts.port, timeout=timeout_s)
        )
        try:
            connection.connect()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Broken(Signal.NOT_CONNECTED, sent=False) from error
        line: socket.socket = connection.sock
        line.settimeout(deadline_s)
        timer = threading.Timer(deadline_s, _shut, [line])
        timer.daemon = True
        with self._lock:
            self._open.add(line)
            if self._closed:
                _shut(line)
        timer.start()
        try:
            yield connection
        finally:
            timer.cancel()
            with self._lock:
                self._open.discard(line)
            connection.close()

    def _begin(
        self, connection: http.client.HTTPConnection, method: str, url: str, headers: Mapping[str, str], to: To
    ) -> None:
        parts = urlsplit(url)
        connection.putrequest(method, parts.path + (f"?{parts.query}" if parts.query else ""))
        authorization = self._authorizations.get(to.pool)
        for name, value in {**to.headers, **headers}.items():
            connection.putheader(name, value)
        if authorization is not None:
            connection.putheader("Authorization", authorization)
        connection.endheaders()


@contextmanager
def _sent() -> Iterator[None]:
    """What breaks from here on may have reached the provider."""
    try:
        yield
    except TimeoutError as error:
        raise Broken(Signal.DEADLINE_PASSED, sent=True) from error
    except http.client.IncompleteRead as error:
        raise Broken(Signal.BODY_INCOMPLETE, sent=True) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Broken(Signal.CONNECTION_LOST, sent=True) from error


def _response(connection: http.client.HTTPConnection) -> Response:
    return _whole(connection.getresponse())


def _whole(response: http.client.HTTPResponse) -> Response:
    body = response.read(MAX_BODY_BYTES + 1)
    if len(body) > MAX_BODY_BYTES:
        raise Broken(Signal.BODY_OVER_CAP, sent=True)
    if response.length:  # `read` with a size returns a cut body without a word
        raise Broken(Signal.BODY_INCOMPLETE, sent=True)
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Response(status=response.status, headers=headers, body=body)


def _field(name: str, value: str) -> str:
    return f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'


def _write(file: BinaryIO, path: Path, chunk: bytes) -> None:
    try:
        file.write(chunk)
    except OSError as error:
        raise Unavailable(f"results in {refusal(path.parent, error)}") from error


def _shut(line: Any) -> None:
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
