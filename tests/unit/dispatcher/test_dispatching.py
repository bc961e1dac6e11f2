"""Where a tick sends items and how many: pools, bounds, urgency, and what is overdue."""

from pathlib import Path

import pytest

from nightmill.kernel.domain.failures import FailureClass
from nightmill.kernel.domain.lifecycle import AttemptState, ControlState, ItemOutcome, ItemState
from nightmill.kernel.domain.pipeline import Sensitivity
from nightmill.kernel.domain.settings import PoolLimits
from nightmill.kernel.wire.messages import ItemStateRow
from unit.dispatcher.stage import A, B, C, Stage, config, failed, judged, pipeline, pool


def test_documents_no_pool_may_have(tmp_path: Path) -> None:
    """P6, P7: that row only, with place, value and remedy."""
    stage = Stage(tmp_path)
    stage.say(A)
    stage.plan(A, "long", input_tokens=40_000)
    (settled,) = stage.settled()
    assert settled.failure is not None
    assert (settled.outcome, settled.failure.signal) == (ItemOutcome.DEAD_LETTER, "context_too_long")
    assert "40064 tokens" in settled.failure.message
    assert (settled.reused, settled.totals.attempts) == (False, 0)

    stage = Stage(tmp_path, frozen=pipeline(sensitivity=Sensitivity.RESTRICTED))
    stage.say(A)
    stage.plan(A)
    (settled,) = stage.settled()
    assert settled.failure is not None
    assert (settled.failure.failure_class, settled.failure.signal) == (FailureClass.POLICY, "pool_forbidden")

    stage.plan(A, "other", pipeline_digest="0" * 64)
    failure_ = stage.settled()[-1].failure
    assert failure_ is not None
    assert failure_.signal == "pipeline_unreadable"


def test_changed_pools_are_heeded(tmp_path: Path) -> None:
    """P6: items that wait for a pool that is gone go to another, or end."""
    stage = Stage(tmp_path)
    stage.say(A)
    stage.plan(A)
    stage.plan(A, "big", ordinal=1, input_tokens=20_000)
    stage.settings = config(small=pool(context_tokens=50_000))
    stage.start()
    sent = stage.tick() + stage.tick()
    assert {each.item_key for each in sent} == {"item-one", "big"}
    for attempt in sent:
        stage.judge(failed(attempt, None, AttemptState.NOT_SENT))
    stage.settings = config(tiny=pool(context_tokens=10))
    stage.start()
    stage.tick()
    assert {stage.row(key).state for key in ("item-one", "big")} == {ItemState.DEAD_LETTER}
    assert len(stage.settled(A)) == 2


def test_dispatch_is_bounded(tmp_path: Path) -> None:
    """E3, E4: four times the slots are under way, whatever waits; a restart counts them again."""
    stage = Stage(tmp_path, settings=config(small=pool(limits=PoolLimits(slots=2))))
    stage.say(A)
    for n in range(30):
        stage.plan(A, f"item-{n:02}", ordinal=n)
    sent = stage.tick()
    assert [each.item_key for each in sent] == [f"item-{n:02}" for n in range(8)]
    assert stage.tick() == []
    stage.start()
    assert stage.tick() == []
    for attempt in sent[:3]:
        stage.judge(judged(attempt))
    assert [each.item_key for each in stage.tick()] == ["item-08", "item-09", "item-10"]


def test_urgent_batch_goes_first_and_equals_share(tmp_path: Path) -> None:
    """P3."""
    stage = Stage(tmp_path, settings=config(small=pool(limits=PoolLimits(slots=2))))
    urgent = B.replace("bbbb", "dddd")
    for batch, priority in ((A, 0), (B, 0), (urgent, 1)):
        stage.say(batch, priority=priority)
        for n in range(10):
            stage.plan(batch, f"{batch[-6:]}{n}", ordinal=n, priority=priority)
    assert {each.batch_id for each in stage.tick()} == {urgent}
    stage.say(urgent, ControlState.CANCELLED)
    for row in list(stage.part.table(ItemStateRow).rows.values()):
        if row.state is ItemState.DISPATCHED:
            stage.judge(failed(stage.shards()[0].attempts[row.waiters[0].ordinal], None, AttemptState.NOT_SENT))
    batches = [each.batch_id for each in stage.tick()]
    assert (batches.count(A), batches.count(B)) == (4, 4)


def test_watchdog_sends_the_same_attempts_again(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """E1: overdue after the call's deadline and a minute, doubled each time; it alarms at the third."""
    stage.plan(A, "one")
    stage.plan(A, "two", ordinal=1)
    sent = stage.tick()
    stage.judge(judged(sent[0]))
    assert stage.tick(179) == []
    assert stage.tick(2) == [sent[1]]
    assert stage.tick(359) == []
    assert stage.tick(2) == [sent[1]]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    assert stage.tick(721) == [sent[1]]
    assert [record.levelname for record in caplog.records if record.levelname == "ERROR"] == ["ERROR"]
    assert len({shard.shard_id for shard in stage.shards()}) == 1
    assert len(stage.judge(judged(sent[1]))) == 1


def test_idle_tick_reads_nothing(stage: Stage) -> None:
    """A tick with nothing due does not look at rows: the table may be gone."""
    stage.plan(A)
    (attempt,) = stage.tick()
    stage.judge(judged(attempt))
    stage.plan(A, "held")
    stage.say(A, ControlState.HELD)
    stage.tick()
    stage.tick()
    reads: list[str] = []
    table = stage.part.table(ItemStateRow)
    read = table.index

    def counted(name: str, **bounds: bytes) -> object:
        reads.append(name)
        return read(name, **bounds)

    table.index = counted  # type: ignore[method-assign,assignment]
    assert [stage.tick() for _ in range(3)] == [[], [], []]
    assert reads == []


def test_one_tick_moves_a_row_once(stage: Stage) -> None:
    """An item dispatched for its second batch is not put back by the walk over shared items in the same tick."""
    stage.say(B)
    stage.say(C)
    stage.plan(A)
    stage.plan(B)
    stage.plan(C, "held")
    stage.say(C, ControlState.HELD)
    stage.say(A, generation=2)
    assert [each.batch_id for each in stage.tick()] == [B]
    assert stage.row().state is ItemState.DISPATCHED
