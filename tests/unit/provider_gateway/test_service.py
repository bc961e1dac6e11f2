"""The gateway's handlers and ticks with a scripted caller: what is called, when, and how each attempt ends."""

import dataclasses
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from nightmill.kernel.domain.failures import FailureClass
from nightmill.kernel.domain.lifecycle import AttemptState, ControlState, ShardState
from nightmill.kernel.runtime.service import NOTHING, Wait
from nightmill.kernel.wire.messages import Repair, ShardStateRow
from nightmill.kernel.wire.values import replace
from nightmill.provider_gateway.failures import Signal
from unit.provider_gateway.makers import (
    BATCH,
    NOW_MS,
    POOL,
    completion,
    make_access,
    make_control,
    make_shard,
    response,
)
from unit.provider_gateway.stage import Stage

ANSWER = response(completion())
LIMITED = response({"error": {"code": "rate_limit_exceeded", "type": "requests"}}, 429, retry_after="3")
REFUSED_KEY = response({"error": {"code": "invalid_api_key"}}, 401)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.close()


def row_of(stage: Stage, shard_id: str = "s1") -> ShardStateRow:
    row: ShardStateRow = stage.part.table(ShardStateRow).get(shard_id)
    return row


def test_a_shard_is_answered_once_and_done(stage: Stage) -> None:
    """E1, E2: one call an attempt, under its own id; the row is DONE with the last answer."""
    shard = make_shard(stage.documents, range(10))
    stage.dispatch(shard)
    sent = stage.run(ANSWER)
    assert sorted(a.source_id for a in sent) == sorted(str(i) for i in range(10))
    assert {a.state for a in sent} == {AttemptState.ANSWERED}
    row = row_of(stage)
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
    assert row_of(stage).state is ShardState.DONE


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


def test_a_rate_limit_pauses_the_pool_until_the_providers_time(stage: Stage) -> None:
    """E8, E9: the item comes back untouched; nobody calls before the time; then one goes first."""
    stage.dispatch(make_shard(stage.documents, range(12)))
    stage.step()
    stage.step()
    stage.caller.answer(LIMITED, 4)
    stage.step()
    stage.commit()
    failures = [a.failure for a in stage.sent()]
    assert len(failures) == 4
    assert {(f.failure_class, f.uses_retry_budget, f.retry_after_ms) for f in failures if f} == {
        (FailureClass.CAPACITY, False, 3_000)
    }
    for _ in range(140):
        stage.step()
    assert stage.caller.begun == []
    for _ in range(40):
        stage.step()
    assert len(stage.caller.begun) == 1


def test_an_account_failure_stops_the_pool_and_says_so(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """E8, O1: the pool stops for 30 s, items stay queued, people are told once."""
    stage.dispatch(make_shard(stage.documents, range(6)))
    stage.step()
    stage.step()
    with caplog.at_level(logging.ERROR):
        stage.caller.answer(REFUSED_KEY, 4)
        stage.step()
    assert {a.failure.failure_class for a in stage.sent() if a.failure} == {FailureClass.ACCOUNT}
    assert [record.__dict__["action"] for record in caplog.records] == ["pool_stopped"]
    for _ in range(10):
        stage.step(1_000)
    assert stage.caller.begun == []


def test_a_failed_calls_cost_is_zero_only_if_it_was_surely_not_billed(stage: Stage) -> None:
    """P4: not known is never 0."""
    stage.dispatch(make_shard(stage.documents, [0], shard_id="a"))
    stage.dispatch(make_shard(stage.documents, [1], shard_id="b"))
    stage.step()
    stage.step()
    stage.caller.answer(response({}, 400), 1)
    stage.caller.answer(response({}, 500), 1)
    stage.step()
    assert [(a.source_id, a.cost_nano_usd) for a in stage.sent()] == [("0", 0), ("1", None)]


def test_a_model_without_a_price_has_no_known_cost(tmp_path: Path) -> None:
    """P4."""
    stage = Stage(tmp_path, access=make_access(price=None))
    stage.dispatch(make_shard(stage.documents, [0]))
    (answered,) = stage.run(ANSWER)
    assert (answered.cost_nano_usd, answered.reserved_nano_usd) == (None, 0)
    stage.close()


def test_an_answer_without_usage_has_no_known_cost(stage: Stage) -> None:
    """P4."""
    stage.dispatch(make_shard(stage.documents, [0]))
    (answered,) = stage.run(response(completion() | {"usage": None}))
    assert (answered.state, answered.usage, answered.cost_nano_usd) == (AttemptState.ANSWERED, None, None)


def test_a_row_that_can_not_be_rendered_fails_alone(tmp_path: Path) -> None:
    """Q1: bad input is that row's failure, without a call."""
    stage = Stage(tmp_path, rows=[{"id": "0", "text": "fine"}, {"id": "1"}])
    stage.dispatch(make_shard(stage.documents, [0, 1]))
    sent = {a.source_id: a for a in stage.run(ANSWER)}
    assert sent["0"].state is AttemptState.ANSWERED
    failure = sent["1"].failure
    assert failure is not None
    assert (failure.failure_class, failure.signal) == (FailureClass.BAD_INPUT, Signal.PROMPT_UNRENDERABLE)
    assert sent["1"].cost_nano_usd == 0
    stage.close()


@pytest.mark.parametrize("row", [0, 99])
def test_a_document_that_is_gone_is_an_internal_failure(stage: Stage, row: int) -> None:
    shard = make_shard(stage.documents, [row])
    if row == 0:
        shard = replace(shard, pipeline_digest="0" * 64)
    stage.dispatch(shard)
    (answered,) = stage.run(ANSWER)
    assert answered.failure is not None
    assert answered.failure.failure_class is FailureClass.INTERNAL


def test_a_repair_shows_the_model_its_answer_and_the_problem(stage: Stage) -> None:
    """Q2."""
    repair = Repair(output='{"label": "c"}', problem="label: 'c' is not one of a, b")
    stage.dispatch(make_shard(stage.documents, [0], repair=repair))
    stage.step()
    stage.step()
    body = stage.caller.begun[0].request.body.decode()
    assert body.index("ticket 0") < body.index('{\\"label\\": \\"c\\"}') < body.index("is not one of a, b")
    stage.caller.answer(ANSWER)
    stage.step()
    assert stage.sent()[0].is_repair


@pytest.mark.parametrize(("length", "inline"), [(8 << 10, True), ((8 << 10) + 1, False)])
def test_a_long_output_of_an_earlier_life_goes_to_a_blob(stage: Stage, length: int, inline: bool) -> None:
    """Outputs over 8 KiB travel by reference."""
    stage.dispatch(make_shard(stage.documents, [0]))
    stage.step()
    stage.step()
    stage.caller.answer(response(completion("x" * length)))
    stage.crash()
    stage.step()
    (answered,) = stage.sent()
    if inline:
        assert (answered.output, answered.output_digest) == ("x" * length, None)
    else:
        assert answered.output is None
        assert stage.documents.blobs.get(answered.output_digest or "") == b"x" * length


@pytest.mark.parametrize(
    ("unusable", "pool"), [("environment variable KEY is not set", POOL), (None, "another")], ids=["key", "unknown"]
)
def test_attempts_of_an_unusable_pool_stay_queued(tmp_path: Path, unusable: str | None, pool: str) -> None:
    """E8: the account's failure, with the remedy in its message, and no call."""
    stage = Stage(tmp_path, access=dataclasses.replace(make_access(), unusable=unusable))
    stage.dispatch(make_shard(stage.documents, [0], pool=pool))
    (answered,) = stage.run(ANSWER)
    assert answered.failure is not None
    assert answered.failure.failure_class is FailureClass.ACCOUNT
    assert (unusable or "pools.yaml") in answered.failure.message
    stage.close()


def test_the_third_web_page_stops_the_pool(tmp_path: Path) -> None:
    """Row 28."""
    stage = Stage(tmp_path, slots=1)
    stage.dispatch(make_shard(stage.documents, range(5)))
    sent = stage.run(response(b"<html>log in</html>"), steps=5)
    signals = [a.failure.signal for a in sent if a.failure]
    # the fourth was under way when the third was seen
    assert signals == [Signal.HTML_BODY, Signal.HTML_BODY, Signal.HTML_PROXY, Signal.HTML_PROXY]
    stage.close()


def test_another_model_than_asked_for_is_named_once(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Some servers take any model's name: the answer is kept under the pool's model, which has the price."""
    stage.dispatch(make_shard(stage.documents, range(3)))
    with caplog.at_level(logging.WARNING):
        sent = stage.run(response(completion() | {"model": "tiny"}))
    assert {a.model for a in sent} == {"small"}
    assert [record.__dict__["served"] for record in caplog.records] == ["tiny"]


def test_done_rows_go_when_no_repeat_can_come(stage: Stage) -> None:
    """They outlive the seven days of shard-dispatched."""
    stage.dispatch(make_shard(stage.documents, [0]))
    stage.run(ANSWER)
    stage.step(7 * 86_400_000)
    assert row_of(stage).state is ShardState.DONE
    stage.step(86_400_000)
    assert stage.part.table(ShardStateRow).get("s1") is None


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
    assert row_of(stage).state is ShardState.DONE


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
    assert (row_of(stage).state, row_of(stage).owner) == (ShardState.DONE, "0")
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
