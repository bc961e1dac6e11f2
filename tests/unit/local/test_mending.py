"""How often the laptop's broker is looked at, and that one which is away stops nobody."""

import socket
import threading

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


def test_a_broker_that_breaks_off_is_looked_at_again() -> None:
    """E11: it ends in the middle of an answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threads = [threading.Thread(target=break_off, args=(server,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        assert looks(f"127.0.0.1:{server.getsockname()[1]}", 2) == [5.0, 5.0]
        for thread in threads:
            thread.join()


def break_off(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(1024)
        connection.sendall(b"\0\0\0\x10half")
