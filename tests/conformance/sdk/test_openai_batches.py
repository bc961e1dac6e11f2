"""`openai`: batches through every state, their pages, and what the books say of their lines."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from conformance.sdk.lines import DATA, end_of, jsonl, line, rows, scenario, start, until, upload
from kit.simulator import Simulator


def test_batch_from_upload_to_results(gpt: openai.OpenAI, simulator: Simulator) -> None:
    """E12: every line has one row, and the books agree with what the rows say."""
    made = start(gpt, DATA, metadata={"job": "j-1"})
    assert (made.status, made.request_counts, made.metadata) == (
        "validating",
        openai.types.BatchRequestCounts(total=0, completed=0, failed=0),
        {"job": "j-1"},
    )
    batch = end_of(gpt, made)
    assert (batch.status, batch.error_file_id, batch.model) == ("completed", None, "gpt-6-luna")
    assert batch.request_counts == openai.types.BatchRequestCounts(total=500, completed=500, failed=0)
    assert batch.in_progress_at is not None
    assert batch.expires_at == batch.created_at + 86_400
    assert simulator.ledger()["delivered"]["calls"] == 0
    found = rows(gpt, batch.output_file_id)
    assert [row["custom_id"] for row in found] != [f"i-{n}" for n in range(500)]
    assert sorted(row["custom_id"] for row in found) == sorted(f"i-{n}" for n in range(500))
    usage = [row["response"]["body"]["usage"] for row in found]
    totals = simulator.ledger()
    assert totals["billed"] == totals["delivered"]
    assert totals["billed"]["prompt_tokens"] == sum(one["prompt_tokens"] for one in usage)
    assert batch.usage is not None
    assert batch.usage.total_tokens == sum(one["total_tokens"] for one in usage)
    paid = {row["attempt_id"]: row["billed_nano_usd"] for row in simulator.attempts()}
    for row in found:  # half of 100 and 500 nano-USD a token
        used = row["response"]["body"]["usage"]
        assert paid[row["custom_id"]] == used["prompt_tokens"] * 50 + used["completion_tokens"] * 250
    assert totals["money"]["billed_nano_usd"] == sum(paid.values())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"input_file_id": "file-none"}, "no such file"),
        ({"endpoint": "/v1/audio"}, "Supported values are"),
        ({"completion_window": "1h"}, "Value must be '24h'"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"metadata": {str(n): "x" for n in range(17)}}, "metadata"),
        ({"extra_body": {"priority": 1}}, "Unknown parameter: 'priority'"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 1}}, "output_expires_after.seconds"),
        ({"extra_body": {"input_file_id": None}}, "Missing required parameter: 'input_file_id'"),
    ],
)
def test_batches_that_are_refused_at_once(gpt: openai.OpenAI, changes: dict[str, Any], said: str) -> None:
    wanted = {"endpoint": "/v1/chat/completions", "completion_window": "24h", **changes}
    with pytest.raises(openai.BadRequestError, match=said):
        gpt.batches.create(**{"input_file_id": upload(gpt, DATA), **wanted})


@pytest.mark.parametrize(
    ("data", "code", "number"),
    [
        (b"", "empty_file", None),
        (jsonl([line("a")]) + b"{\n", "invalid_json_line", 2),
        (jsonl([line("a"), line("b"), line("a")]), "duplicate_custom_id", 3),
        (jsonl([line("a", url="/v1/embeddings")]), "url_mismatch", 1),
        (jsonl([line("a"), {**line("b"), "body": {"model": "gpt-6-sol", "messages": []}}]), "mismatched_model", 2),
        (jsonl([{"custom_id": "a", "url": "/v1/chat/completions", "body": {}}]), "missing_required_parameter", 1),
        (jsonl([line(f"i-{n}") for n in range(21)]), "too_many_tasks", None),
    ],
)
def test_files_that_fail_in_validation(
    gpt: openai.OpenAI, simulator: Simulator, data: bytes, code: str, number: int | None
) -> None:
    simulator.set_scenario(scenario(batches={"max_requests": 20}))
    batch = end_of(gpt, start(gpt, data))
    assert (batch.status, batch.output_file_id, batch.error_file_id) == ("failed", None, None)
    assert batch.failed_at is not None
    assert batch.errors is not None
    assert batch.errors.data is not None
    [error] = batch.errors.data
    assert (error.code, error.line) == (code, number)
    assert simulator.ledger()["billed"]["calls"] == 0


def test_bad_bodies_are_rows_of_the_error_file(gpt: openai.OpenAI, simulator: Simulator) -> None:
    bad = line("bad")
    bad["body"]["colour"] = "red"
    batch = end_of(gpt, start(gpt, jsonl([line("good"), bad])))
    assert (batch.status, batch.request_counts) == (
        "completed",
        openai.types.BatchRequestCounts(total=2, completed=1, failed=1),
    )
    [row] = rows(gpt, batch.error_file_id)
    assert (row["custom_id"], row["error"], row["response"]["status_code"]) == ("bad", None, 400)
    assert row["response"]["body"]["error"]["code"] == "unknown_parameter"
    assert [row["attempt_id"] for row in simulator.attempts()] == ["good"]


def test_all_lines_fail(gpt: openai.OpenAI, simulator: Simulator) -> None:
    """`completed` says nothing about the lines."""
    for blank, expected in (([], None), ([{"kind": "output_id_blank"}], "")):
        simulator.set_scenario(scenario({"kind": "server_error", "on": ["line"]}, *blank))
        batch = end_of(gpt, start(gpt, DATA))
        assert (batch.status, batch.output_file_id) == ("completed", expected)
        assert len(rows(gpt, batch.error_file_id)) == 500


def test_pages_newest_first(gpt: openai.OpenAI) -> None:
    data = jsonl([line("a")])
    made = [start(gpt, data, metadata={"n": str(n)}).id for n in range(5)]
    page = gpt.batches.list(limit=2)
    assert [batch.id for batch in page.data] == made[:-3:-1]
    assert page.has_more
    assert [batch.id for batch in gpt.batches.list(limit=2)][:5] == made[::-1]
    with pytest.raises(openai.BadRequestError):
        gpt.batches.list(limit=101)
    with pytest.raises(openai.NotFoundError):
        gpt.batches.retrieve("batch_none")


def test_cancel(gpt: openai.OpenAI, simulator: Simulator) -> None:
    """What ran before the cancel is in the output and billed; the rest is in no file."""
    simulator.set_scenario(scenario({"kind": "batch_stuck", "keep": 0.4}, batches={"cancel_ms": 60_000}))
    batch = until(gpt, start(gpt, DATA), "in_progress")
    assert gpt.batches.cancel(batch.id).status == "cancelling"
    assert gpt.batches.cancel(batch.id).status == "cancelling"
    simulator.set_clock(advance_s=61)
    batch = end_of(gpt, batch)
    assert (batch.status, batch.cancelled_at is not None) == ("cancelled", True)
    done = len(rows(gpt, batch.output_file_id))
    assert done in (0, 200)  # the cancel may come before the first line
    assert simulator.ledger()["billed"]["calls"] == done
    with pytest.raises(openai.ConflictError, match="Cannot cancel a batch with status 'cancelled'"):
        gpt.batches.cancel(batch.id)


def test_a_line_that_failed_may_succeed_when_it_is_sent_again(gpt: openai.OpenAI, simulator: Simulator) -> None:
    """A rate is drawn anew each time."""
    simulator.set_scenario(scenario({"kind": "server_error", "on": ["line"], "rate": 0.5}))
    failed = []
    for _ in range(2):
        batch = end_of(gpt, start(gpt, DATA))
        failed.append({row["custom_id"] for row in rows(gpt, batch.error_file_id)})
    assert 0 < len(failed[0] & failed[1]) < min(map(len, failed))


def test_cancel_that_comes_too_late(gpt: openai.OpenAI, simulator: Simulator) -> None:
    simulator.set_scenario(scenario({"kind": "cancel_races"}, batches={"validate_ms": 60_000}))
    batch = start(gpt, DATA)
    assert gpt.batches.cancel(batch.id).status == "cancelling"
    simulator.set_clock(advance_s=61)
    batch = end_of(gpt, batch)
    assert batch.status == "completed"
    assert len(rows(gpt, batch.output_file_id)) == 500


def test_expiry_keeps_what_is_done(gpt: openai.OpenAI, simulator: Simulator) -> None:
    simulator.set_scenario(scenario({"kind": "batch_stuck", "keep": 0.5}))
    batch = until(gpt, start(gpt, DATA), "in_progress")
    while simulator.ledger()["billed"]["calls"] < 250:
        pass
    simulator.set_clock(advance_s=86_401)
    batch = end_of(gpt, batch)
    assert (batch.status, batch.expired_at is not None) == ("expired", True)
    missed = rows(gpt, batch.error_file_id)
    assert {row["error"]["code"] for row in missed} == {"batch_expired"}
    assert len(missed) == 250 == len(rows(gpt, batch.output_file_id))
    assert simulator.ledger()["delivered"]["calls"] == 250


@pytest.mark.parametrize("results", ["partial", "none"])
def test_expiry_by_scenario(gpt: openai.OpenAI, simulator: Simulator, results: str) -> None:
    simulator.set_scenario(scenario({"kind": "batch_expires", "keep": 0.2, "results": results}))
    batch = end_of(gpt, start(gpt, DATA))
    assert batch.status == "expired"
    assert len(rows(gpt, batch.output_file_id)) == (100 if results == "partial" else 0)


def test_enqueued_tokens(gpt: openai.OpenAI, simulator: Simulator) -> None:
    """The limit is over all batches of the model, and is released when one ends."""
    simulator.set_scenario(scenario({"kind": "batch_stuck", "first": 1}, batches={"max_enqueued_tokens": 7000}))
    first = until(gpt, start(gpt, DATA), "in_progress")  # 500 x 12 tokens
    second = end_of(gpt, start(gpt, DATA))
    assert second.errors is not None
    assert second.errors.data is not None
    assert (second.status, second.errors.data[0].code) == ("failed", "token_limit_exceeded")
    assert "Limit: 7,000 enqueued tokens" in str(second.errors.data[0].message)
    gpt.batches.cancel(first.id)
    end_of(gpt, first)
    assert end_of(gpt, start(gpt, DATA)).status == "completed"


def test_states_take_their_time(gpt: openai.OpenAI, simulator: Simulator) -> None:
    times = {"validate_ms": 60_000, "run_ms": 3_600_000, "finalize_ms": 60_000, "lines_per_s": 1}
    simulator.set_scenario(scenario(batches=times))
    batch = start(gpt, DATA)
    seen = [batch.status]
    for advance_s in (61, 4000, 61):
        simulator.set_clock(advance_s=advance_s)
        batch = until(gpt, batch, {61: "in_progress", 4000: "finalizing"}[advance_s] if len(seen) < 3 else "completed")
        seen.append(batch.status)
    assert seen == ["validating", "in_progress", "finalizing", "completed"]
    stamps = [batch.created_at, batch.in_progress_at, batch.finalizing_at, batch.completed_at]
    assert None not in stamps
    assert stamps == sorted(stamps, key=lambda at: at or 0)


def test_other_endpoints(gpt: openai.OpenAI) -> None:
    bodies = {
        "/v1/responses": {"model": "gpt-6-luna", "input": "Which?"},
        "/v1/embeddings": {"model": "text-embedding-3-small", "input": ["a", "b"]},
    }
    for url, body in bodies.items():
        batch = end_of(gpt, start(gpt, jsonl([{**line("a", url=url), "body": body}]), endpoint=url))
        [row] = rows(gpt, batch.output_file_id)
        assert row["response"]["body"]["object"] in ("response", "list")


def test_output_expires(gpt: openai.OpenAI, simulator: Simulator) -> None:
    batch = end_of(gpt, start(gpt, DATA, output_expires_after={"anchor": "created_at", "seconds": 3600}))
    assert len(rows(gpt, batch.output_file_id)) == 500
    simulator.set_clock(advance_s=3601)
    with pytest.raises(openai.NotFoundError):
        gpt.files.content(batch.output_file_id or "")
