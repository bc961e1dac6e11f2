"""Calls over real sockets: what a broken connection means, deadlines, caps, slots, permits, and what lands first."""

import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.simulator import Simulator
from nightmill.kernel.domain.failures import Billed
from nightmill.kernel.domain.lifecycle import AttemptState
from nightmill.kernel.runtime.service import Unavailable
from nightmill.provider_gateway.caller import Permit
from nightmill.provider_gateway.connections import MAX_BODY_BYTES
from nightmill.provider_gateway.failures import Signal
from nightmill.provider_gateway.http import HttpCaller
from unit.provider_gateway.caller_desk import LANE, Desk, failure_of
from unit.provider_gateway.makers import completion
from unit.provider_gateway.raw_provider import RawProvider, http_response

WHOLE = json.dumps(completion()).encode()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.close()


def test_an_answer_with_the_providers_request_id(desk: Desk) -> None:
    """O2: both sides can find the call again."""
    with RawProvider([http_response(WHOLE, "X-Request-Id: req-7")]) as provider:
        answered = desk.call(provider.base_url)
    head = provider.requests[0].split(b"\r\n\r\n")[0].lower()
    assert (answered.state, answered.output) == (AttemptState.ANSWERED, '{"label": "a"}')
    assert (answered.http_status, answered.provider_request_id) == (200, "req-7")
    assert f"x-client-request-id: item{0:039d}-1".encode() in head
    assert b"authorization: bearer sk-secret" in head
    assert answered.started_at_ms is not None
    assert answered.started_at_ms <= answered.ended_at_ms


CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
BAD_GZIP = http_response(b"no gzip at all", "content-encoding: gzip")
BOMB = gzip.compress(b" " * (MAX_BODY_BYTES + 1))

#: row of the failure table, bytes of the response, end of the connection, signal, state, billed
BROKEN = [
    ("22 reset", [], "reset", Signal.CONNECTION_LOST, AttemptState.UNKNOWN, Billed.UNKNOWN),
    ("22 closed", [], "close", Signal.CONNECTION_LOST, AttemptState.UNKNOWN, Billed.UNKNOWN),
    ("22 no HTTP", [b"220 mail ready\r\n"], "close", Signal.CONNECTION_LOST, AttemptState.UNKNOWN, Billed.UNKNOWN),
    ("23 silent", [], "hang", Signal.DEADLINE_PASSED, AttemptState.UNKNOWN, Billed.UNKNOWN),
    ("25 length", [http_response(WHOLE[:20], length=400)], "close", Signal.BODY_INCOMPLETE, AttemptState.FAILED,
     Billed.YES),
    ("25 chunk", [CHUNKED, b"64\r\n" + WHOLE[:30]], "close", Signal.BODY_INCOMPLETE, AttemptState.FAILED, Billed.YES),
    ("26 no length", [b"HTTP/1.1 200 OK\r\n\r\n" + WHOLE[:-20]], "close", Signal.BODY_CUT, AttemptState.FAILED,
     Billed.YES),
    ("27 gzip", [BAD_GZIP], "close", Signal.BODY_UNDECODABLE, AttemptState.FAILED, Billed.UNKNOWN),
    ("27 cap", [http_response(b" " * (MAX_BODY_BYTES + 1))], "close", Signal.BODY_OVER_CAP, AttemptState.FAILED,
     Billed.UNKNOWN),
    ("27 bomb", [http_response(BOMB, "content-encoding: gzip")], "close", Signal.BODY_OVER_CAP, AttemptState.FAILED,
     Billed.UNKNOWN),
]  # fmt: skip


@pytest.mark.parametrize(
    ("chunks", "end", "signal", "state", "billed"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN]
)
def test_broken_connections(
    desk: Desk, chunks: list[bytes], end: str, signal: Signal, state: AttemptState, billed: Billed
) -> None:
    """E2, E8: after the request has left, no answer means nobody knows; a body that broke off was paid for."""
    with RawProvider(chunks, end=end) as provider:
        answered = desk.call(provider.base_url, deadline_s=1.0)
    failure = failure_of(answered)
    assert (failure.signal, answered.state, failure.billed) == (signal, state, billed)
    assert answered.cost_nano_usd is None


def test_a_compressed_answer_is_read(desk: Desk) -> None:
    with RawProvider([http_response(gzip.compress(WHOLE), "content-encoding: gzip")]) as provider:
        assert desk.call(provider.base_url).state is AttemptState.ANSWERED


def test_the_deadline_is_for_the_whole_call(desk: Desk) -> None:
    """Row 23: a drip never lets a single read time out."""
    drip = [http_response(WHOLE)[i : i + 1] for i in range(60)]
    with RawProvider(drip, every_s=0.2) as provider:
        answered = desk.call(provider.base_url, deadline_s=2.0)
    assert (answered.state, failure_of(answered).signal) == (AttemptState.UNKNOWN, Signal.DEADLINE_PASSED)


def test_a_redirect_is_not_followed(desk: Desk) -> None:
    """Row 29: the key goes nowhere else."""
    with RawProvider() as elsewhere:
        moved = http_response(b"", f"location: {elsewhere.base_url}", status="307 Temporary Redirect")
        with RawProvider([moved]) as provider:
            answered = desk.call(provider.base_url)
    assert failure_of(answered).signal == Signal.REDIRECT
    assert elsewhere.requests == []


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


def test_a_reset_after_billing_is_unknown(desk: Desk) -> None:
    """E2, P4: the provider billed it, and we say that we do not know."""
    with Simulator({"faults": [{"kind": "reset_after_billing"}]}) as provider:
        answered = desk.call(provider.base_url)
        billed = provider.ledger()["billed"]["calls"]
    assert billed == 1
    assert (answered.state, answered.cost_nano_usd) == (AttemptState.UNKNOWN, None)


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


def test_keys_are_in_no_message_and_no_log(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """P6."""
    with caplog.at_level(0), RawProvider([http_response(b"{}", status="401 Unauthorized")]) as provider:
        answered = desk.call(provider.base_url)
    assert "sk-secret" not in repr(answered)
    assert "sk-secret" not in caplog.text


def test_a_dead_thread_is_noticed(tmp_path: Path) -> None:
    """An outbox that can not be written ends the process: it must not go on calling unmarked."""
    desk = Desk(tmp_path)
    desk.outbox.close()
    desk.caller.start(desk.calls("http://127.0.0.1:1/v1"))
    with pytest.raises(RuntimeError, match="has failed"):
        desk.results()
    desk.caller.close()
