"""Anthropic's Message Batches API as bytes in, values out (E6)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.kernel.domain.failures import Billed, FailureClass
from nightmill.kernel.domain.lifecycle import AttemptState
from nightmill.provider_gateway.adapters import DIALECTS, adapter_of
from nightmill.provider_gateway.adapters.anthropic_batches import AnthropicBatches
from nightmill.provider_gateway.bulk.answers import answer
from nightmill.provider_gateway.bulk.dialect import Stage
from nightmill.provider_gateway.exchange import Request
from unit.provider_gateway.bulk.makers import make_order, make_row
from unit.provider_gateway.makers import make_pool

WIRE = AnthropicBatches()
BASE = "https://api.anthropic.com/v1/"
COUNTS = {"processing": 2, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0}
BATCH: dict[str, Any] = {
    "id": "msgbatch_1",
    "type": "message_batch",
    "processing_status": "in_progress",
    "request_counts": COUNTS,
    "created_at": "2026-11-29T18:37:24.100435Z",
}
MESSAGE = {
    "type": "message",
    "model": "m",
    "content": [{"type": "text", "text": "{}"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 100, "output_tokens": 5},
}


@pytest.mark.parametrize(
    ("status", "stage", "output"),
    [
        ("in_progress", Stage.RUNNING, None),
        ("canceling", Stage.RUNNING, None),
        ("resting", Stage.RUNNING, None),
        ("ended", Stage.ENDED, "msgbatch_1"),
    ],
)
def test_stages(status: str, stage: Stage, output: str | None) -> None:
    found = WIRE.seen(json.dumps(BATCH | {"processing_status": status}).encode())
    assert found is not None
    assert (found.stage, found.output_id, found.requests) == (stage, output, 2)
    assert found.created_at_ms == 1_795_977_444_100
    assert not found.absent_not_run


def test_counts_that_are_not_all_there_are_none() -> None:
    """A batch of unknown size may be ours; it is looked into rather than passed over."""
    found = WIRE.seen(json.dumps(BATCH | {"request_counts": {"processing": 2}}).encode())
    assert found is not None
    assert found.requests is None


def test_an_id_of_the_provider_is_no_part_of_an_address() -> None:
    assert WIRE.listing(BASE, "a b&limit=1").url.endswith("/messages/batches?limit=1000&after_id=a%20b%26limit%3D1")


def test_requests() -> None:
    """The version is pinned on every request; results are read at our own address, whatever address is named."""
    request = Request(url=BASE + "messages", headers={}, body=b'{"model":"m"}')
    assert json.loads(WIRE.line("k-1", request, BASE)) == {"custom_id": "k-1", "params": {"model": "m"}}
    assert WIRE.content(BASE, "msgbatch_1").url == "https://api.anthropic.com/v1/messages/batches/msgbatch_1/results"
    assert WIRE.remove(BASE, "msgbatch_1").method == "DELETE"
    pool = make_pool(BASE, provider="anthropic", anthropic_version="2023-06-01")
    assert WIRE.headers(pool) == {"anthropic-version": "2023-06-01"}
    assert DIALECTS["anthropic"].frame is not None


LINES: list[tuple[dict[str, Any], AttemptState, FailureClass | None, Billed | None]] = [
    ({"type": "succeeded", "message": MESSAGE}, AttemptState.ANSWERED, None, None),
    ({"type": "canceled"}, AttemptState.NOT_SENT, None, None),
    ({"type": "expired"}, AttemptState.FAILED, FailureClass.CAPACITY, Billed.NO),
    ({"type": "postponed", "message": MESSAGE}, AttemptState.FAILED, FailureClass.TRANSIENT, Billed.UNKNOWN),
    (
        {"type": "errored", "error": {"type": "error", "error": {"type": "api_error", "message": "x"}}},
        AttemptState.FAILED,
        FailureClass.TRANSIENT,
        Billed.NO,
    ),
    (
        {"type": "errored", "error": {"type": "error", "error": {"type": "overloaded_error", "message": "x"}}},
        AttemptState.FAILED,
        FailureClass.TRANSIENT,
        Billed.NO,
    ),
    (
        {"type": "errored", "error": {"error": {"type": "invalid_request_error", "message": "prompt is too long"}}},
        AttemptState.FAILED,
        FailureClass.BAD_INPUT,
        Billed.NO,
    ),
    ({"type": "errored", "error": None}, AttemptState.FAILED, FailureClass.TRANSIENT, Billed.NO),
    ({"type": "succeeded"}, AttemptState.FAILED, FailureClass.TRANSIENT, Billed.UNKNOWN),
]


@pytest.mark.parametrize(("result", "state", "kind", "billed"), LINES)
def test_a_line_ends_its_attempt(
    result: dict[str, Any], state: AttemptState, kind: FailureClass | None, billed: Billed | None
) -> None:
    """E8: what is errored or expired was never billed; a kind that nobody knows may have been."""
    line = WIRE.read(json.dumps({"custom_id": "k", "result": result}).encode())
    assert line is not None
    answered = answer(make_order(0), line, make_row(ended_at_ms=5), adapter_of("p", "anthropic"))
    assert answered.state is state
    found = answered.failure
    assert (found and found.failure_class, found and found.billed) == (kind, billed)


def test_an_answer_is_not_lost_by_half_a_character() -> None:
    """E2, E6: it was paid for, and would be paid for again."""
    message = MESSAGE | {"content": [{"type": "text", "text": "\ud83d"}]}
    line = WIRE.read(json.dumps({"custom_id": "k", "result": {"type": "succeeded", "message": message}}).encode())
    assert line is not None
    answered = answer(make_order(0), line, make_row(ended_at_ms=5), adapter_of("p", "anthropic"))
    assert answered.state is AttemptState.ANSWERED


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_are_a_line_or_none(raw: bytes) -> None:
    found = WIRE.read(raw)
    assert found is None or 0 < len(found.custom_id) <= 64
    WIRE.seen(raw)
    WIRE.page(raw)
