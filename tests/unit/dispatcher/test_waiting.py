"""While nothing goes on, people are told what for (O1)."""

from pathlib import Path

import pytest

from nightmill.kernel.runtime.service import Stall
from unit.dispatcher.stage import A, Stage, failed, failure


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path)
    stage.say(A)
    return stage


def test_items_that_all_wait_for_another_try_are_told_of(stage: Stage) -> None:
    for key in ("item-one", "item-two"):
        stage.plan(key=key)
    one, two = stage.tick()
    stage.judge(failed(one, failure()))
    assert stage.service.stalls() == [], "the other one is unanswered"
    stage.judge(failed(two, failure()))
    stage.tick(0.01)
    due_ms = min(stage.row(key).due_at_ms or 0 for key in ("item-one", "item-two"))
    told = Stall(
        subject="retries of small",
        pool="small",
        reason="pool small: 2 items wait for another try after a failure",
        until_ms=due_ms,
    )
    assert stage.service.stalls() == [told]

    stage.start()
    stage.tick(0.01)
    assert stage.service.stalls() == [told], "a new process finds the same"

    stage.plan(key="item-three")
    assert stage.service.stalls() == [], "an item is ready"
    stage.tick()
    assert stage.service.stalls() == [], "and unanswered"


def test_what_is_tried_again_waits_no_more(stage: Stage) -> None:
    stage.plan()
    stage.judge(failed(stage.tick()[0], failure()))
    stage.tick(0.01)
    assert [stall.reason for stall in stage.service.stalls()] == [
        "pool small: 1 item waits for another try after a failure"
    ]
    stage.tick(60)
    assert stage.service.stalls() == [], "its time has come"
    assert [attempt.ordinal for attempt in stage.tick()] == [2]
