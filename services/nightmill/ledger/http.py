"""The ledger's read-only endpoint on loopback: `POST /query`, `POST /named/<query>`, `GET /health`.

Runs in threads of its own and takes no part in the loop. Every request but the health check carries the installation's
bearer token. Bounded: four queries at a time, and the limits of query.py for each.
"""

import hmac
import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from nightmill.kernel.runtime.service import Unavailable
from nightmill.ledger.query import DEFAULT_ROWS, DEFAULT_SECONDS, Answer, Desk, Refused

log = logging.getLogger(__name__)

_MAX_BODY_BYTES = 512 * 1024
_DRAINED_BYTES = 16 * _MAX_BODY_BYTES
_QUERIES_AT_ONCE = 4
_SOCKET_TIMEOUT_S = 90
_STATUS = {"refused": HTTPStatus.FORBIDDEN, "invalid": HTTPStatus.BAD_REQUEST, "limit": HTTPStatus.BAD_REQUEST}


class Problem(Exception):
    """A request that is answered with an error; `kind` is stable, the text is for people."""

    def __init__(self, status: HTTPStatus, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class QueryServer:
    """Serves `desk` on 127.0.0.1; `port_file` tells others where, from `start` to `close`."""

    def __init__(self, desk: Desk, *, token_file: Path, port_file: Path, port: int = 0) -> None:
        self.desk = desk
        self._token_file = token_file
        self._port_file = port_file
        self._slots = threading.BoundedSemaphore(_QUERIES_AT_ONCE)
        endpoint = self

        class Handler(_Handler):
            server_owner = endpoint

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="ledger-query", daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def start(self) -> None:
        self._thread.start()
        self._port_file.parent.mkdir(parents=True, exist_ok=True)
        scratch = self._port_file.with_suffix(".port.new")
        scratch.write_text(str(self.port), encoding="utf-8")
        scratch.replace(self._port_file)
        log.info("query endpoint open", extra={"action": "query_endpoint_open", "port": self.port})

    def close(self) -> None:
        self._port_file.unlink(missing_ok=True)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=2)

    def authorise(self, header: str | None) -> None:
        """Raises `Problem` unless the header carries the token of the token file."""
        try:
            token = self._token_file.read_text(encoding="utf-8").strip()
        except OSError as error:
            message = f"there is no token file {self._token_file} yet; start the api, which makes it"
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", message) from error
        if not token or not hmac.compare_digest((header or "").encode(), f"Bearer {token}".encode()):
            message = "give the installation's token as 'Authorization: Bearer …'"
            raise Problem(HTTPStatus.UNAUTHORIZED, "unauthorised", message)

    def answer(self, path: str, body: Mapping[str, Any]) -> Answer:
        """Answer of one POST. Raises `Problem`."""
        if not self._slots.acquire(blocking=False):
            message = f"{_QUERIES_AT_ONCE} queries are running; try again"
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "busy", message)
        try:
            return self._route(path)(body)
        except Refused as error:
            raise Problem(_STATUS[error.kind], error.kind, str(error)) from error
        except Unavailable as error:
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", str(error)) from error
        finally:
            self._slots.release()

    def _route(self, path: str) -> Callable[[Mapping[str, Any]], Answer]:
        if path == "/query":
            return self._query
        head, _, name = path.rpartition("/")
        if head == "/named":
            return lambda body: self.desk.named(name, _field(body, "parameters", dict, {}))
        raise Problem(HTTPStatus.NOT_FOUND, "unknown_path", f"no {path}; there are /query and /named/<query>")

    def _query(self, body: Mapping[str, Any]) -> Answer:
        return self.desk.query(
            _field(body, "sql", str, None),
            _field(body, "parameters", dict, {}),
            max_rows=_field(body, "max_rows", int, DEFAULT_ROWS),
            max_seconds=_field(body, "max_seconds", int, DEFAULT_SECONDS),
        )


class _Handler(BaseHTTPRequestHandler):
    server_owner: QueryServer
    protocol_version = "HTTP/1.1"
    timeout = _SOCKET_TIMEOUT_S

    def do_GET(self) -> None:
        if self.path == "/health":
            self._send(HTTPStatus.OK, {"ok": True})
        else:
            self._send(HTTPStatus.NOT_FOUND, _error("unknown_path", f"no {self.path}; there is /health"))

    def do_POST(self) -> None:
        try:
            body = self._body()
            self.server_owner.authorise(self.headers.get("Authorization"))
            self._send(HTTPStatus.OK, asdict(self.server_owner.answer(self.path, body)))
        except Problem as problem:
            self._send(problem.status, _error(problem.kind, str(problem)))
            # after the answer: a log that is a pipe blocks when its reader has stopped; the asker must not wait for it
            extra = {"action": "query_refused", "kind": problem.kind, "status": problem.status.value}
            log.info("query not answered", extra=extra)

    def _body(self) -> Mapping[str, Any]:
        text = self.headers.get("Content-Length") or ""
        if not text.isascii() or not text.isdigit() or int(text) > _MAX_BODY_BYTES:
            self._drain(int(text) if text.isascii() and text.isdigit() else 0)
            message = f"send a JSON body of at most {_MAX_BODY_BYTES} bytes with its Content-Length"
            raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "invalid", message)
        try:
            body = json.loads(self.rfile.read(int(text)))
        except ValueError as error:
            raise Problem(HTTPStatus.BAD_REQUEST, "invalid", "the body is not JSON") from error
        if not isinstance(body, dict):
            raise Problem(HTTPStatus.BAD_REQUEST, "invalid", "the body is not a JSON object")
        return body

    def _drain(self, size: int) -> None:
        """Take in a body that is refused, up to a bound: a client that still sends would not see the answer."""
        self.close_connection = True
        left = min(size, _DRAINED_BYTES)
        while left > 0 and (chunk := self.rfile.read(min(left, 65536))):
            left -= len(chunk)

    def _send(self, status: HTTPStatus, content: Mapping[str, Any]) -> None:
        raw = json.dumps(content, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug("request", extra={"action": "request", "path": self.path})


def _field(body: Mapping[str, Any], name: str, type_: type[Any], default: Any) -> Any:
    value = body.get(name, default)
    if not isinstance(value, type_) or (type_ is int and isinstance(value, bool)):
        raise Problem(HTTPStatus.BAD_REQUEST, "invalid", f"{name}: give a value of type {type_.__name__}")
    return value


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"error": {"kind": kind, "message": message}}
