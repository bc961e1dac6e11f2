"""The deadline of a call: on time where the loop runs, and an answer that came during a standstill is taken."""

import asyncio
import selectors
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import uvloop

from nightmill.provider_gateway.deadline import Deadline

DEADLINE_S, STANDSTILL_S = 0.05, 0.4
LONG = b"x" * (1 << 20)  #: more than one turn of the loop reads, and more than a socket holds


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Our end of a connection, and the provider's."""
    ours, theirs = socket.socketpair()
    yield ours, theirs
    theirs.close()
    ours.close()


async def read_whole(ours: socket.socket) -> bytes:
    reader, writer = await asyncio.open_connection(sock=ours)
    try:
        async with Deadline(DEADLINE_S):
            return await reader.read(-1)
    finally:
        writer.close()


async def stand_still(begun: asyncio.Task[bytes]) -> bytes:
    """Let the call wait for its answer, then let nothing run until its deadline has passed."""
    await asyncio.sleep(DEADLINE_S / 5)
    time.sleep(STANDSTILL_S)  # noqa: ASYNC251 - the process is stopped
    return await begun


def on_the_loop(ours: socket.socket) -> bytes:
    async def call() -> bytes:
        return await stand_still(asyncio.create_task(read_whole(ours)))

    loop = uvloop.new_event_loop()
    try:
        return loop.run_until_complete(call())
    finally:
        loop.close()


@pytest.mark.parametrize("answer", [b"short", LONG], ids=["short", "long"])
def test_an_answer_that_came_while_nothing_ran_is_taken(
    ends: tuple[socket.socket, socket.socket], answer: bytes
) -> None:
    """E2: it was paid for; asyncio's own timeout cancels the call although its answer is there."""
    ours, theirs = ends

    def provide() -> None:
        theirs.sendall(answer)
        theirs.shutdown(socket.SHUT_WR)

    provider = threading.Timer(DEADLINE_S * 2, provide)
    provider.start()
    assert on_the_loop(ours) == answer
    provider.join()


def test_without_an_answer_the_deadline_stands(ends: tuple[socket.socket, socket.socket]) -> None:
    """The grace is given once and ends."""
    with pytest.raises(TimeoutError):
        on_the_loop(ends[0])


class Clockwork(selectors.DefaultSelector):
    """Waits by moving its own clock."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now_s += timeout or 0
        return super().select(0)


@pytest.fixture
def loop() -> Iterator[asyncio.SelectorEventLoop]:
    """A loop that is never late."""
    clock = Clockwork()
    made = asyncio.SelectorEventLoop(clock)
    made.time = lambda: clock.now_s  # type: ignore[method-assign]
    yield made
    made.close()


def test_a_loop_that_runs_gives_no_grace(loop: asyncio.SelectorEventLoop) -> None:
    async def call() -> None:
        async with Deadline(120):
            await asyncio.sleep(120.5)

    with pytest.raises(TimeoutError):
        loop.run_until_complete(call())
    assert loop.time() == pytest.approx(120)


def test_what_ends_in_time_leaves_no_timer_behind(loop: asyncio.SelectorEventLoop) -> None:
    async def call() -> str:
        async with Deadline(120):
            await asyncio.sleep(119)
        await asyncio.sleep(10)
        return "nothing was cancelled"

    assert loop.run_until_complete(call()) == "nothing was cancelled"
