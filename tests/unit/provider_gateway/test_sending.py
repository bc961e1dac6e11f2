"""When a call is sent, and what is on record then: marks, slots, permits, the stop of a process."""

import json
import time
from pathlib import Path

import pytest

from kit.simulator import Simulator
from nightmill.kernel.domain.lifecycle import AttemptState
from nightmill.kernel.runtime.service import Unavailable
from nightmill.provider_gateway.caller import Permit
from nightmill.provider_gateway.http import HttpCaller
from unit.provider_gateway.caller_desk import LANE, Desk, failure_of
from unit.provider_gateway.makers import WHOLE, completion
from unit.provider_gateway.raw_provider import RawProvider, http_response


def test_an_answer_is_in_the_outbox_before_anybody_learns_of_it(desk: Desk) -> None:
    """E2."""
    with RawProvider([http_response(WHOLE)]) as provider:
        answered = desk.call(provider.base_url)
    assert [landed.answered for landed in desk.outbox.answers()] == [answered]
    assert desk.outbox.marks() == {}


def test_a_call_is_marked_before_it_is_sent(desk: Desk) -> None:
    """M4."""
    with RawProvider(end="hang") as provider:
        calls = desk.calls(provider.base_url, deadline_s=1.0)
        desk.caller.start(calls)
        while not provider.requests:
            time.sleep(0.005)
        assert desk.outbox.marks() == {calls[0].order.key: 0}
        desk.results()


def test_never_more_in_flight_than_slots(desk: Desk) -> None:
    """E4; and every slot is used: 24 calls of 100 ms at 8 slots are three rounds."""
    with Simulator({"latency": {"fixed_ms": 100}}) as provider:
        desk.caller.start(desk.calls(provider.base_url, 20))
        desk.results(20)
        ledger = provider.ledger()
    assert ledger["max_concurrency"] == 8
    assert ledger["billed"]["calls"] == 20


def test_nothing_starts_without_a_permit_or_after_its_end(desk: Desk) -> None:
    """E4: checked again right before the send."""
    with Simulator() as provider:
        desk.permit(slots=0)
        calls = desk.calls(provider.base_url, 4)
        desk.caller.start(calls)
        desk.permit(slots=8, for_ms=-1)
        time.sleep(0.1)
        assert provider.ledger()["received"]["calls"] == 0
        assert [call.order.key for call in desk.caller.withdraw(LANE)] == [call.order.key for call in calls]
        desk.permit()
        time.sleep(0.1)
        assert provider.ledger()["received"]["calls"] == 0


def test_a_call_that_was_late_for_a_permit_is_sent_under_the_next(desk: Desk) -> None:
    """P3: the permit was over when the mark was durable; the next one wakes it."""
    times_ms = iter([0])  # the call is taken; from then on it is 1
    caller = HttpCaller(desk.outbox, put_blob=desk.put, authorizations={}, clock_ms=lambda: next(times_ms, 1))
    caller.permit(LANE, Permit(slots=1, until_ms=1))
    with RawProvider([http_response(WHOLE)]) as provider:
        caller.start(desk.calls(provider.base_url))
        while not desk.outbox.marks():
            time.sleep(0.005)
        assert caller.unsent(LANE)
        caller.permit(LANE, Permit(slots=1, until_ms=2))
        while not (ended := caller.completed()):
            time.sleep(0.005)
    assert [result.answered.state for result in ended] == [AttemptState.ANSWERED]
    caller.close()


def test_a_lane_closes_itself_on_a_rate_limit(desk: Desk) -> None:
    """E9: the poll thread may be away; what waits behind a 429 is not sent into it."""
    with Simulator({"faults": [{"kind": "rate_limited", "retry_after_s": 2}]}) as provider:
        desk.permit(slots=1)
        desk.caller.start(desk.calls(provider.base_url, 5))
        (result,) = desk.results()
        assert failure_of(result.answered).retry_after_ms == 2_000
        time.sleep(0.1)
        assert provider.ledger()["received"]["calls"] == 1
        assert len(desk.caller.withdraw(LANE)) == 4


def test_a_long_output_goes_to_a_blob_when_the_store_is_back(desk: Desk) -> None:
    """The answer waits; the model is not asked again."""
    refusals = iter(["full", "full"])

    def put(data: bytes) -> str:
        for reason in refusals:
            raise Unavailable(reason)
        return desk.documents.blobs.put(data)

    desk.put = put
    long = json.dumps(completion("x" * 9_000)).encode()
    with RawProvider([http_response(long)]) as provider:
        answered = desk.call(provider.base_url)
    assert answered.output is None
    assert desk.documents.blobs.get(answered.output_digest or "") == b"x" * 9_000
    assert len(provider.requests) == 1


def test_close_lets_calls_in_flight_land(tmp_path: Path) -> None:
    """E2: an orderly stop pays nothing twice; what it can not wait for stays marked."""
    desk = Desk(tmp_path)
    with Simulator({"latency": {"fixed_ms": 300}}) as provider, RawProvider(end="hang") as silent:
        quick, slow = desk.calls(provider.base_url, 1), desk.calls(silent.base_url, 2, deadline_s=30)[1:]
        desk.caller.start(quick + slow)
        while not silent.requests or provider.ledger()["received"]["calls"] == 0:
            time.sleep(0.005)
        desk.caller.close()
    assert [landed.key for landed in desk.outbox.answers()] == [quick[0].order.key]
    assert list(desk.outbox.marks()) == [slow[0].order.key]
    desk.outbox.close()


def test_an_orderly_stop_leaves_no_mark_of_a_call_that_was_not_sent(tmp_path: Path) -> None:
    """E2, M2: the next start sends it, where a mark would make its outcome and cost unknown."""
    stopped = Desk(tmp_path)
    with RawProvider([http_response(WHOLE)]) as provider:
        stopped.caller.start(stopped.calls(provider.base_url, rows=6))
        stopped.caller.close()
    assert stopped.outbox.marks() == {}
    stopped.outbox.close()


def test_an_answer_that_comes_during_an_orderly_stop_lands(tmp_path: Path) -> None:
    """E2: the stop waits for the answer's way to disk, too, and not for the call alone."""
    desk = Desk(tmp_path)
    with Simulator({"latency": {"fixed_ms": 200}}) as provider:
        calls = desk.calls(provider.base_url)
        desk.caller.start(calls)
        while provider.ledger()["received"]["calls"] == 0:
            time.sleep(0.005)
        desk.caller.close()
    assert [landed.key for landed in desk.outbox.answers()] == [calls[0].order.key]
    assert desk.outbox.marks() == {}
    desk.outbox.close()


def test_a_dead_thread_is_noticed(tmp_path: Path) -> None:
    """An outbox that can not be written ends the process: it must not go on calling unmarked."""
    desk = Desk(tmp_path)
    desk.outbox.close()
    desk.caller.start(desk.calls("http://127.0.0.1:1/v1"))
    with pytest.raises(RuntimeError, match="has failed"):
        desk.results()
    desk.caller.close()
