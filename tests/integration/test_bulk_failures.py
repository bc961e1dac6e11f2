"""What befalls whole batches and their results, row by row of the failure table, and what the line makes of it (E8)."""

import logging
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
    listed,
    make_config,
    open_submissions,
    pipeline,
    published,
)
from kit.line import QUICK, Line
from kit.simulator import Simulator
from nightmill.kernel.domain.lifecycle import BatchState
from nightmill.kernel.runtime.memory import MemoryBroker
from nightmill.kernel.wire.messages import AttemptAnswered, ItemSettled
from nightmill.provider_gateway.failures import Signal

LENIENT: dict[str, Any] = {"publish": {"partial": True}, "gates": {"completion": 0}}
COUNT = 20
EVERYTHING = Counter(f"d{i}" for i in range(COUNT))
NOT_THERE = {"kind": "client_error", "status": 404}

STOPS: list[tuple[str, dict[str, Any], Signal]] = [
    ("41 an id twice", {"code": "duplicate_custom_id"}, Signal.BATCH_FAULTY),
    ("41 another model", {"code": "mismatched_model", "lines": 3}, Signal.BATCH_FAULTY),
    ("43 no reason", {"code": "unknown"}, Signal.BATCH_REFUSED),
    ("43 billing", {"code": "error", "message": "Billing hard limit has been reached."}, Signal.OUT_OF_CREDIT),
]


@pytest.mark.parametrize(("name", "how", "signal"), STOPS, ids=[row[0] for row in STOPS])
def test_a_refusal_that_no_other_batch_would_mend_stops_the_lane(
    line: Line, simulator: Simulator, name: str, how: dict[str, Any], signal: Signal
) -> None:
    """E8, rows 41, 43: people are told, no item is spent on it, and no batch follows; mended, the job goes on.

    Each of two partitions has made a batch by then, and may have made half of one for a refusal without a reason.
    """
    befalls(simulator, {"kind": "batch_failed", "lines": 0, **how})
    job = line.submit(pipeline(), documents(COUNT))
    line.run_until(lambda: any("is stopped" in stall.reason for stall in line.gateway.stalls()))
    line.run_until(lambda: bool(told(line)))
    line.run_until(lambda: open_submissions(line) == 0)  # one that is refused after the mend would stop the lane again
    for _ in range(100):
        line.step()
    assert {failure_signal(each) for each in told(line)} == {signal}, name
    assert line.told(ItemSettled, "item-settled") == []
    assert len(listed(simulator, "batches")) <= 4
    befalls(simulator)
    line.kill("provider_gateway")  # an operator mends it and starts it again: the pause would last half a minute
    line.start("provider_gateway")
    notice = line.finish(job)
    assert (notice.state, notice.totals.retries) == (BatchState.PUBLISHED, 0)
    assert len(billed_lines(simulator)) == COUNT


def told(line: Line) -> list[AttemptAnswered]:
    return line.told(AttemptAnswered, "attempt-answered")


def failure_signal(answered: AttemptAnswered) -> str | None:
    return None if answered.failure is None else answered.failure.signal


GOES_ON: list[tuple[str, str, list[dict[str, Any]]]] = [
    # name, provider, what befalls
    ("12 a create in conflict", "openai",
     [{"kind": "client_error", "status": 409, "on": ["batch_create"], "first": 1}]),
    ("17 a create too large", "anthropic",
     [{"kind": "client_error", "status": 413, "body": "html", "on": ["batch_create"], "first": 1}]),
    ("17 in words", "openai", [{"kind": "batch_failed", "code": "error", "lines": 0, "first": 1,
      "message": "The batch input file is larger than the 209715200 maximum for the gpt-6-luna model"}]),
    ("20 a batch that is not shown", "openai", [{**NOT_THERE, "on": ["batch_retrieve"]}]),
    ("20 a batch that is not shown", "anthropic", [{**NOT_THERE, "on": ["batch_retrieve"]}]),
    ("24 an upload that arrived", "openai", [{"kind": "reset_after_billing", "on": ["file_create"], "first": 1}]),
    ("24 an upload cut off", "openai", [{"kind": "reset_before_billing", "on": ["file_create"], "first": 1}]),
    ("42 in words", "openai", [{"kind": "batch_failed", "code": "error", "lines": 0, "first": 1,
      "message": "Enqueued token limit reached for gpt-4.1. Limit: 900,000 enqueued tokens."}]),
    ("52 a file that is not there yet", "openai", [{**NOT_THERE, "on": ["file_content"], "first": 3}]),
    ("52 a size that is not there yet", "openai", [{**NOT_THERE, "on": ["file_retrieve"], "first": 1}]),
    ("52 results that are not there yet", "anthropic", [{**NOT_THERE, "on": ["batch_results"], "first": 3}]),
    ("52 a file that ends early", "openai",
     [{"kind": "cut_json", "framing": "close", "on": ["file_content"], "first": 1}]),
    ("52 a file that breaks off", "openai", [{"kind": "cut_json", "on": ["file_content"], "first": 1}]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind", "faults"), GOES_ON, ids=[f"{row[0]}, {row[1]}" for row in GOES_ON])
def test_nothing_is_paid_twice_and_nothing_left_behind(
    line: Line, simulator: Simulator, name: str, faults: list[dict[str, Any]]
) -> None:
    """E6, E8: no attempt is used up, no request sent again, and no file stays at the provider."""
    befalls(simulator, *faults)
    notice = line.finish(line.submit(pipeline(), documents(COUNT)))
    assert notice.state is BatchState.PUBLISHED, name
    assert published(line) == EVERYTHING
    assert (len(billed_lines(simulator)), notice.totals.retries, notice.totals.unknown_attempts) == (COUNT, 0, 0)
    line.run_until(lambda: not open_submissions(line))
    assert listed(simulator, "files") == listed(simulator, "messages/batches") == []


LOST: list[tuple[str, str, list[dict[str, Any]]]] = [
    ("20 a batch that nobody knows", "openai",
     [{**NOT_THERE, "on": ["batch_retrieve"]}, {"kind": "list_lag", "for_ms": 600_000}]),
    ("52 results gone", "openai", [{"kind": "results_gone"}]),
    ("52 results gone", "anthropic", [{"kind": "results_gone"}]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind", "faults"), LOST, ids=[f"{row[0]}, {row[1]}" for row in LOST])
def test_what_the_provider_has_lost_is_for_a_person_to_pay_again(
    simulator: Simulator, tmp_path: Path, name: str, kind: str, faults: list[dict[str, Any]]
) -> None:
    """E8, rows 20, 52: it is told while it is looked for; then each item ends, its cost unknown, and none is called."""
    befalls(simulator, *faults)
    line = Line(tmp_path, make_config(simulator.base_url, kind), bulk_timing=replace(QUICK, lost=600))
    job = line.submit(pipeline(**LENIENT), documents(COUNT))
    line.run_until(lambda: any("they are looked for" in stall.reason for stall in line.gateway.stalls()))
    notice = line.finish(job)
    dead = dead_letters(line)
    line.close()
    assert notice.counts.dead_letter == len(dead) == COUNT, name
    assert {item.failure.signal for item in dead if item.failure is not None} == {Signal.RESULTS_LOST}
    assert notice.totals.unknown_attempts == COUNT
    assert len(billed_lines(simulator)) == COUNT


ONE_FAILS = {"kind": "client_error", "status": 400, "on": ["line"], "match": "number 3 ", "occurrences": [1]}


@pytest.mark.parametrize(
    ("gone", "ends", "unknown"),
    [
        # answered and billed, and in no file any more; the one that failed is known
        ("output", {Signal.RESULTS_LOST: COUNT - 1, Signal.BAD_REQUEST: 1}, COUNT - 1),
        # whether it was billed is not known; it goes again, and is answered
        ("error", {}, 1),
    ],
)
def test_one_result_file_that_is_gone_takes_only_what_was_in_it(
    simulator: Simulator, tmp_path: Path, caplog: pytest.LogCaptureFixture, gone: str, ends: Any, unknown: int
) -> None:
    """E6, E8, row 52: the other file is harvested at once; an alarm names the one that is given up."""
    befalls(simulator, {"kind": "results_gone", "file": gone, "first": 1}, ONE_FAILS)
    broker, config = MemoryBroker(partitions=1), make_config(simulator.base_url, "openai")
    line = Line(tmp_path, config, broker=broker, bulk_timing=replace(QUICK, longest_retry=200))
    job = line.submit(pipeline(**LENIENT), documents(COUNT))
    line.run_until(lambda: any(f"in its {gone} file" in stall.reason for stall in line.gateway.stalls()))
    here = 1 if gone == "output" else COUNT - 1
    line.run_until(lambda: len(told(line)) == here)
    assert any(f"in its {gone} file" in stall.reason for stall in line.gateway.stalls())
    line.kill("provider_gateway")  # its next life is less patient; what was answered stays answered
    line.bulk_timing = replace(QUICK, longest_retry=200, lost=100)
    line.start("provider_gateway")
    notice = line.finish(job)
    dead, in_doubt = dead_letters(line), [each for each in told(line) if each.cost_nano_usd is None]
    line.run_until(lambda: not open_submissions(line))
    line.close()
    assert all(each.reserved_nano_usd > 0 for each in in_doubt)
    assert len(in_doubt) == unknown
    assert Counter(item.failure.signal for item in dead if item.failure is not None) == ends
    assert notice.counts.accepted == COUNT - len(dead)
    assert notice.totals.unknown_attempts == unknown
    assert len(billed_lines(simulator)) == COUNT - (gone == "output")
    (alarm,) = [vars(each) for each in caplog.records if vars(each).get("action") == "results_lost"]
    assert list(alarm["files"]) == [gone]
    assert alarm["missing"] == COUNT - here


@pytest.mark.parametrize(
    ("faults", "unknown"),
    [([], 0), ([{"kind": "row", "form": "missing", "match": "number 3 ", "occurrences": [1]}], 1)],
    ids=["whole", "a line short"],
)
def test_a_result_file_that_never_has_its_size_is_read_in_the_end(
    simulator: Simulator, tmp_path: Path, caplog: pytest.LogCaptureFixture, faults: list[dict[str, Any]], unknown: int
) -> None:
    """E6, E8, row 52: it is not downloaded for ever; what it lacks is unknown, and people are told."""
    befalls(simulator, {"kind": "result_file", "form": "odd_size"}, *faults)
    timing = replace(QUICK, retry=10, longest_retry=20)
    line = Line(tmp_path, make_config(simulator.base_url), broker=MemoryBroker(partitions=1), bulk_timing=timing)
    notice = line.finish(line.submit(pipeline(), documents(COUNT)))
    line.close()
    assert notice.state is BatchState.PUBLISHED
    assert published(line) == EVERYTHING
    assert (notice.totals.unknown_attempts, len(billed_lines(simulator))) == (unknown, COUNT + unknown)
    alarms = [vars(each) for each in caplog.records if vars(each).get("action") == "results_misfit"]
    assert len(alarms) == 1 + unknown
    assert all(alarm["levelno"] == logging.ERROR and alarm["files"][0].startswith("output: ") for alarm in alarms)


def test_a_provider_short_of_room_gets_smaller_batches(simulator: Simulator, tmp_path: Path) -> None:
    """Row 47: lines that it refused for its own limits wait for the next batch, half as large, at no cost."""
    befalls(simulator, {"kind": "rate_limited", "on": ["line"], "regex": "number 1?[0-9] end", "occurrences": [1]})
    config = make_config(simulator.base_url, "openai", max_requests=20)
    line = Line(tmp_path, config, broker=MemoryBroker(partitions=1))
    notice = line.finish(line.submit(pipeline(), documents(20)))
    line.close()
    assert (notice.state, notice.totals.retries) == (BatchState.PUBLISHED, 0)
    assert len(billed_lines(simulator)) == 20
    first, second, *others = [each["request_counts"]["total"] for each in reversed(listed(simulator, "batches"))]
    assert (first, second + sum(others)) == (20, 20)
    assert second <= 10


@pytest.mark.parametrize("kind", ["anthropic"])
def test_a_line_that_is_refused_is_a_dead_letter_with_its_field(line: Line, simulator: Simulator) -> None:
    """Row 48: `errored` with invalid_request_error ends that item alone; nothing of it is billed."""
    words = "messages.0.content: Input should be a valid string"
    befalls(simulator, {"kind": "client_error", "status": 400, "message": words, "on": ["line"], "match": "number 3 "})
    notice = line.finish(line.submit(pipeline(**LENIENT), documents(COUNT)))
    assert (notice.counts.accepted, notice.counts.dead_letter) == (COUNT - 1, 1)
    (dead,) = dead_letters(line)
    assert (dead.source_id, dead.failure is not None and dead.failure.param) == ("d3", "messages.0.content")
    assert len(billed_lines(simulator)) == COUNT - 1


STRANGE = [
    ("49", "missing", {"missing": 1}),
    ("50 twice", "duplicate", {"repeated": 1}),
    ("50", "unknown_id", {"unknown": 1}),
]


@pytest.mark.parametrize(("name", "form", "facts"), STRANGE, ids=[row[0] for row in STRANGE])
def test_results_that_do_not_add_up_raise_an_alarm(
    line: Line,
    simulator: Simulator,
    caplog: pytest.LogCaptureFixture,
    name: str,
    form: str,
    facts: dict[str, int],
) -> None:
    """Rows 49, 50: one in a thousand is too many; lines of nobody are kept for people to look at."""
    befalls(simulator, {"kind": "row", "form": form, "match": "number 3 ", "occurrences": [1]})
    assert line.finish(line.submit(pipeline(), documents(COUNT))).state is BatchState.PUBLISHED
    alarms = [vars(record) for record in caplog.records if record.levelno == logging.ERROR]
    assert any(facts.items() <= alarm.items() for alarm in alarms), name
    assert all(Path(alarm["kept_in"]).exists() for alarm in alarms if alarm["action"] == "strange_lines")
