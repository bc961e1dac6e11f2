"""A loop whose transactions are aborted tries again later each time, and loses nothing meanwhile."""

import itertools
from pathlib import Path

import pytest

from conformance.recorder import NOW, Recorder, Stage, rows, run_until
from nightmill.kernel.runtime.log import Aborted
from nightmill.kernel.runtime.memory import CommitPoint, MemoryBroker, MemorySession
from nightmill.kernel.runtime.rest import back_off_ms

_STEP_MS = 10


@pytest.mark.parametrize(
    ("aborted", "rest_ms"),
    [(1, 50), (2, 100), (3, 200), (4, 400), (7, 3_200), (8, 5_000), (9, 5_000), (100_000, 5_000)],
)
def test_the_rest_doubles_up_to_a_bound(aborted: int, rest_ms: int) -> None:
    assert back_off_ms(aborted) == rest_ms


def test_aborted_transactions_are_tried_again_at_growing_distances(tmp_path: Path) -> None:
    """E1: handled as often as it was tried, committed once; the next trouble begins with a short rest again."""
    broker = MemoryBroker(partitions=2)
    stage = Stage(broker.log("rest"), tmp_path)
    service = Recorder()
    loop = stage.loop(service)
    run_until(loop, lambda: loop.partitions == [0, 1])
    times = itertools.count(next(NOW), _STEP_MS)
    tried_ms: list[int] = []

    def tries(source: str, aborts: int) -> list[int]:
        """The distances between the tries to commit `source`, of which `aborts` are aborted."""
        tried_ms.clear()
        stage.plan(source)
        left = aborts

        def abort(_session: MemorySession, point: CommitPoint) -> None:
            nonlocal left
            if point is not CommitPoint.BEFORE:
                return
            tried_ms.append(now_ms)
            if left:
                left -= 1
                raise Aborted("told to abort")

        broker.at_commit = abort
        while source not in rows(loop) or len(tried_ms) <= aborts:
            now_ms = next(times)
            loop.step(now_ms)
        return [later - earlier for earlier, later in itertools.pairwise(tried_ms)]

    # a step sees that the rest is over and takes the inputs up, the next one has the record
    assert tries("a", 4) == [rest + _STEP_MS for rest in (50, 100, 200, 400)]
    assert tries("b", 1) == [50 + _STEP_MS]
    assert service.seen == ["a"] * 5 + ["b"] * 2
    assert service.started == ["a", "b"]
    assert len(stage.records("shard-dispatched")) == 2
    loop.close()
