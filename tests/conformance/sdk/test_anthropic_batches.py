"""`anthropic`: message batches from create to results, cancelled, expired, archived, and every row of theirs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import anthropic
import pytest

from conformance.sdk.conftest import STRICT
from conformance.sdk.lines import ended, request
from kit.simulator import Simulator


def test_batch_from_create_to_results(claude: anthropic.Anthropic, simulator: Simulator) -> None:
    """E12: counts show nothing until the end, every request has exactly one row, and the books agree."""
    simulator.set_scenario({**STRICT, "batches": {"run_ms": 60_000}})
    made = claude.messages.batches.create(requests=[request(f"i-{n}", f"Which {n}?") for n in range(300)])
    assert (made.processing_status, made.request_counts.processing, made.results_url) == ("in_progress", 300, None)
    assert (made.expires_at - made.created_at).total_seconds() == 86_400
    with pytest.raises(anthropic.AnthropicError):
        claude.messages.batches.results(made.id)
    simulator.set_clock(advance_s=61)
    batch = ended(claude, made.id)
    assert (batch.request_counts.succeeded, batch.request_counts.processing) == (300, 0)
    found = list(claude.messages.batches.results(made.id))
    assert sorted(row.custom_id for row in found) == sorted(f"i-{n}" for n in range(300))
    paid = {row["attempt_id"]: row for row in simulator.attempts()}
    for row in found:
        assert row.result.type == "succeeded"
        usage = row.result.message.usage
        assert usage.service_tier == "batch"
        assert paid[row.custom_id]["billed_nano_usd"] == usage.input_tokens * 50 + usage.output_tokens * 250
        assert paid[row.custom_id]["delivered"]


@pytest.mark.parametrize(
    ("requests", "said"),
    [
        ([], "List should have at least 1 item"),
        ([request("a b")], "requests.0.custom_id: String should match pattern"),
        ([request("a\n")], "requests.0.custom_id: String should match pattern"),
        ([request("x" * 65)], "requests.0.custom_id"),
        ([request("a"), request("a")], "custom_id must be unique"),
        ([{"custom_id": "a"}], "requests.0.params: Field required"),
    ],
)
def test_envelopes_that_are_refused(claude: anthropic.Anthropic, requests: Any, said: str) -> None:
    with pytest.raises(anthropic.BadRequestError, match=said):
        claude.messages.batches.create(requests=requests)


def test_bad_params_are_errored_rows(claude: anthropic.Anthropic, simulator: Simulator) -> None:
    bad = [
        request("top", temperature=0),
        request("stream", stream=True),
        request("speed", speed="fast"),
        request("zero", max_tokens=0),
        request("unknown", colour="red"),
    ]
    made = claude.messages.batches.create(requests=[request("good"), *bad])
    batch = ended(claude, made.id)
    assert (batch.request_counts.succeeded, batch.request_counts.errored) == (1, 5)
    for row in claude.messages.batches.results(made.id):
        assert row.result.type == ("succeeded" if row.custom_id == "good" else "errored")
        if row.result.type == "errored":
            assert row.result.error.error.type == "invalid_request_error"
    assert simulator.ledger()["billed"]["calls"] == 1


def test_cancel(claude: anthropic.Anthropic, simulator: Simulator) -> None:
    story = {"kind": "batch_stuck", "keep": 0.5}
    simulator.set_scenario({**STRICT, "faults": [story], "batches": {"cancel_ms": 60_000}})
    made = claude.messages.batches.create(requests=[request(f"i-{n}") for n in range(10)])
    while simulator.ledger()["billed"]["calls"] < 5:
        pass
    asked = claude.messages.batches.cancel(made.id)
    assert (asked.processing_status, asked.cancel_initiated_at is not None) == ("canceling", True)
    with pytest.raises(anthropic.BadRequestError, match="still in progress"):
        claude.messages.batches.delete(made.id)
    simulator.set_clock(advance_s=61)
    batch = ended(claude, made.id)
    assert (batch.request_counts.succeeded, batch.request_counts.canceled) == (5, 5)
    kinds = Counter(row.result.type for row in claude.messages.batches.results(made.id))
    assert kinds == {"succeeded": 5, "canceled": 5}
    with pytest.raises(anthropic.BadRequestError):
        claude.messages.batches.cancel(made.id)


def test_cancel_that_cancels_nothing(claude: anthropic.Anthropic, simulator: Simulator) -> None:
    simulator.set_scenario({**STRICT, "faults": [{"kind": "cancel_races"}], "batches": {"run_ms": 60_000}})
    made = claude.messages.batches.create(requests=[request(f"i-{n}") for n in range(10)])
    claude.messages.batches.cancel(made.id)
    simulator.set_clock(advance_s=61)
    assert ended(claude, made.id).request_counts.succeeded == 10


def test_expiry(claude: anthropic.Anthropic, simulator: Simulator) -> None:
    simulator.set_scenario({**STRICT, "faults": [{"kind": "batch_expires", "keep": 0.3}]})
    made = claude.messages.batches.create(requests=[request(f"i-{n}") for n in range(10)])
    batch = ended(claude, made.id)
    assert (batch.request_counts.succeeded, batch.request_counts.expired) == (3, 7)
    assert simulator.ledger()["billed"]["calls"] == 3


def test_results_are_archived_after_29_days(claude: anthropic.Anthropic, simulator: Simulator) -> None:
    made = claude.messages.batches.create(requests=[request("a")])
    assert ended(claude, made.id).archived_at is None
    simulator.set_clock(advance_s=29 * 86_400)
    assert claude.messages.batches.retrieve(made.id).archived_at is not None
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.batches.results(made.id)


def test_relative_results_url(claude: anthropic.Anthropic, simulator: Simulator) -> None:
    simulator.set_scenario({**STRICT, "batches": {"results_url": "relative"}})
    made = claude.messages.batches.create(requests=[request("a")])
    assert str(ended(claude, made.id).results_url).startswith("/v1/")
    assert [row.custom_id for row in claude.messages.batches.results(made.id)] == ["a"]


def test_pages_and_deletion(claude: anthropic.Anthropic) -> None:
    made = [claude.messages.batches.create(requests=[request("a")]).id for _ in range(5)]
    assert [batch.id for batch in claude.messages.batches.list(limit=2)] == made[::-1]
    page = claude.messages.batches.list(limit=2, before_id=made[0])
    assert [batch.id for batch in page.data] == [made[2], made[1]]
    ended(claude, made[0])
    assert claude.messages.batches.delete(made[0]).type == "message_batch_deleted"
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.batches.retrieve(made[0])
    assert len(list(claude.messages.batches.list())) == 4


def test_odd_result_type(claude: anthropic.Anthropic, simulator: Simulator) -> None:
    simulator.set_scenario({**STRICT, "faults": [{"kind": "row", "form": "odd_type"}]})
    made = claude.messages.batches.create(requests=[request("a")])
    ended(claude, made.id)
    [row] = claude.messages.batches.results(made.id)
    assert row.result.type not in ("succeeded", "errored", "canceled", "expired")


def test_processing_queue(claude: anthropic.Anthropic, simulator: Simulator) -> None:
    simulator.set_scenario({**STRICT, "batches": {"max_enqueued_requests": 3, "run_ms": 3_600_000}})
    claude.messages.batches.create(requests=[request("a"), request("b")])
    with pytest.raises(anthropic.RateLimitError):
        claude.messages.batches.create(requests=[request("a"), request("b")])
    claude.messages.batches.create(requests=[request("a")])


def test_results_come_as_a_stream(claude: anthropic.Anthropic, simulator: Simulator) -> None:
    """Row by row, whatever separators the answers hold; a download that breaks is no end of the results."""
    simulator.set_scenario({**STRICT, "answers": [{"form": "line_separators"}]})
    made = claude.messages.batches.create(requests=[request(f"i-{n}", "Which licence? " * 20) for n in range(50)])
    ended(claude, made.id)
    rows = claude.messages.batches.results(made.id)
    first = next(rows)
    assert first.result.type == "succeeded"
    block: Any = first.result.message.content[0]
    assert "\u2028" in block.text
    assert len(list(rows)) == 49
    simulator.set_scenario({**STRICT, "faults": [{"kind": "cut_json", "on": ["batch_results"]}]})
    with pytest.raises(Exception, match="peer|incomplete|Expecting|Unterminated") as broken:
        list(claude.messages.batches.results(made.id))
    assert not isinstance(broken.value, anthropic.APIStatusError)
