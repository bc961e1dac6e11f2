"""Crashes and moves: what was sent is never sent again under its id, and what was answered is told."""

import pytest

from nightmill.kernel.domain.lifecycle import AttemptState, ShardState
from nightmill.kernel.wire.messages import ShardStateRow
from unit.provider_gateway.makers import ANSWER, NOW_MS, make_shard
from unit.provider_gateway.stage import Stage

# -- crashes and moves


def test_an_unmarked_attempt_is_sent_after_a_crash_under_the_same_id(stage: Stage) -> None:
    """M4: not sent is certain, so no new attempt is needed."""
    stage.dispatch(make_shard(stage.documents, range(3)))
    stage.crash()
    sent = stage.run(ANSWER)
    assert [(a.state, a.ordinal) for a in sent] == [(AttemptState.ANSWERED, 1)] * 3


def test_a_marked_attempt_is_unknown_after_a_crash(stage: Stage) -> None:
    """M4, E2: it may have been made, so it is not made again under its id, and its cost is not known."""
    stage.dispatch(make_shard(stage.documents, range(6)))
    stage.step()
    stage.step()
    assert len(stage.caller.begun) == 4
    stage.crash()
    sent = stage.run(ANSWER)
    assert sorted(a.source_id for a in sent if a.state is AttemptState.UNKNOWN) == ["0", "1", "2", "3"]
    assert sorted(a.source_id for a in sent if a.state is AttemptState.ANSWERED) == ["4", "5"]
    assert {a.cost_nano_usd for a in sent if a.state is AttemptState.UNKNOWN} == {None}
    assert stage.outbox.marks() == {}


@pytest.mark.parametrize("published", [False, True])
def test_an_answer_in_the_outbox_is_published_after_a_crash(stage: Stage, published: bool) -> None:
    """E2: it landed, so it is not paid for again, whether or not its uncommitted publication was under way."""
    stage.dispatch(make_shard(stage.documents, [0]))
    stage.step()
    stage.step()
    stage.caller.answer(ANSWER)
    if published:
        stage.step()
    stage.crash()
    sent = stage.run(ANSWER)
    assert [(a.state, a.late) for a in sent] == [(AttemptState.ANSWERED, False)]
    assert stage.row().state is ShardState.DONE


def test_an_answer_that_was_committed_is_not_published_again(stage: Stage) -> None:
    """E1: stopped between the commit and forgetting."""
    stage.dispatch(make_shard(stage.documents, range(2)))
    stage.step()
    stage.step()
    stage.caller.answer(ANSWER, 1)
    stage.step()
    stage.part.apply(stage.gateway.on_flush(stage.part))
    stage.rows = dict(stage.part.table(ShardStateRow).rows)
    assert len(stage.outbox.answers()) == 1
    stage.crash()
    assert stage.outbox.answers() == []
    sent = stage.run(ANSWER)
    assert [(a.source_id, a.state) for a in sent] == [("1", AttemptState.UNKNOWN)]


def test_an_aborted_transaction_loses_no_answer_and_repeats_no_call(stage: Stage) -> None:
    """E2: the loop goes back to the last commit in the same process."""
    stage.dispatch(make_shard(stage.documents, range(6)))
    stage.step()
    stage.step()
    stage.caller.answer(ANSWER, 2)
    stage.step()
    assert len(stage.sent()) == 2
    stage.part.sent.clear()
    stage.part.effects.clear()
    stage.gateway.on_close(0)
    stage.gateway.on_open(stage.part)
    sent = stage.run(ANSWER, steps=80)
    assert sorted(a.source_id for a in sent) == ["0", "1", "2", "3", "4", "5"]
    assert {(a.state, a.late) for a in sent} == {(AttemptState.ANSWERED, False)}


def test_attempts_of_another_instance_are_unknown_when_its_calls_must_be_over(stage: Stage) -> None:
    """E2: its marks are elsewhere; 30 s of lease and guard and 5 s of call deadline are waited."""
    shard = make_shard(stage.documents, [0])
    stage.rows["s1"] = ShardStateRow(
        shard_id="s1", state=ShardState.RUNNING, shard=shard, answered=(), owner="7", accepted_at_ms=NOW_MS
    )
    stage.crash()
    stage.step(34_000)
    assert stage.sent() == []
    stage.step(2_000)
    stage.commit()
    assert [(a.state, a.cost_nano_usd) for a in stage.sent()] == [(AttemptState.UNKNOWN, None)]
    assert (stage.row().state, stage.row().owner) == (ShardState.DONE, "0")
    assert stage.caller.begun == []


def test_an_answer_whose_shard_moved_away_is_published_late(stage: Stage) -> None:
    """M4: paid for, so it is told; flagged, since its new owner has given it up."""
    stage.dispatch(make_shard(stage.documents, [0]))
    stage.step()
    stage.step()
    stage.caller.answer(ANSWER)
    stage.rows["s1"] = ShardStateRow(
        shard_id="s1", state=ShardState.DONE, answered=(0,), owner="7", accepted_at_ms=NOW_MS, ended_at_ms=NOW_MS
    )
    stage.crash()
    stage.step()
    assert stage.sent() == []
    stage.step(30_000)
    stage.commit()
    assert [(a.state, a.late) for a in stage.sent()] == [(AttemptState.ANSWERED, True)]
    assert stage.outbox.answers() == []


def test_a_closed_partitions_queue_is_left_to_its_next_owner(stage: Stage) -> None:
    stage.dispatch(make_shard(stage.documents, range(12)))
    stage.step()
    stage.step()
    stage.gateway.on_close(0)
    assert stage.caller.waiting == {}
    assert len(stage.caller.begun) == 4
    assert stage.gateway.busy()
