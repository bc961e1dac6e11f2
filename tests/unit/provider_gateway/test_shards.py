"""The way of a shard through the gateway: begun once, called within its leases, called off, done."""

import pytest

from nightmill.kernel.domain.lifecycle import AttemptState, ControlState, ShardState
from nightmill.kernel.runtime.service import NOTHING, Wait
from nightmill.kernel.wire.messages import ShardStateRow
from nightmill.kernel.wire.values import replace
from unit.provider_gateway.makers import ANSWER, BATCH, POOL, make_control, make_shard, response
from unit.provider_gateway.stage import Stage


def test_a_shard_is_answered_once_and_done(stage: Stage) -> None:
    """E1, E2: one call an attempt, under its own id; the row is DONE with the last answer."""
    shard = make_shard(stage.documents, range(10))
    stage.dispatch(shard)
    sent = stage.run(ANSWER)
    assert sorted(a.source_id for a in sent) == sorted(str(i) for i in range(10))
    assert {a.state for a in sent} == {AttemptState.ANSWERED}
    row = stage.row()
    assert (row.state, row.shard, row.answered) == (ShardState.DONE, None, ())
    assert not stage.gateway.busy()
    assert (stage.outbox.marks(), stage.outbox.answers()) == ({}, [])


def test_an_answer_carries_usage_cost_and_reservation(stage: Stage) -> None:
    """Q5, P4: 60 tokens at 1 USD, 40 cached as input, 5 at 2 USD a million = 110,000 nano-USD."""
    stage.dispatch(make_shard(stage.documents, [3]))
    (answered,) = stage.run(ANSWER)
    assert answered.cost_nano_usd == (60 + 40) * 1_000 + 5 * 2_000
    assert answered.reserved_nano_usd == 100 * 1_000 + 64 * 2_000
    assert (answered.model, answered.pool, answered.price_version) == ("small", POOL, "p1")
    assert (answered.finish_reason, answered.is_repair, answered.late) == ("stop", False, False)


def test_nothing_is_called_before_the_row_is_committed(stage: Stage) -> None:
    """M2: the intent is on record before money is spent."""
    decision = stage.gateway.on_shard_dispatched(make_shard(stage.documents, [0]), stage.part)
    stage.part.apply(decision)  # type: ignore[arg-type]
    stage.step()
    stage.step()
    assert stage.caller.begun == []
    stage.commit()
    stage.step()
    stage.step()
    assert len(stage.caller.begun) == 1


def test_a_shard_that_is_known_is_not_run_again(stage: Stage) -> None:
    """E1: the watchdog's repeat changes nothing while it runs, and nothing when it is done."""
    shard = make_shard(stage.documents, [0, 1])
    stage.dispatch(shard)
    assert stage.gateway.on_shard_dispatched(shard, stage.part) is NOTHING
    stage.run(ANSWER)
    assert stage.gateway.on_shard_dispatched(shard, stage.part) is NOTHING
    assert len(stage.run(ANSWER)) == 2


def test_a_shard_waits_until_its_batch_is_in_view(stage: Stage) -> None:
    stage.controls.rows.clear()
    assert isinstance(stage.gateway.on_shard_dispatched(make_shard(stage.documents, [0]), stage.part), Wait)


def test_calls_start_only_under_a_lease_and_within_its_slots(stage: Stage) -> None:
    """E4: no lease, no call; never more in flight than the lease has slots."""
    stage.granting = False
    stage.dispatch(make_shard(stage.documents, range(12)))
    stage.step()
    stage.step()
    assert stage.caller.begun == []
    stage.granting = True
    for _ in range(80):
        stage.step()
    assert len(stage.caller.begun) == 4
    # as many again are handed over, so that a slot need not wait for the next step
    assert sum(map(len, stage.caller.waiting.values())) == 4


def test_what_waits_at_an_ended_lease_is_taken_back_and_goes_on_under_the_next(stage: Stage) -> None:
    """E4: nothing starts after the lease's end."""
    stage.dispatch(make_shard(stage.documents, range(12)))
    stage.step()
    stage.step()
    stage.granting = False
    stage.step(10_000)
    assert stage.caller.waiting == {}
    stage.caller.answer(ANSWER)
    assert stage.caller.begun == []
    stage.granting = True
    assert len(stage.run(ANSWER, steps=80)) == 12


def test_governor_is_told_the_slots_that_are_really_in_use(stage: Stage) -> None:
    stage.dispatch(make_shard(stage.documents, range(12)))
    for _ in range(200):
        stage.step()
    assert stage.part.sent_now[-1].slots_in_use == 4


def test_a_cancelled_batch_is_called_off(stage: Stage) -> None:
    """M5: what was not begun is not sent, and costs nothing."""
    stage.dispatch(make_shard(stage.documents, range(3)))
    stage.controls.rows[BATCH] = make_control(ControlState.CANCELLED)
    sent = stage.run(ANSWER)
    assert [(a.state, a.cost_nano_usd) for a in sent] == [(AttemptState.NOT_SENT, 0)] * 3
    assert stage.row().state is ShardState.DONE


def test_a_cancelled_batch_is_called_off_behind_a_paused_pool(stage: Stage) -> None:
    """M5: however long the pool is paused."""
    stage.dispatch(make_shard(stage.documents, range(12)))
    stage.step()
    stage.step()
    stage.caller.answer(response({}, 429, retry_after="3600"), 4)
    stage.step()
    stage.controls.rows[BATCH] = make_control(ControlState.CANCELLED)
    stage.step(2_000)
    assert sum(a.state is AttemptState.NOT_SENT for a in stage.sent()) == 8


@pytest.mark.parametrize("control", [make_control(ControlState.HELD), make_control(ControlState.RUNNING, 2)])
def test_only_a_cancel_calls_off(stage: Stage, control: object) -> None:
    """An attempt is not fenced by a newer generation: what it brings is kept and reused."""
    stage.dispatch(make_shard(stage.documents, [0]))
    stage.controls.rows[BATCH] = control
    assert [a.state for a in stage.run(ANSWER)] == [AttemptState.ANSWERED]


def test_an_older_cancel_does_not_call_off_a_newer_generation(stage: Stage) -> None:
    shard = make_shard(stage.documents, [0])
    newer = replace(shard, attempts=(replace(shard.attempts[0], generation=2),))
    stage.controls.rows[BATCH] = make_control(ControlState.CANCELLED, 1)
    stage.dispatch(newer)
    assert [a.state for a in stage.run(ANSWER)] == [AttemptState.ANSWERED]


def test_done_rows_go_when_no_repeat_can_come(stage: Stage) -> None:
    """They outlive the seven days of shard-dispatched."""
    stage.dispatch(make_shard(stage.documents, [0]))
    stage.run(ANSWER)
    stage.step(7 * 86_400_000)
    assert stage.row().state is ShardState.DONE
    stage.step(86_400_000)
    assert stage.part.table(ShardStateRow).get("s1") is None
