"""How often the laptop's broker is looked at, and that one which is away stops nobody."""

import socket
import threading

import pytest

from nightmill.local.mending import mend_while
from nightmill.local.processes import free_port


def looks(bootstrap: str, count: int) -> list[float]:
    """The pauses before each look at a broker that lives for `count` of them."""
    pauses: list[float] = []
    mend_while(lambda: len(pauses) < count, bootstrap, clock_s=lambda: sum(pauses), sleep=pauses.append)
    return pauses


def test_a_broker_is_watched_closely_after_its_start_and_seldom_later() -> None:
    """Nobody listens there: it is looked at again."""
    assert looks(f"127.0.0.1:{free_port()}", 62) == [5.0] * 60 + [60.0] * 2


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"\0\0\0\x10half", id="cut off"),
        pytest.param(b"\0\0\0\x06\0\0\0\1\0\0", id="whole, but its fields end early"),
        pytest.param(b"\0\0\0\x0c\0\0\0\1\0\0\0\1\0\0\0\0", id="a list that ends early"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="not Kafka"),
    ],
)
def test_a_broker_that_breaks_off_is_looked_at_again(answer: bytes) -> None:
    """E11: whatever it answers, the watch goes on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threads = [threading.Thread(target=break_off, args=(server, answer)) for _ in range(2)]
        for thread in threads:
            thread.start()
        assert looks(f"127.0.0.1:{server.getsockname()[1]}", 2) == [5.0, 5.0]
        for thread in threads:
            thread.join()


def break_off(server: socket.socket, answer: bytes) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(1024)
        connection.sendall(answer)
