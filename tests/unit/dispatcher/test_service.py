"""The dispatcher's handlers and ticks over one partition."""

from pathlib import Path

import pytest

from nightmill.dispatcher.account import NO_TOTALS
from nightmill.kernel.domain.failures import Billed, FailureClass
from nightmill.kernel.domain.lifecycle import AttemptState, ControlState, ItemOutcome, ItemState, Reuse, VerdictKind
from nightmill.kernel.domain.pipeline import Sensitivity
from nightmill.kernel.domain.settings import PoolLimits
from nightmill.kernel.runtime.service import NOTHING, ContractViolation, Wait
from nightmill.kernel.store.blocks import write_block
from nightmill.kernel.wire.messages import ItemStateRow, Settlement, Verdict
from nightmill.kernel.wire.values import replace
from unit.dispatcher.stage import (
    ACCEPTED,
    REPAIRABLE,
    A,
    B,
    C,
    Stage,
    config,
    failed,
    failure,
    judged,
    pipeline,
    pool,
    verdict,
)

HELD, CANCELLED = ControlState.HELD, ControlState.CANCELLED
DAY_S = 24 * 3600


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


@pytest.mark.parametrize(("state", "generation"), [(CANCELLED, 1), (ControlState.RUNNING, 2)])
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


def test_retry_in_time(stage: Stage) -> None:
    """E8, E9: waits, a new ordinal, the same key; one settlement with both calls on it."""
    stage.plan(A)
    (first,) = stage.tick()
    assert stage.judge(failed(first, failure(billed=Billed.UNKNOWN))) == []
    due_ms = stage.row().due_at_ms
    assert due_ms is not None
    assert 500 <= due_ms - stage.part.now_ms < 1_000
    assert stage.tick(0.4) == []
    stage.tick(0.6)
    (second,) = stage.tick()
    assert (second.item_key, second.ordinal) == (first.item_key, 2)
    (settled,) = stage.judge(judged(second))
    totals = settled.totals
    assert (totals.attempts, totals.unknown_attempts, totals.retries, totals.cost_nano_usd) == (2, 1, 1, 100)


def test_unknown_then_late_answer(stage: Stage) -> None:
    """E11: the answer of a given-up call ends the item; the call made meanwhile ends nothing."""
    stage.plan(A)
    (first,) = stage.tick()
    stage.judge(failed(first, None, AttemptState.UNKNOWN))
    stage.tick(1)
    (second,) = stage.tick()
    (settled,) = stage.judge(judged(first, late=True))
    assert (settled.attempt_id, settled.totals.attempts, settled.totals.unknown_attempts) == ("item-one-1", 1, 0)
    assert stage.judge(judged(second)) == []
    stage.plan(A, "other")
    assert len(stage.tick()) == 1  # the room of the call that ended nothing is free again


def test_not_sent_burns_nothing(stage: Stage) -> None:
    stage.plan(A)
    for ordinal in range(1, 9):
        (attempt,) = stage.tick()
        assert attempt.ordinal == ordinal
        stage.judge(failed(attempt, None, AttemptState.NOT_SENT))
    assert (stage.row().state, stage.row().tries, stage.row().totals.attempts) == (ItemState.READY, 0, 0)


def test_one_repair_then_review(stage: Stage) -> None:
    """Q2: the repair call carries the answer and its problem; a second invalid answer is parked."""
    stage.plan(A)
    (first,) = stage.tick()
    stage.judge(judged(first, REPAIRABLE))
    (second,) = stage.tick()
    assert second.repair is not None
    assert (second.repair.output, second.repair.problem) == ('{"label":"x"}', "rule schema, field label, value x")
    assert second.input_tokens > first.input_tokens
    (settled,) = stage.judge(judged(second, REPAIRABLE))
    assert (settled.outcome, settled.revision, settled.verdict) == (ItemOutcome.IN_REVIEW, 1, REPAIRABLE)
    assert (settled.totals.attempts, settled.totals.repairs, settled.totals.retries) == (2, 1, 0)


def test_repair_of_a_long_answer_reads_its_blob(stage: Stage) -> None:
    """The repair shows the first 8 KiB; an answer that is gone is a broken record, which ends the item."""
    stage.plan(A)
    (first,) = stage.tick()
    text = "é" * 10_000
    with pytest.raises(ContractViolation, match="answer"):
        stage.service.on_attempt_judged(judged(first, REPAIRABLE, output=None, output_digest="0" * 64), stage.part)
    stage.judge(judged(first, REPAIRABLE, output=None, output_digest=stage.blobs.put(text.encode())))
    (second,) = stage.tick()
    assert second.repair is not None
    assert second.repair.output == text[:4096]
    assert stage.shards()[-1].pool == "small"


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
    stage.say(urgent, CANCELLED)
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


def test_quarantined_judgement_ends_the_item(stage: Stage) -> None:
    """E8 internal: nobody waits for a record that cannot be read; what it cost is unknown."""
    stage.plan(A)
    stage.tick()
    decision = stage.service.on_quarantined("attempt-judged", {"item": "item-one"}, "broken", stage.part)
    stage.part.apply(decision)
    (settled,) = stage.settled()
    assert (settled.outcome, settled.totals.unknown_attempts) == (ItemOutcome.DEAD_LETTER, 1)
    assert stage.service.on_quarantined("attempt-judged", {"item": "item-one"}, "broken", stage.part) is NOTHING
    assert stage.service.on_quarantined("attempt-judged", {}, "broken", stage.part) is NOTHING


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


def test_idle_tick_reads_nothing(stage: Stage) -> None:
    """A tick with nothing due does not look at rows: the table may be gone."""
    stage.plan(A)
    (attempt,) = stage.tick()
    stage.judge(judged(attempt))
    stage.plan(A, "held")
    stage.say(A, HELD)
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


def test_control_lost_sight_of(stage: Stage) -> None:
    """A view without an entry means wait: nothing is dispatched, nothing is cancelled."""
    stage.plan(A)
    words = dict(stage.view.rows)
    stage.view.rows.clear()
    assert stage.tick(1) == []
    stage.view.rows.update(words)
    assert len(stage.tick(1)) == 1
    assert replace(stage.row(), due_at_ms=None).state is ItemState.DISPATCHED


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


def test_late_answer_ends_a_review(stage: Stage) -> None:
    """E11, Q2: revision 2 replaces the review; it is charged what is new, the answer's cost, and no call again."""
    stage.plan(A)
    (first,) = stage.tick()
    stage.judge(failed(first, None, AttemptState.UNKNOWN))
    stage.tick(1)
    (second,) = stage.tick()
    (parked,) = stage.judge(judged(second, verdict(VerdictKind.REVIEW)))
    assert (parked.outcome, parked.revision, parked.totals.attempts) == (ItemOutcome.IN_REVIEW, 1, 2)
    (ended,) = stage.judge(judged(first, late=True))
    assert (ended.outcome, ended.revision) == (ItemOutcome.ACCEPTED, 2)
    assert (ended.totals.attempts, ended.totals.cost_nano_usd) == (0, 100)
    assert stage.row().waiters == ()


def test_review_is_told_once(stage: Stage) -> None:
    """Q2: parked again for another batch's sake, the first is not told again what it knows."""
    stage.say(B)
    for batch in (A, B):
        stage.part.now_ms += 1
        stage.plan(batch, reuse=Reuse.NONE)
        (attempt,) = stage.tick()
        stage.judge(judged(attempt, verdict(VerdictKind.REVIEW)))
    assert [(each.batch_id, each.revision) for each in stage.settled()] == [(A, 1), (B, 1)]


def test_one_tick_moves_a_row_once(stage: Stage) -> None:
    """An item dispatched for its second batch is not put back by the walk over shared items in the same tick."""
    stage.say(B)
    stage.say(C)
    stage.plan(A)
    stage.plan(B)
    stage.plan(C, "held")
    stage.say(C, HELD)
    stage.say(A, generation=2)
    assert [each.batch_id for each in stage.tick()] == [B]
    assert stage.row().state is ItemState.DISPATCHED
