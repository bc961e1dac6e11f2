"""A door before a server on loopback: while it is shut nobody gets in, and whoever was inside is thrown out.

So a provider can be away, as its clients see it, without losing its ledger.
"""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Self

_STOP_S = 10


class Door:
    """Forwards to the loopback port `inner` from `port`, which stays the same over shutting and opening."""

    def __init__(self, inner: int) -> None:
        self._inner = inner
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._inside: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_S)
        self._loop.close()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def open(self) -> None:
        """Let clients in; returns when it listens."""
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(_STOP_S)

    def shut(self) -> None:
        """Refuse connections from now on, and break those that there are."""
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result(_STOP_S)

    async def _open(self) -> None:
        self._server = await asyncio.start_server(self._come_in, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _shut(self) -> None:
        if self._server is None:
            return
        self._server.close()
        self._server = None
        for task in self._inside:
            task.cancel()
        await asyncio.gather(*self._inside, return_exceptions=True)

    async def _come_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._inside.add(task)
        writers = [writer]
        try:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._inner)
            writers.append(inner_writer)
            await asyncio.gather(_carry(reader, inner_writer), _carry(inner_reader, writer))
        except (OSError, asyncio.CancelledError):
            return
        finally:
            self._inside.discard(task)
            for each in writers:
                each.transport.abort()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
