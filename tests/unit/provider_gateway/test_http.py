"""Calls over real sockets: what an answer, a broken connection and a deadline mean."""

import gzip

import pytest

from kit.simulator import Simulator
from nightmill.kernel.domain.failures import Billed
from nightmill.kernel.domain.lifecycle import AttemptState
from nightmill.provider_gateway.connections import MAX_BODY_BYTES
from nightmill.provider_gateway.failures import Signal
from unit.provider_gateway.caller_desk import Desk, failure_of
from unit.provider_gateway.makers import WHOLE
from unit.provider_gateway.raw_provider import RawProvider, http_response


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


def test_a_reset_after_billing_is_unknown(desk: Desk) -> None:
    """E2, P4: the provider billed it, and we say that we do not know."""
    with Simulator({"faults": [{"kind": "reset_after_billing"}]}) as provider:
        answered = desk.call(provider.base_url)
        billed = provider.ledger()["billed"]["calls"]
    assert billed == 1
    assert (answered.state, answered.cost_nano_usd) == (AttemptState.UNKNOWN, None)


def test_keys_are_in_no_message_and_no_log(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """P6."""
    with caplog.at_level(0), RawProvider([http_response(b"{}", status="401 Unauthorized")]) as provider:
        answered = desk.call(provider.base_url)
    assert "sk-secret" not in repr(answered)
    assert "sk-secret" not in caplog.text
