"""Shards that leave this instance with an open attempt and come back: what is known of the attempt must not be lost."""

from collections import deque

from kit.partition import StagePartition
from nightmill.kernel.domain.lifecycle import AttemptState
from nightmill.provider_gateway.caller import CLOSED
from unit.provider_gateway.makers import ANSWER, make_shard
from unit.provider_gateway.stage import Stage


def test_an_attempt_that_was_published_late_is_not_made_again(stage: Stage) -> None:
    """E2: its answer has left the outbox, but not that it was sent."""
    stage.dispatch(make_shard(stage.documents, [0]))
    stage.step()
    stage.step()
    stage.caller.answer(ANSWER)
    stage.gateway.on_close(0)
    other = StagePartition(stage.gateway, number=1, now_ms=stage.now_ms)
    stage.gateway.on_open(other)
    for wait_ms in (20, 20, 30_000):
        other.now_ms += wait_ms
        decision = other.apply(stage.gateway.on_tick(other))
        stage.gateway.start(decision.effects)
    assert [(a.state, a.late) for a in other.sent] == [(AttemptState.ANSWERED, True)]
    stage.now_ms = stage.part.now_ms = other.now_ms
    stage.gateway.on_open(stage.part)
    assert [(a.state, a.cost_nano_usd) for a in stage.run(ANSWER)] == [(AttemptState.UNKNOWN, None)]


def test_a_call_that_comes_back_unsent_after_its_partition_did_is_made(stage: Stage) -> None:
    """E1: its permit ended while its mark was written, after its partition had left; nobody else waits for it."""
    stage.dispatch(make_shard(stage.documents, [0]))
    stage.step()
    stage.step()
    stage.gateway.on_close(0)
    (call,), stage.caller.begun = stage.caller.begun, []
    stage.gateway.on_open(stage.part)
    stage.caller.permits[call.lane] = CLOSED
    stage.caller.waiting[call.lane] = deque([call])
    assert [(a.state, a.ordinal) for a in stage.run(ANSWER)] == [(AttemptState.ANSWERED, 1)]
