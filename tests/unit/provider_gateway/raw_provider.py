"""A provider that answers every request with bytes of the test's choice, and ends the connection as the test says."""

import socket
import struct
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self


class RawProvider:
    """Listens on loopback; each connection gets `chunks` after its request, `every_s` apart, then `end`.

    `end`: `close`, `reset`, `keep` (the connection stays and waits for the next request) or `hang`.
    """

    def __init__(self, chunks: Sequence[bytes] = (), *, end: str = "close", every_s: float = 0.0) -> None:
        self._chunks, self._end, self._every_s = chunks, end, every_s
        self.requests: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._over = threading.Event()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"

    def __enter__(self) -> Self:
        self._begin(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for each in self._open:
            each.close()
        for thread in self._threads:
            thread.join(5)

    def _begin(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            self._open.append(client)
            self._begin(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        try:
            while self._answer(client) and self._end == "keep":
                pass
            if self._end == "hang":
                self._over.wait(30)
            elif self._end == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:
            return  # the client has left
        finally:
            client.close()

    def _answer(self, client: socket.socket) -> bool:
        request = b""
        while b"\r\n\r\n" not in request:
            part = client.recv(65536)
            if not part:
                return False
            request += part
        head, _, body = request.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next((int(line.split(b":")[1]) for line in lines if b"content-length" in line), 0)
        while len(body) < length:
            body += client.recv(65536)
        self.requests.append(head + b"\r\n\r\n" + body)
        for chunk in self._chunks:
            client.sendall(chunk)
            if self._every_s:
                time.sleep(self._every_s)
        return True


def http_response(body: bytes, *headers: str, status: str = "200 OK", length: int | None = None) -> bytes:
    """A whole response; `length` lies about the body's length."""
    lines = [f"HTTP/1.1 {status}", "content-type: application/json", *headers]
    lines.append(f"content-length: {len(body) if length is None else length}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
