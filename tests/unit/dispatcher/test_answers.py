"""What becomes of an answer: retried, repaired, reviewed, late, or a record that nobody can read."""

import pytest

from nightmill.kernel.domain.failures import Billed
from nightmill.kernel.domain.lifecycle import AttemptState, ItemOutcome, ItemState, Reuse, VerdictKind
from nightmill.kernel.runtime.service import NOTHING, ContractViolation
from unit.dispatcher.stage import REPAIRABLE, A, B, Stage, failed, failure, judged, verdict


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
