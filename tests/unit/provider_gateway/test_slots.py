"""Slots of the thread that makes calls, and how the gateway hurries when they are about to run empty."""

from pathlib import Path

import pytest

from kit.partition import StagePartition
from nightmill.kernel.runtime.service import Decision
from nightmill.kernel.wire.messages import LeaseRequested
from nightmill.provider_gateway.caller import Call, Permit
from nightmill.provider_gateway.failures import Signal, failure
from nightmill.provider_gateway.render import Renderer
from nightmill.provider_gateway.slots import Slots
from unit.provider_gateway.makers import (
    NOW_MS,
    completion,
    make_access,
    make_documents,
    make_order,
    make_shard,
    response,
)
from unit.provider_gateway.stage import Stage, granted

LANE = "sim@0-0"
OPEN = Permit(slots=2, until_ms=100)


def make_calls(folder: Path, count: int = 4) -> list[Call]:
    documents = make_documents(folder / "blobs")
    shard, renderer = make_shard(documents, range(count)), Renderer(documents.blobs)
    calls = [renderer.call(make_order(shard, index), make_access(), LANE) for index in range(count)]
    return [call for call in calls if isinstance(call, Call)]


def sent(slots: Slots, now_ms: int = 0) -> list[Call]:
    """What is sent now when a disk takes no time."""
    slots.marked(slots.take(now_ms))
    return slots.let_go(now_ms)


def test_a_slot_is_taken_in_order_and_used_again(tmp_path: Path) -> None:
    """E4: two slots, four calls."""
    slots, calls = Slots(), make_calls(tmp_path)
    slots.add(calls)
    assert sent(slots) == []  # no permit yet
    assert slots.permit(LANE, OPEN)
    assert sent(slots) == calls[:2]
    assert (sent(slots), slots.in_flight(LANE)) == ([], 2)
    slots.free(calls[0], None)
    assert sent(slots) == [calls[2]]
    assert slots.withdraw(LANE) == [calls[3]]


def test_a_slot_that_comes_free_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    """Q5: of four slots' calls one more is marked than may be sent. It is unsent, and can be taken back."""
    slots, calls = Slots(), make_calls(tmp_path, 7)
    slots.add(calls)
    slots.permit(LANE, Permit(slots=4, until_ms=100))
    marked = slots.take(0)
    assert (marked, slots.take(0)) == (calls[:5], [])
    slots.marked(marked)
    assert slots.let_go(0) == calls[:4]
    assert slots.take(0) == []
    slots.free(calls[0], None)
    assert (slots.let_go(0), slots.let_go(0)) == ([calls[4]], [])
    slots.marked(slots.take(0))
    assert (slots.in_flight(LANE), slots.never_sent()) == (4, [calls[5]])
    assert slots.unsent(LANE) == {call.order.key for call in calls[5:]}
    assert slots.withdraw(LANE) == calls[5:]
    assert slots.never_sent() == []


def test_whoever_counts_after_lowering_the_slots_counts_all(tmp_path: Path) -> None:
    """E2: what is sent from then on fits the slots that the governor is told of."""
    slots, calls = Slots(), make_calls(tmp_path, 6)
    slots.add(calls)
    slots.permit(LANE, Permit(slots=4, until_ms=100))
    slots.marked(slots.take(0))
    slots.permit(LANE, Permit(slots=2, until_ms=100))
    assert (slots.let_go(0), slots.in_flight(LANE)) == (calls[:2], 2)


def test_a_call_is_unsent_until_it_is_let_go(tmp_path: Path) -> None:
    """E2: marked or not."""
    slots, calls = Slots(), make_calls(tmp_path)
    keys = [call.order.key for call in calls]
    slots.add(calls)
    slots.permit(LANE, OPEN)
    marked = slots.take(0)
    assert slots.unsent(LANE) == set(keys)
    slots.marked(marked[:1])
    assert slots.unsent(LANE) == set(keys)
    assert slots.let_go(99) == calls[:1]
    slots.marked(marked[1:])
    assert slots.let_go(100) == []
    assert slots.unsent(LANE) == set(keys[1:])
    assert slots.withdraw(LANE) == calls[1:]
    assert slots.unsent(LANE) == set()


def test_the_governor_is_told_of_calls_that_wait_for_a_slot_as_held(tmp_path: Path) -> None:
    """E2: two slots and four calls at the HTTP side; two of them have started."""
    stage = Stage(tmp_path, slots=2)
    stage.dispatch(make_shard(stage.documents, range(8)))
    for _ in range(3):
        stage.step()
        stage.commit()
    assert (len(stage.caller.begun), sum(len(calls) for calls in stage.caller.waiting.values())) == (2, 2)
    stage.granting = False
    stage.step(2_000)  # at half life the lease is asked for again
    (ask,) = [message for message in stage.part.sent_now if isinstance(message, LeaseRequested)][-1:]
    assert (ask.reserved.requests, ask.slots_in_use) == (2, 2)
    stage.close()


def test_a_permit_ends_by_itself(tmp_path: Path) -> None:
    """E4: what is marked by then waits for the next one, the first of its lane."""
    slots, calls = Slots(), make_calls(tmp_path)
    slots.add(calls)
    slots.permit(LANE, OPEN)
    slots.marked(slots.take(99))
    assert (slots.let_go(100), slots.take(100), slots.in_flight(LANE)) == ([], [], 0)
    assert slots.permit(LANE, Permit(slots=2, until_ms=200))
    assert slots.let_go(100) == calls[:2]
    assert slots.withdraw(LANE) == calls[2:]


@pytest.mark.parametrize(
    ("signal", "goes_on"),
    [
        (None, True),
        (Signal.EMPTY_CONTENT, True),
        (Signal.RATE_LIMITED, False),
        (Signal.KEY_REFUSED, False),
    ],
)
def test_a_failure_that_concerns_all_calls_closes_the_lane(
    tmp_path: Path, signal: Signal | None, goes_on: bool
) -> None:
    """E9: until the poll thread gives the next permit."""
    slots, calls = Slots(), make_calls(tmp_path)
    slots.add(calls)
    slots.permit(LANE, OPEN)
    (first, _), seen = sent(slots), None if signal is None else failure(signal)
    slots.free(first, seen)
    assert bool(sent(slots)) is goes_on
    slots.heard(first, seen)
    assert slots.permit(LANE, OPEN) is not goes_on  # the same permit changes nothing in a lane that is open


def test_a_permit_from_before_the_failure_does_not_open_the_lane(tmp_path: Path) -> None:
    """E9: the poll thread was deciding while the call failed; another burst of calls would fail, too."""
    slots, calls, seen = Slots(), make_calls(tmp_path), failure(Signal.KEY_REFUSED)
    slots.add(calls)
    slots.permit(LANE, OPEN)
    (first, _) = sent(slots)
    slots.free(first, seen)
    slots.permit(LANE, Permit(slots=2, until_ms=200))
    assert sent(slots) == []
    slots.heard(first, seen)
    assert sent(slots) == []
    assert slots.permit(LANE, Permit(slots=2, until_ms=200))
    assert sent(slots) == [calls[2]]


def test_a_commit_does_not_wait_while_slots_run_empty(tmp_path: Path) -> None:
    """Q5: calls are in flight, so the loop polls shortly; but what is uncommitted would fill the other slots."""
    stage = Stage(tmp_path)
    stage.dispatch(make_shard(stage.documents, range(2)))
    stage.step()
    stage.step()
    assert len(stage.caller.begun) == 2  # of four slots
    assert stage.gateway.busy()
    decision = stage.gateway.on_shard_dispatched(make_shard(stage.documents, range(2, 20), shard_id="s2"), stage.part)
    assert isinstance(decision, Decision)
    stage.part.apply(decision)
    assert not stage.gateway.busy()
    stage.commit()
    assert stage.gateway.busy()
    stage.step()
    assert len(stage.caller.begun) == 4
    stage.caller.answer(response(completion()), 1)
    stage.step()  # an answer waits for the commit, and there is enough to do until its time comes
    assert stage.gateway.busy()
    stage.close()


def test_slots_that_one_partition_gives_back_are_asked_for_by_the_other(tmp_path: Path) -> None:
    """Q5: at once, and not when its own next ask is due, a second after the last."""
    stage = Stage(tmp_path, slots=2)
    other = StagePartition(stage.gateway, number=1)
    stage.gateway.on_open(other)
    accepted = stage.gateway.on_shard_dispatched(make_shard(stage.documents, [0], shard_id="s0"), other)
    assert isinstance(accepted, Decision)
    stage.gateway.start(accepted.effects)
    asked_ms: dict[int, list[int]] = {0: [], 1: []}
    for now_ms in range(NOW_MS, NOW_MS + 1_000, 20):
        if now_ms == NOW_MS + 400:
            stage.dispatch(make_shard(stage.documents, range(1, 20)))
        for part in (stage.part, other):
            part.now_ms = now_ms
            for ask in part.apply(stage.gateway.on_tick(part)).send_now:
                assert isinstance(ask, LeaseRequested)
                asked_ms[part.number].append(now_ms - NOW_MS)
                stage.gateway.on_lease_granted(granted(ask, stage.slots, now_ms), part)
        if now_ms < NOW_MS + 100:
            stage.caller.answer(response(completion()))
    stage.close()
    given_back_ms = asked_ms[1][-1]
    assert asked_ms[0] == [400, given_back_ms + 20]
