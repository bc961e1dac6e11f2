"""One HTTP call to a provider, for a check: a whole deadline, a capped body, no redirect, no proxy, nothing logged.

It is made in a thread of its own, since a resolver that hangs and a server that drips byte by byte obey no timeout of
a socket: whoever waits gives up at the deadline, and the connection is shut.
"""

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit

MAX_BODY_BYTES = 4 << 20
CONNECT_S = 10.0
_END_S = 1.0
_CHUNK_BYTES = 1 << 16


class Cause(StrEnum):
    """Why no whole answer came, in words for a person."""

    ADDRESS = "this is no address that can be called"
    NAME = "no such host (DNS)"
    REFUSED = "the connection is refused: nothing listens there"
    UNREACHABLE = "no connection"
    CERTIFICATE = "the server's certificate is not trusted"
    TLS = "no TLS connection; is it http instead of https?"
    TOO_SLOW = "no whole answer in time"
    BROKEN_OFF = "the connection broke before the answer was whole"
    NO_HTTP = "what answers does not speak HTTP; is it https instead of http?"
    TOO_LONG = "the answer is over 4 MiB"


#: of these no request was sent, so that nothing can have been billed
NEVER_SENT = frozenset({Cause.ADDRESS, Cause.NAME, Cause.REFUSED, Cause.UNREACHABLE, Cause.CERTIFICATE, Cause.TLS})


class NoAnswer(Exception):
    """No whole answer came. `detail` is the system's own word for it, or empty; it never holds what was sent."""

    def __init__(self, cause: Cause, detail: str = "") -> None:
        super().__init__(f"{cause} ({detail})" if detail else cause)
        self.cause = cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A GET, or a POST when there is a body."""

    url: str
    headers: Mapping[str, str] = field(repr=False)  #: with the key
    body: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole answer. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def ask(question: Question, *, deadline_s: float) -> Answer:
    """The answer to `question`. Raises `NoAnswer`, at the latest soon after `deadline_s`."""
    asking = _Asking(question, deadline_s)
    asking.start()
    asking.join(deadline_s)
    if asking.error is not None:
        raise no_answer(asking.error) from asking.error
    if asking.answer is None:
        asking.give_up()
        asking.join(_END_S)
        raise NoAnswer(Cause.TOO_SLOW, f"{deadline_s:g} s")
    return asking.answer


class _TooLong(Exception):
    """The body is over the cap."""


class _Asking(threading.Thread):
    """The call. `answer` or `error` is set when it has ended."""

    def __init__(self, question: Question, deadline_s: float) -> None:
        super().__init__(name="pool-check", daemon=True)
        self._question, self._deadline_s = question, deadline_s
        self._given_up = threading.Event()
        self._socket: socket.socket | None = None
        self.answer: Answer | None = None
        self.error: Exception | None = None

    def give_up(self) -> None:
        """Nobody waits any more: nothing further is sent, and what blocks on the connection ends."""
        self._given_up.set()
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def run(self) -> None:
        try:
            self.answer = self._called()
        except Exception as error:  # handed to whoever waits
            self.error = error

    def _called(self) -> Answer | None:
        parts = urlsplit(self._question.url)
        host, secure = parts.hostname or "", parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(host, parts.port)
        try:
            try:
                connection.sock = self._connected(host, connection.port, secure=secure)
            except TimeoutError as error:
                raise ConnectionError(f"{CONNECT_S:g} s") from error
            connection.sock.settimeout(self._deadline_s)
            if self._given_up.is_set():
                return None
            path = parts.path + (f"?{parts.query}" if parts.query else "")
            method = "GET" if self._question.body is None else "POST"
            connection.request(method, path, body=self._question.body, headers=dict(self._question.headers))
            with connection.getresponse() as response:
                headers = {name.lower(): value for name, value in response.getheaders()}
                return Answer(status=response.status, headers=headers, body=_body(response))
        finally:
            connection.close()
            if self._socket is not None:
                self._socket.close()

    def _connected(self, host: str, port: int, *, secure: bool) -> socket.socket:
        """The connection, known to `give_up` before anything can block on it."""
        self._socket = socket.create_connection((host, port), CONNECT_S)
        if secure:
            context = ssl.create_default_context()
            self._socket = secured = context.wrap_socket(
                self._socket, server_hostname=host, do_handshake_on_connect=False
            )
            secured.do_handshake()
        return self._socket


def _body(response: http.client.HTTPResponse) -> bytes:
    chunks, size = [], 0
    while chunk := response.read(_CHUNK_BYTES):
        chunks.append(chunk)
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise _TooLong
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)
    return b"".join(chunks)


#: what broke → cause; the first that fits, so special cases stand above their families
_CAUSES: tuple[tuple[type[Exception], Cause], ...] = (
    (_TooLong, Cause.TOO_LONG),
    (socket.gaierror, Cause.NAME),
    (ssl.SSLCertVerificationError, Cause.CERTIFICATE),
    (ssl.SSLError, Cause.TLS),
    (ConnectionRefusedError, Cause.REFUSED),
    (http.client.RemoteDisconnected, Cause.BROKEN_OFF),
    (http.client.IncompleteRead, Cause.BROKEN_OFF),
    (ConnectionResetError, Cause.BROKEN_OFF),
    (BrokenPipeError, Cause.BROKEN_OFF),
    (TimeoutError, Cause.TOO_SLOW),
    (http.client.InvalidURL, Cause.ADDRESS),
    (http.client.HTTPException, Cause.NO_HTTP),
    (OSError, Cause.UNREACHABLE),
    (ValueError, Cause.ADDRESS),  # of a host name that can not be encoded
)


def no_answer(error: Exception) -> NoAnswer:
    """What an error of a call means. Raises the error itself when it is none of a call's."""
    cause = next((cause for kind, cause in _CAUSES if isinstance(error, kind)), None)
    if cause is None:
        raise error
    match error:
        # ssl sets these two on what it raises itself
        case ssl.SSLCertVerificationError():
            return NoAnswer(cause, getattr(error, "verify_message", ""))
        case ssl.SSLError():
            return NoAnswer(cause, getattr(error, "reason", None) or "")
        case OSError():
            return NoAnswer(cause, error.strerror or str(error))
    return NoAnswer(cause)
