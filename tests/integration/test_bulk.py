"""The bulk lane end to end: every service on the memory log, a provider's Batch API over HTTP, its books as oracle."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from integration.bulk import (
    befalls,
    billed_lines,
    dead_letters,
    documents,
    every_provider,
    listed,
    make_config,
    open_submissions,
    pipeline,
    published,
)
from kit.line import QUICK, Line
from kit.simulator import Simulator
from nightmill.kernel.domain.lifecycle import BatchState, Command
from nightmill.provider_gateway.failures import Signal


@every_provider
def test_documents_go_out_in_batches_for_half_the_price(line: Line, simulator: Simulator) -> None:
    """E6, O1: nothing is called in real time; every document once, and the bill agrees to the nano-dollar."""
    notice = line.finish(line.submit(pipeline(), documents(300)))
    assert notice.state is BatchState.PUBLISHED
    bill = simulator.ledger()["billed"]
    lines = billed_lines(simulator)
    assert (len(lines), bill["calls"]) == (300, 300)
    assert notice.totals.input_tokens == bill["prompt_tokens"]
    assert notice.totals.cost_nano_usd == sum(row["billed_nano_usd"] for row in lines)
    assert published(line) == Counter(f"d{i}" for i in range(300))


SPOILT: list[tuple[str, list[dict[str, Any]], int, int]] = [
    # name, what befalls; lines billed at least and at most
    ("lost counts, empty id", [{"kind": "counts_wrong", "form": "null"}, {"kind": "output_id_blank"}], 40, 40),
    ("counts say all is well", [{"kind": "counts_wrong", "form": "all_completed"}], 40, 40),
    ("carriage returns", [{"kind": "result_file", "form": "crlf"}], 40, 40),
    ("a blank line", [{"kind": "result_file", "form": "blank_line"}], 40, 40),
    ("a byte order mark", [{"kind": "result_file", "form": "bom"}], 40, 40),
    ("no last line end", [{"kind": "result_file", "form": "no_final_newline"}], 40, 40),
    ("a cut last line", [{"kind": "result_file", "form": "cut_last_line", "first": 1}], 41, 41),
    ("failed lines", [{"kind": "server_error", "on": ["line"], "match": "number 3 ", "occurrences": [1]}], 40, 40),
    ("a line without a status", [{"kind": "line_error", "form": "status_zero", "occurrences": [1]}], 40, 40),
    ("a line that timed out", [{"kind": "line_error", "match": "number 3 ", "occurrences": [1]}], 40, 40),
    ("a missing row", [{"kind": "row", "form": "missing", "match": "number 3 ", "occurrences": [1]}], 41, 41),
    ("a row of nobody", [{"kind": "row", "form": "unknown_id", "match": "number 3 ", "occurrences": [1]}], 41, 41),
    ("two rows for one", [{"kind": "row", "form": "duplicate", "match": "number 3 "}], 40, 40),
    ("a row of another batch", [{"kind": "row", "form": "foreign", "match": "number 3 "}], 40, 40),
    ("every line failed", [{"kind": "server_error", "on": ["line"], "occurrences": [1]}], 40, 40),
    ("half of it expired", [{"kind": "batch_expires", "keep": 0.5, "first": 2}], 40, 40),
    ("refused for a line", [{"kind": "batch_failed", "lines": 0, "first": 1}], 40, 40),
    ("refused for tokens", [{"kind": "batch_failed", "code": "token_limit_exceeded", "lines": 0, "first": 1}], 40, 40),
    ("an upload too large", [{"kind": "upload_refused", "form": "too_large", "first": 1}], 40, 40),
    ("an upload that lost a byte", [{"kind": "upload_altered", "first": 1}], 40, 40),
    ("a create that is throttled", [{"kind": "rate_limited", "on": ["batch_create"], "retry_after_s": 0}], 40, 40),
    ("late lists", [{"kind": "list_lag", "for_ms": 200}], 40, 40),
    ("polls that fail", [{"kind": "server_error", "on": ["batch_retrieve"], "first": 3}], 40, 40),
    ("downloads that break", [{"kind": "disconnect", "on": ["file_content"], "first": 2}], 40, 40),
]


@pytest.mark.parametrize(("name", "faults", "least", "most"), SPOILT, ids=[row[0] for row in SPOILT])
def test_every_document_is_published_once_whatever_befalls(
    line: Line, simulator: Simulator, name: str, faults: list[dict[str, Any]], least: int, most: int
) -> None:
    """E6, E8: answered + failed + missing = sent; only what failed or is missing is sent again, and its bill known."""
    befalls(simulator, *[{"first": 1, **f} if f["kind"] == "rate_limited" else f for f in faults])
    notice = line.finish(line.submit(pipeline(), documents(40)))
    assert notice.state is BatchState.PUBLISHED, name
    assert published(line) == Counter(f"d{i}" for i in range(40))
    assert least <= len(billed_lines(simulator)) <= most


ANTHROPIC: list[tuple[str, list[dict[str, Any]], int]] = [
    # name, what befalls, lines billed
    ("counts say all is well", [{"kind": "counts_wrong"}], 40),
    ("carriage returns", [{"kind": "result_file", "form": "crlf"}], 40),
    ("a blank line", [{"kind": "result_file", "form": "blank_line"}], 40),
    ("no last line end", [{"kind": "result_file", "form": "no_final_newline"}], 40),
    ("a cut last line", [{"kind": "result_file", "form": "cut_last_line", "first": 1}], 41),
    ("failed lines", [{"kind": "server_error", "on": ["line"], "match": "number 3 ", "occurrences": [1]}], 40),
    ("overloaded lines", [{"kind": "overloaded", "on": ["line"], "match": "number 3 ", "occurrences": [1]}], 40),
    ("a missing row", [{"kind": "row", "form": "missing", "match": "number 3 ", "occurrences": [1]}], 41),
    ("a row of nobody", [{"kind": "row", "form": "unknown_id", "match": "number 3 ", "occurrences": [1]}], 41),
    ("two rows for one", [{"kind": "row", "form": "duplicate", "match": "number 3 "}], 40),
    (
        "a kind of row that nobody knows",
        [{"kind": "row", "form": "odd_type", "match": "number 3 ", "occurrences": [1]}],
        41,
    ),
    ("half of it expired", [{"kind": "batch_expires", "keep": 0.5, "first": 2}], 40),
    ("a create that is throttled", [{"kind": "rate_limited", "on": ["batch_create"], "first": 1}], 40),
    ("late lists", [{"kind": "list_lag", "for_ms": 200}], 40),
    ("polls that fail", [{"kind": "server_error", "on": ["batch_retrieve"], "first": 3}], 40),
    ("downloads that break", [{"kind": "disconnect", "on": ["batch_results"], "first": 2}], 40),
]


@pytest.mark.parametrize("kind", ["anthropic"])
@pytest.mark.parametrize(("name", "faults", "billed"), ANTHROPIC, ids=[row[0] for row in ANTHROPIC])
def test_so_it_is_with_anthropic(
    line: Line, simulator: Simulator, name: str, faults: list[dict[str, Any]], billed: int
) -> None:
    """E6, E8: requests in the create, no files, one line for each request."""
    befalls(simulator, *faults)
    notice = line.finish(line.submit(pipeline(), documents(40)))
    assert notice.state is BatchState.PUBLISHED, name
    assert published(line) == Counter(f"d{i}" for i in range(40))
    assert len(billed_lines(simulator)) == billed


def test_lines_that_the_provider_names_die_alone(line: Line, simulator: Simulator) -> None:
    """E8, row 40: a batch refused for two of its lines costs those two, and the others no retry."""
    fault = {"kind": "batch_failed", "code": "invalid_value", "param": "messages.1.content", "lines": 2, "first": 1}
    befalls(simulator, fault)
    frozen = pipeline(publish={"partial": True}, gates={"completion": 0.5})
    notice = line.finish(line.submit(frozen, documents(40)))
    assert (notice.counts.accepted, notice.counts.dead_letter) == (38, 2)
    assert len(billed_lines(simulator)) == 38
    assert notice.totals.retries == 0
    for item in dead_letters(line):
        assert item.failure is not None
        assert (item.failure.signal, item.failure.param) == (Signal.BAD_REQUEST, "messages.1.content")


def test_submissions_stay_within_what_may_be_enqueued(simulator: Simulator, tmp_path: Path) -> None:
    """E2, E6: requests, bytes and enqueued tokens split the work before anything is created; nothing is refused."""
    befalls(simulator, batches={"max_requests": 15, "max_enqueued_tokens": 1_000, "validate_ms": 50})
    line = Line(tmp_path, make_config(simulator.base_url, max_requests=15, enqueued_tokens=1_000))
    notice = line.finish(line.submit(pipeline(), documents(60)))
    line.close()
    assert notice.state is BatchState.PUBLISHED
    assert len(billed_lines(simulator)) == 60
    assert {each["status"] for each in listed(simulator, "batches")} == {"completed"}
    sizes = Counter(row["batch_id"] for row in billed_lines(simulator))
    assert len(sizes) >= 4
    assert max(sizes.values()) <= 15


def test_two_gateways_share_what_may_be_enqueued(simulator: Simulator, tmp_path: Path) -> None:
    """E2: the limit is the installation's; nothing is refused for what another process has out."""
    befalls(simulator, batches={"max_enqueued_tokens": 1_000, "validate_ms": 50})
    line = Line(tmp_path, make_config(simulator.base_url, max_requests=8, enqueued_tokens=1_000))  # many small shards
    first = line.loops.pop("provider_gateway")
    line.host, line.instance = "other", "1"
    line.start("provider_gateway")
    line.loops["first provider_gateway"] = first
    line.run_until(lambda: all(len(line.loops[each].owned()) == 1 for each in line.loops if "gateway" in each))
    notice = line.finish(line.submit(pipeline(), documents(40)))
    line.close()
    assert (notice.state, notice.totals.retries) == (BatchState.PUBLISHED, 0)
    assert len(billed_lines(simulator)) == 40
    assert {each["status"] for each in listed(simulator, "batches")} == {"completed"}


def test_a_limit_that_nobody_wrote_down_is_learned(line: Line, simulator: Simulator) -> None:
    """Row 42: the provider's own limit is found by halving, and no attempt is used up by it."""
    befalls(simulator, batches={"max_enqueued_tokens": 900})
    notice = line.finish(line.submit(pipeline(), documents(60)))
    assert notice.state is BatchState.PUBLISHED
    assert (len(billed_lines(simulator)), notice.totals.retries) == (60, 0)


def test_a_refused_key_leaves_everything_queued(line: Line, simulator: Simulator) -> None:
    """E8: the pool's bulk lane stops and says so; with the key back it goes on, and nothing was dead."""
    befalls(simulator, {"kind": "unauthorized", "on": ["file_create"]})
    job = line.submit(pipeline(), documents(20))
    line.run_until(lambda: any("bulk lane" in stall.reason for stall in line.gateway.stalls()))
    assert not line.completions(job)
    befalls(simulator)
    line.kill("provider_gateway")  # an operator mends the key and starts it again: the pause would last half a minute
    line.start("provider_gateway")
    assert line.finish(job).state is BatchState.PUBLISHED


@every_provider
def test_a_cancelled_job_cancels_its_batches_and_a_resume_keeps_what_was_paid(line: Line, simulator: Simulator) -> None:
    """E6, E11: what ran before the cancel was billed, is harvested, and is not paid again."""
    befalls(simulator, {"kind": "batch_stuck", "keep": 0.5, "first": 2})
    job = line.submit(pipeline(), documents(40))
    line.run_until(lambda: bool(simulator.ledger()["accepted"]["calls"]))
    line.command(job, Command.CANCEL)
    assert line.finish(job).state is BatchState.CANCELLED
    line.run_until(lambda: len(billed_lines(simulator)) >= 1 and not open_submissions(line))
    paid = len(billed_lines(simulator))
    assert 0 < paid < 40
    befalls(simulator)
    line.command(job, Command.RESUME)
    line.run_until(lambda: len(line.completions(job)) >= 2)
    assert line.completions(job)[-1].state is BatchState.PUBLISHED
    assert published(line) == Counter(f"d{i}" for i in range(40))
    assert len(billed_lines(simulator)) == 40


@every_provider
def test_a_stuck_batch_is_cancelled_and_only_the_rest_is_sent_again(
    simulator: Simulator, tmp_path: Path, kind: str
) -> None:
    """Row 51: what it did is kept."""
    befalls(simulator, {"kind": "batch_stuck", "keep": 0.5, "first": 2})
    line = Line(tmp_path, make_config(simulator.base_url, kind), bulk_timing=replace(QUICK, stuck=600))
    notice = line.finish(line.submit(pipeline(), documents(40)))
    line.close()
    assert notice.state is BatchState.PUBLISHED
    assert len(billed_lines(simulator)) == 40


def test_no_file_is_left_behind(line: Line, simulator: Simulator) -> None:
    """E6: input, output and error files are removed when everything is published."""
    befalls(simulator, {"kind": "server_error", "on": ["line"], "match": "number 3 ", "occurrences": [1]})
    line.finish(line.submit(pipeline(), documents(20)))
    line.run_until(lambda: not open_submissions(line))
    assert listed(simulator, "files") == []


def test_a_bulk_pipeline_without_a_bulk_pool_is_refused(line: Line, simulator: Simulator) -> None:
    """P4, P5: before anything is spent, with the remedy."""
    model = {"pools": ["realtime"], "max_output_tokens": 32}
    notice = line.finish(line.submit(pipeline(model=model), documents(3)))
    assert notice.state is BatchState.REFUSED
    assert "bulk" in (notice.reason or "")
    assert simulator.ledger()["accepted"]["calls"] == 0
