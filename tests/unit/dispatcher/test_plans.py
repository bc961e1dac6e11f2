"""A planned item on its way: joined with its equals, answered from what is known, kept, or quarantined."""

import pytest

from nightmill.kernel.domain.failures import Billed, FailureClass
from nightmill.kernel.domain.lifecycle import ControlState, ItemOutcome, ItemState, Reuse, VerdictKind
from nightmill.kernel.runtime.service import NOTHING, Wait
from nightmill.kernel.store.blocks import write_block
from nightmill.kernel.wire.messages import ItemStateRow, Settlement
from unit.dispatcher.stage import DAY_S, REPAIRABLE, A, B, Stage, failed, failure, judged, verdict


def test_one_item_straight_through(stage: Stage) -> None:
    """M3: planned, dispatched, judged, settled once with what it cost."""
    stage.plan(A)
    (attempt,) = stage.tick()
    assert (attempt.ordinal, attempt.batch_id, attempt.generation) == (1, A, 1)
    assert stage.shards()[0].pool == "small"
    (settled,) = stage.judge(judged(attempt))
    assert (settled.outcome, settled.revision, settled.reused) == (ItemOutcome.ACCEPTED, 1, False)
    assert (settled.totals.attempts, settled.totals.cost_nano_usd) == (1, 100)
    assert settled.attempt_id == f"{attempt.item_key}-1"
    assert stage.row().state is ItemState.ACCEPTED
    assert stage.row().settled == (Settlement(batch_id=A, generation=1, revision=1),)
    assert stage.tick(60) == []


def test_repeats_change_nothing(stage: Stage) -> None:
    """M3, E1: every event twice."""
    stage.plan(A)
    assert stage.plan(A) is NOTHING
    (attempt,) = stage.tick()
    assert stage.plan(A) is NOTHING
    stage.judge(judged(attempt))
    assert stage.judge(judged(attempt)) == []
    assert stage.plan(A) is NOTHING
    assert len(stage.settled()) == 1


def test_plan_waits_for_the_publishers_word(stage: Stage) -> None:
    assert isinstance(stage.plan(B), Wait)
    stage.say(B)
    assert isinstance(stage.plan(B, generation=2), Wait)
    assert not isinstance(stage.plan(B), Wait)


@pytest.mark.parametrize(("state", "generation"), [(ControlState.CANCELLED, 1), (ControlState.RUNNING, 2)])
def test_stale_plans_are_ignored(stage: Stage, state: ControlState, generation: int) -> None:
    """E11."""
    stage.say(A, state, generation)
    assert stage.plan(A) is NOTHING


def test_second_batch_waits_for_the_same_call(stage: Stage) -> None:
    """M3: the waiter that caused the call pays, the other is told that it was reused."""
    stage.say(B)
    stage.plan(A)
    (attempt,) = stage.tick()
    stage.plan(B, ordinal=7)
    assert stage.tick(1) == []
    first, second = stage.judge(judged(attempt))
    assert (first.batch_id, first.reused, first.totals.attempts) == (A, False, 1)
    assert (second.batch_id, second.ordinal, second.reused, second.totals.attempts) == (B, 7, True, 0)


@pytest.mark.parametrize(
    ("end", "reuse", "at_once"),
    [
        (VerdictKind.ACCEPTED, Reuse.ACCEPTED, True),
        (VerdictKind.ACCEPTED, Reuse.FINAL, True),
        (VerdictKind.ACCEPTED, Reuse.NONE, False),
        (VerdictKind.REJECTED, Reuse.ACCEPTED, False),
        (VerdictKind.REJECTED, Reuse.FINAL, True),
        (VerdictKind.REVIEW, Reuse.ACCEPTED, True),
        (VerdictKind.REVIEW, Reuse.FINAL, True),
        (VerdictKind.REVIEW, Reuse.NONE, False),
        (None, Reuse.ACCEPTED, False),  # a dead letter is tried again
        (None, Reuse.FINAL, False),
    ],
)
def test_reuse(stage: Stage, end: VerdictKind | None, reuse: Reuse, at_once: bool) -> None:
    """M3: an earlier outcome is settled at once where the plan's reuse allows it, and costs nothing."""
    stage.say(B)
    stage.plan(A)
    (attempt,) = stage.tick()
    bad = failed(attempt, failure(FailureClass.BAD_INPUT, billed=Billed.YES))
    stage.judge(bad if end is None else judged(attempt, verdict(end)))
    stage.part.now_ms += 1
    stage.plan(B, reuse=reuse)
    assert [(each.reused, each.totals.attempts) for each in stage.settled(B)] == [(True, 0)] * at_once
    again = stage.tick()
    assert [each.ordinal for each in again] == ([] if at_once else [2])
    if again:
        # the answer of before does not end the new request
        assert stage.judge(judged(attempt)) == []
        settled = {each.batch_id: each for each in stage.judge(judged(again[0]))}
        assert settled[B].totals.attempts == 1
        # whoever was told that the item is in review is told of the outcome, and pays nothing twice
        told_twice = end is VerdictKind.REVIEW
        assert (A in settled) is told_twice
        assert not told_twice or (settled[A].revision, settled[A].totals.attempts) == (2, 0)


def test_ended_rows_are_kept_seven_days(stage: Stage) -> None:
    """M3: an equal plan is answered from the row for seven days."""
    stage.plan(A)
    (attempt,) = stage.tick()
    stage.judge(judged(attempt))
    stage.tick(7 * DAY_S - 1)
    assert stage.row().state is ItemState.ACCEPTED
    stage.tick(62)
    assert stage.part.table(ItemStateRow).get("item-one") is None
    assert stage.judge(judged(attempt)) == []


@pytest.mark.parametrize("known", [False, True])
def test_quarantined_plan_is_settled_dead(stage: Stage, known: bool) -> None:
    """The plan is found again through the manifest; other batches that want the item are not touched."""
    block = write_block(stage.blobs, [{"id": f"row {n}", "body": "x"} for n in range(3)])
    blocks = [{"digest": block.digest, "rows": 3, "bytes": block.bytes, "first_ordinal": 10}]
    stage.say(B, manifest_digest=stage.blobs.put_json({"blocks": blocks}))
    if known:
        stage.plan(A)
    headers = {"batch": B, "generation": "1", "item": "item-one", "ordinal": "12"}
    stage.part.apply(stage.service.on_quarantined("item-planned", headers, "broken", stage.part))
    (settled,) = stage.settled()
    assert (settled.batch_id, settled.ordinal, settled.source_id) == (B, 12, "row 2")
    assert (settled.outcome, settled.row.row, settled.reused) == (ItemOutcome.DEAD_LETTER, 2, False)
    assert stage.service.on_quarantined("item-planned", headers, "broken", stage.part) is NOTHING
    assert [each.batch_id for each in stage.tick()] == [A] * known


@pytest.mark.parametrize(
    "headers",
    [{}, {"batch": A}, {"batch": A, "generation": "1", "item": "k", "ordinal": "x"}, {"batch": "unknown.batch.x.1"}],
)
def test_quarantined_plan_of_nobody(stage: Stage, headers: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    assert stage.service.on_quarantined("item-planned", headers, "broken", stage.part) is NOTHING
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_urgent_join_takes_the_lead(stage: Stage) -> None:
    stage.say(B, priority=9)
    stage.plan(A)
    stage.plan(B, priority=9, deadline_at_ms=5)
    row = stage.row()
    assert [waiter.batch_id for waiter in row.waiters] == [B, A]
    assert (row.priority, row.deadline_at_ms) == (9, 5)
    assert [each.batch_id for each in stage.tick()] == [B]


def test_attempts_of_a_forgotten_row_are_strangers(stage: Stage) -> None:
    """Ordinals begin again when a row has expired; the time of minting tells the attempts apart."""
    stage.plan(A)
    (old,) = stage.tick()
    stage.judge(judged(old))
    stage.tick(8 * DAY_S)
    stage.say(A, generation=2)
    stage.plan(A, generation=2)
    (new,) = stage.tick()
    assert new.ordinal == old.ordinal
    for stranger in (judged(old, REPAIRABLE), judged(old)):
        assert stage.judge(stranger) == []
        assert stage.row().state is ItemState.DISPATCHED
    assert len(stage.judge(judged(new))) == 1
