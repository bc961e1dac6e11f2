"""OpenAI's Batch API as bytes in, values out (E6): states, lies, and the three forms of an error line."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.kernel.domain.failures import Billed, FailureClass
from nightmill.kernel.domain.lifecycle import AttemptState
from nightmill.provider_gateway.adapters.openai_batches import OpenAiBatches
from nightmill.provider_gateway.bulk.answers import answer
from nightmill.provider_gateway.bulk.dialect import Fate, InputFault, Stage
from nightmill.provider_gateway.exchange import Request
from unit.provider_gateway.bulk.makers import make_order, make_row
from unit.provider_gateway.makers import completion, make_access

WIRE = OpenAiBatches()
BASE = "https://api.openai.com/v1/"
BATCH: dict[str, Any] = {"id": "batch_1", "object": "batch", "status": "in_progress", "created_at": 1_796_000_000}


def seen(**fields: Any) -> Any:
    return WIRE.seen(json.dumps(BATCH | fields).encode())


@pytest.mark.parametrize(
    ("fields", "stage", "absent_not_run"),
    [
        ({"status": "validating"}, Stage.RUNNING, False),
        ({"status": "in_progress"}, Stage.RUNNING, False),
        ({"status": "finalizing"}, Stage.RUNNING, False),
        ({"status": "cancelling"}, Stage.RUNNING, False),
        ({"status": "paused"}, Stage.RUNNING, False),  # no document names it: it has not ended, as far as we know
        ({"status": "completed"}, Stage.ENDED, False),
        ({"status": "expired"}, Stage.ENDED, False),
        ({"status": "cancelled"}, Stage.ENDED, True),
        ({"status": "failed"}, Stage.REFUSED, False),
        ({"status": "failed", "output_file_id": "file-1"}, Stage.ENDED, False),  # llm-d keeps what was done
    ],
)
def test_stages(fields: dict[str, Any], stage: Stage, absent_not_run: bool) -> None:
    found = seen(**fields)
    assert (found.stage, found.absent_not_run) == (stage, absent_not_run)


def test_what_else_a_batch_tells() -> None:
    """An empty file id is none; the counts say at most that a row is missing."""
    errors = {"data": [{"code": "invalid_json_line", "line": 3, "param": None}, {"code": "empty_file", "line": None}]}
    found = seen(
        output_file_id="",
        error_file_id="file-2",
        errors=errors,
        request_counts={"total": 3, "completed": 3, "failed": 0},
        metadata={"nightmill_submission": "s", "nightmill_fingerprint": "f"},
    )
    assert (found.output_id, found.error_id, found.ran) == (None, "file-2", 3)
    assert (found.submission, found.fingerprint, found.created_at_ms) == ("s", "f", 1_796_000_000_000)
    assert found.faults == (InputFault(code="invalid_json_line", line=3), InputFault(code="empty_file"))


def test_requests() -> None:
    """A line is what the realtime call would be; the create carries our keys."""
    request = Request(url="https://api.openai.com/v1/chat/completions", headers={}, body=b'{"model":"m"}')
    line = json.loads(WIRE.line("k-1", request, BASE))
    assert line == {"custom_id": "k-1", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m"}}
    ask = WIRE.create(BASE, file_id="file-1", endpoint="/v1/chat/completions", keys={"a": "b"})
    assert ask is not None
    assert (ask.method, ask.url) == ("POST", "https://api.openai.com/v1/batches")
    assert json.loads(ask.body or b"")["metadata"] == {"a": "b"}
    assert WIRE.listing(BASE, "batch/1").url == "https://api.openai.com/v1/batches?limit=100&after=batch%2F1"
    assert WIRE.cancel(BASE, "batch_1").body == b""


def test_pages() -> None:
    page = WIRE.page(json.dumps({"data": [BATCH, {"id": 5}, BATCH | {"id": "batch_0"}], "has_more": True}).encode())
    assert page is not None
    assert ([each.id for each in page.batches], page.next_after) == (["batch_1", "batch_0"], "batch_0")
    last = WIRE.page(b'{"data":[],"has_more":true}')
    assert last is not None
    assert last.next_after is None
    assert WIRE.page(b'{"error":{}}') is None


def line(**fields: Any) -> bytes:
    return json.dumps({"id": "batch_req_1", "custom_id": "k", "response": None, "error": None} | fields).encode()


LINES: list[tuple[dict[str, Any], AttemptState, str | None, Billed | None]] = [
    # line, state, class of the failure, billed
    ({"response": {"status_code": 200, "body": completion()}}, AttemptState.ANSWERED, None, None),
    (
        {"response": {"status_code": 429, "body": {"error": {"code": "rate_limit_exceeded"}}}},
        AttemptState.FAILED,
        FailureClass.CAPACITY,
        Billed.NO,
    ),
    (
        {"response": {"status_code": 400, "body": {"error": {"code": "context_length_exceeded"}}}},
        AttemptState.FAILED,
        FailureClass.BAD_INPUT,
        Billed.NO,
    ),
    ({"response": {"status_code": 429, "body": {}}}, AttemptState.FAILED, FailureClass.CAPACITY, Billed.NO),
    ({"response": {"status_code": 500, "body": {}}}, AttemptState.FAILED, FailureClass.TRANSIENT, Billed.UNKNOWN),
    ({"response": {"status_code": 0, "body": {}}}, AttemptState.FAILED, FailureClass.TRANSIENT, Billed.UNKNOWN),
    ({"error": {"code": "batch_expired"}}, AttemptState.FAILED, FailureClass.CAPACITY, Billed.NO),
    ({"error": {"code": "batch_cancelled"}}, AttemptState.NOT_SENT, None, None),
    ({"error": {"code": "request_timeout"}}, AttemptState.FAILED, FailureClass.TRANSIENT, Billed.UNKNOWN),
    ({"error": {"code": 17}}, AttemptState.FAILED, FailureClass.TRANSIENT, Billed.UNKNOWN),
    ({}, AttemptState.FAILED, FailureClass.TRANSIENT, Billed.UNKNOWN),
]


@pytest.mark.parametrize(("fields", "state", "kind", "billed"), LINES)
def test_a_line_ends_its_attempt(
    fields: dict[str, Any], state: AttemptState, kind: str | None, billed: Billed | None
) -> None:
    """E8: the status decides, never `error: null` and never the counts."""
    found = WIRE.read(line(**fields))
    assert found is not None
    answered = answer(make_order(0), found, make_row(ended_at_ms=5), make_access().adapter)
    assert answered.state is state
    assert (answered.failure and answered.failure.failure_class, answered.failure and answered.failure.billed) == (
        kind,
        billed,
    )
    assert found.is_valid == (state is AttemptState.ANSWERED)


@pytest.mark.parametrize(("not_run", "state"), [(True, AttemptState.NOT_SENT), (False, AttemptState.UNKNOWN)])
def test_a_request_without_a_line(not_run: bool, state: AttemptState) -> None:
    """After a cancel it was not run; otherwise nobody knows, and its cost stays reserved."""
    row = make_row(ended_at_ms=5, absent_not_run=not_run)
    answered = answer(make_order(0), None, row, make_access().adapter)
    assert answered.state is state
    assert answered.cost_nano_usd == (0 if not_run else None)
    assert not_run or "may pay twice" in (answered.failure.message if answered.failure else "")


@pytest.mark.parametrize(
    "fields",
    [
        {"response": {"status_code": 200, "body": completion("\ud83d")}},  # an answer that was cut within a character
        {"id": "\ud83d", "response": {"status_code": 200, "body": completion()}},
        {"response": {"status_code": 200, "request_id": 7, "body": completion()}},
        {"response": {"status_code": 200, "body": completion()}, "error": ""},
        {"response": {"status_code": 200, "body": completion()}, "error": {"code": {}}},
    ],
)
def test_an_answer_is_not_lost_by_its_wrapping(fields: dict[str, Any]) -> None:
    """E2, E6: it was paid for, and would be paid for again; read in a call of its own it is an answer, too."""
    found = WIRE.read(line(**fields))
    assert found is not None
    assert answer(make_order(0), found, make_row(ended_at_ms=5), make_access().adapter).state is AttemptState.ANSWERED


@pytest.mark.parametrize("status", [-1, 10**6, 10**30, None, "200"])
def test_what_is_no_status_is_neither_answer_nor_refusal(status: Any) -> None:
    found = WIRE.read(line(response={"status_code": status, "body": completion()}))
    assert found is not None
    assert (found.fate, found.response) == (Fate.FAILED, None)


def test_a_text_that_goes_into_no_row_is_none() -> None:
    """M4: half of a surrogate pair would end the process when the row is written, after each start."""
    assert WIRE.seen(json.dumps(BATCH | {"id": "\ud800"}).encode()) is None
    found = WIRE.read(line(response={"status_code": 200, "request_id": "r" * 10_000, "body": {}}))
    assert found is not None
    assert len(found.request_id or "") == 200


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_are_a_line_or_none(raw: bytes) -> None:
    found = WIRE.read(raw)
    assert found is None or 0 < len(found.custom_id) <= 64
    WIRE.seen(raw)
    WIRE.page(raw)
    WIRE.stored(raw)


def test_an_id_that_is_too_long_is_nobodys() -> None:
    assert WIRE.read(line(custom_id="x" * 65)) is None
    found = WIRE.read(line(custom_id="x" * 64))
    assert found is not None
    assert found.fate is Fate.FAILED
