"""A broker that goes down and comes back, and commits of which nobody knows whether they happened."""

import signal
from collections import Counter

import pytest

from conformance.children import Children
from conformance.recorder import NOW, Recorder, Stage, rows, run_until
from kit.broker import OwnBroker
from kit.messages import key_of
from nightmill.kernel.runtime.log import LogUnavailable, OutcomeUnknown
from nightmill.kernel.runtime.memory import CommitPoint, MemoryBroker, MemorySession

SOURCES = [f"s{i}" for i in range(200)]


def shards(stage: Stage) -> Counter[bytes | None]:
    return Counter(record.key for record in stage.records("shard-dispatched"))


def once(sources: list[str]) -> dict[bytes, int]:
    return {key_of(source).encode(): 1 for source in sources}


def test_the_broker_is_killed_at_work_and_comes_back(broker: OwnBroker, fragile: Children) -> None:
    """E1, E2: the process lives through it or ends and is started again; nothing is lost and nothing is there twice."""
    stage = fragile.stage
    stage.plan("first")
    fragile.start("0")
    fragile.await_line("0", "committed first")
    stage.plan(*SOURCES)
    fragile.await_line("0", f"handling {SOURCES[0]}")
    broker.kill()
    broker.start()
    stage.plan("last")
    fragile.keep_alive("0", lambda: len(shards(stage)) == len(SOURCES) + 2)
    assert shards(stage) == once(["first", *SOURCES, "last"])
    assert Counter(record.key for record in stage.records("dispatcher-item-state")) == shards(stage)


def test_a_broker_that_stays_away_ends_the_process(broker: OwnBroker, fragile: Children) -> None:
    """E1: a commit that nobody answers is of unknown outcome: the process ends, and its restart restores.

    The broker is stopped in the moment between the last record and the end of the transaction, until the process has
    given up; then it goes on with what lies in its sockets, so the commit may have happened, or not.
    """
    stage = fragile.stage
    stage.plan("doubtful")
    fragile.start("0", "ask-in-commit")
    fragile.await_line("0", "in commit")
    stage.plan("after")
    broker.send(signal.SIGSTOP)
    (fragile.folder / "go").touch()
    assert fragile.await_end("0") == 1
    assert fragile.lines("0")[-1] == "ended by OutcomeUnknown"
    broker.send(signal.SIGCONT)
    fragile.start("0")
    fragile.keep_alive("0", lambda: "committed after" in fragile.lines("0"))
    assert shards(stage) == once(["doubtful", "after"])


@pytest.mark.parametrize("point", CommitPoint)
def test_a_commit_of_unknown_outcome_is_restored(point: CommitPoint, tmp_path_factory: pytest.TempPathFactory) -> None:
    """E1: whether it happened or not, the next life finds out and the work is done once."""
    broker = MemoryBroker(partitions=2)
    stage = Stage(broker.log("test"), tmp_path_factory.mktemp("state"))

    def doubt(_session: MemorySession, at: CommitPoint) -> None:
        if at is point:
            raise OutcomeUnknown("told to doubt")

    stage.plan("a", "b")
    first = stage.loop(Recorder())
    broker.at_commit = doubt
    with pytest.raises(OutcomeUnknown):
        run_until(first, lambda: False)
    first.abandon()
    broker.at_commit = None
    service = Recorder()
    second = stage.loop(service)
    stage.plan("c")
    run_until(second, lambda: set(rows(second)) == {"a", "b", "c"})
    assert sorted(service.seen) == (["c"] if point is CommitPoint.DONE else ["a", "b", "c"])
    assert shards(stage) == once(["a", "b", "c"])
    second.close()


def test_a_broker_away_stops_the_loop_and_loses_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    """E1: without input a loop waits for its broker; with a commit to make it ends, and cannot start meanwhile."""
    broker = MemoryBroker(partitions=2)
    stage = Stage(broker.log("test"), tmp_path_factory.mktemp("state"))
    service = Recorder()
    loop = stage.loop(service)
    stage.plan("a")
    run_until(loop, lambda: service.started == ["a"])
    broker.down = True
    for _ in range(5):
        loop.step(next(NOW))
    broker.down = False
    stage.plan("b")
    broker.at_commit = lambda _session, _at: setattr(broker, "down", True)
    with pytest.raises(OutcomeUnknown):
        run_until(loop, lambda: False)
    loop.abandon()
    broker.at_commit = None
    with pytest.raises(LogUnavailable):
        stage.log.session("dispatcher", "0", ["item-planned"])
    broker.down = False
    again = stage.loop(Recorder(), state="next")
    run_until(again, lambda: set(rows(again)) == {"a", "b"})
    assert shards(stage) == once(["a", "b"])
    again.close()
