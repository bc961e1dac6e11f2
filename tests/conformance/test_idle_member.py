"""A member that has nothing to do while its broker dies and comes back."""

from conformance.children import Children
from kit.broker import OwnBroker


def test_the_process_that_was_idle_commits_afterwards(broker: OwnBroker, fragile: Children) -> None:
    """E1: it need not end for it, and above all it does not stand still in its next commit.

    A client that forgets its brokers while all are away waits there for ever (`kafka/client.py`).
    """
    fragile.stage.plan("before")
    fragile.start("0")
    fragile.await_line("0", "committed before")
    broker.kill()
    broker.start()
    fragile.stage.plan("after")
    fragile.await_line("0", "committed after")
    assert fragile.processes["0"].poll() is None
