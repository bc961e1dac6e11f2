"""A member that has nothing to do while its broker dies and comes back."""

from conformance.children import Children, await_true
from kit.broker import OwnBroker


def test_the_process_that_was_idle_commits_afterwards(broker: OwnBroker, fragile: Children) -> None:
    """E1: it does not stand still in its next commit.

    A client that forgets its brokers while all are away waits there for ever (`kafka/client.py`), until its watch ends
    it without a word. One that ends because the broker was away for longer than it asks is started again.
    """
    fragile.stage.plan("before")
    fragile.start("0")
    fragile.await_line("0", "committed before")
    broker.kill()
    broker.start()
    fragile.stage.plan("after")

    def goes_on() -> bool:
        if fragile.processes["0"].poll() is not None:
            assert fragile.lines("0")[-1] == "ended by LogUnavailable"
            fragile.start("0")
        return "committed after" in fragile.lines("0")

    await_true(goes_on, "the commit after the broker was away")
