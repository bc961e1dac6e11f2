"""Batches that are held, cancelled and resumed: who is called, who waits, and who pays."""

import pytest

from nightmill.kernel.domain.lifecycle import ControlState, ItemState, Reuse, VerdictKind
from nightmill.kernel.wire.messages import Verdict
from nightmill.kernel.wire.totals import NO_TOTALS
from nightmill.kernel.wire.values import replace
from unit.dispatcher.stage import ACCEPTED, A, B, Stage, judged, verdict

HELD, CANCELLED = ControlState.HELD, ControlState.CANCELLED


def test_held_items_wait_and_flow_again(stage: Stage) -> None:
    """A held batch's items are not dispatched, are not lost, and go on under the same generation."""
    for n in range(5):
        stage.plan(A, f"item-{n}", ordinal=n)
    stage.say(A, HELD)
    stage.plan(A, "item-5", ordinal=5)
    assert [stage.tick(10) for _ in range(3)] == [[], [], []]
    stage.say(A)
    sent = []
    while attempts := stage.tick():
        sent += attempts
        for attempt in attempts:
            stage.judge(judged(attempt))
    assert [each.item_key for each in sent] == [f"item-{n}" for n in range(6)]
    assert len(stage.settled(A)) == 6


@pytest.mark.parametrize("b_first", [True, False])
def test_running_batch_does_not_wait_for_a_held_one(stage: Stage, b_first: bool) -> None:
    """An item that a held and a running batch want is called for the running one, which pays."""
    stage.say(B)
    stage.plan(A)
    if b_first:
        stage.plan(B)
        stage.say(A, HELD)
    else:
        stage.say(A, HELD)
        stage.plan(B)
    attempts = stage.tick() or stage.tick()
    assert [each.batch_id for each in attempts] == [B]
    settled = stage.judge(judged(attempts[0]))
    assert {(each.batch_id, each.totals.attempts) for each in settled} == {(A, 0), (B, 1)}


def test_cancel_fences_waiters_not_attempts(stage: Stage) -> None:
    """E11: ready items are cancelled silently; an answer under way is kept, and settled for the next generation."""
    stage.plan(A, "called")
    (attempt,) = stage.tick()
    stage.plan(A, "ready", ordinal=1)
    stage.say(A, CANCELLED)
    assert stage.tick() == []
    assert stage.row("ready").state is ItemState.CANCELLED
    assert stage.judge(judged(attempt)) == []
    assert stage.row("called").state is ItemState.ACCEPTED
    stage.say(A, generation=2)
    stage.plan(A, "called", generation=2, reuse=Reuse.FINAL)
    stage.plan(A, "ready", generation=2, reuse=Reuse.FINAL, ordinal=1)
    (settled,) = stage.settled()
    assert (settled.item_key, settled.generation) == ("called", 2)
    assert [each.item_key for each in stage.tick()] == ["ready"]


@pytest.mark.parametrize("end", [ACCEPTED, verdict(VerdictKind.REJECTED), verdict(VerdictKind.REVIEW)])
def test_a_call_that_ended_after_the_cancel_is_charged_once_to_the_batch_that_caused_it(
    stage: Stage, end: Verdict
) -> None:
    """E10, E11, O1: another batch takes the outcome for nothing; the resumed one pays 100 nano-USD, and only once."""
    stage.plan(A)
    (attempt,) = stage.tick()
    stage.say(A, CANCELLED)
    assert stage.judge(judged(attempt, end)) == []
    stage.say(B)
    stage.plan(B, reuse=Reuse.FINAL)
    for generation in (2, 3):
        stage.say(A, generation=generation)
        stage.plan(A, generation=generation, reuse=Reuse.FINAL)
    charged = [
        (each.batch_id, each.reused, each.totals.attempts, each.totals.cost_nano_usd) for each in stage.settled()
    ]
    assert charged == [(B, True, 0, 0), (A, False, 1, 100), (A, True, 0, 0)]
    assert stage.row().totals == NO_TOTALS


def test_resumed_batch_pays_for_the_call_it_had_under_way(stage: Stage) -> None:
    """E11: a newer generation takes its older waiter's place."""
    stage.plan(A)
    (attempt,) = stage.tick()
    stage.say(A, CANCELLED)
    stage.tick()
    stage.say(A, generation=2)
    stage.plan(A, generation=2)
    (settled,) = stage.judge(judged(attempt))
    assert (settled.generation, settled.reused, settled.totals.attempts) == (2, False, 1)


def test_control_lost_sight_of(stage: Stage) -> None:
    """A view without an entry means wait: nothing is dispatched, nothing is cancelled."""
    stage.plan(A)
    words = dict(stage.view.rows)
    stage.view.rows.clear()
    assert stage.tick(1) == []
    stage.view.rows.update(words)
    assert len(stage.tick(1)) == 1
    assert replace(stage.row(), due_at_ms=None).state is ItemState.DISPATCHED
