"""`openai`: batches whose rows, files, counts or states are not as they should be."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import openai
import pytest

from conformance.sdk.lines import DATA, end_of, jsonl, line, rows, scenario, start
from kit.simulator import Simulator


@pytest.mark.parametrize(
    ("form", "missing", "extra"),
    [("missing", 1, 0), ("duplicate", 0, 1), ("unknown_id", 1, 1), ("foreign", 0, 1)],
)
def test_rows_that_are_not_as_they_should_be(
    gpt: openai.OpenAI, simulator: Simulator, form: str, missing: int, extra: int
) -> None:
    data = jsonl([line(f"i-{n}", "Which licence?") for n in range(20)])
    simulator.set_scenario(scenario({"kind": "row", "form": form, "regex": r"i-7$"}))
    batch = end_of(gpt, start(gpt, data))
    found = Counter(row["custom_id"] for row in rows(gpt, batch.output_file_id))
    wanted = Counter({f"i-{n}": 1 for n in range(20)})
    assert (wanted - found).total() == missing
    assert (found - wanted).total() == extra
    assert simulator.ledger()["billed"]["calls"] == 20
    assert simulator.ledger()["lost"]["calls"] == (1 if form == "missing" else 0)


@pytest.mark.parametrize(
    ("fault", "response", "code"),
    [
        ({"kind": "line_error"}, None, "request_timeout"),
        ({"kind": "line_error", "form": "status_zero"}, 0, None),
        ({"kind": "rate_limited"}, 429, None),
        ({"kind": "reset_after_billing"}, None, "request_timeout"),
    ],
)
def test_error_rows_in_their_forms(
    gpt: openai.OpenAI, simulator: Simulator, fault: dict[str, Any], response: int | None, code: str | None
) -> None:
    simulator.set_scenario(scenario({**fault, "on": ["line"], "regex": "i-3$"}))
    batch = end_of(gpt, start(gpt, jsonl([line(f"i-{n}") for n in range(10)])))
    found = rows(gpt, batch.output_file_id) + rows(gpt, batch.error_file_id)
    assert len(found) == 10
    [row] = [row for row in found if row["custom_id"] == "i-3"]
    assert (None if row["response"] is None else row["response"]["status_code"]) == response
    assert (None if row["error"] is None else row["error"]["code"]) == code


@pytest.mark.parametrize("form", ["cut_last_line", "no_final_newline", "crlf", "blank_line", "bom"])
def test_spoiled_result_files(gpt: openai.OpenAI, simulator: Simulator, form: str) -> None:
    simulator.set_scenario(scenario({"kind": "result_file", "form": form}))
    batch = end_of(gpt, start(gpt, jsonl([line(f"i-{n}") for n in range(5)])))
    data = gpt.files.content(batch.output_file_id or "").read()
    assert gpt.files.retrieve(batch.output_file_id or "").bytes == len(data)
    pieces = data.split(b"\n")
    match form:
        case "cut_last_line":
            with pytest.raises(json.JSONDecodeError):
                json.loads(pieces[-1])
            assert simulator.ledger()["delivered"]["calls"] == 4
        case "no_final_newline":
            assert json.loads(pieces[-1])["custom_id"]
        case "crlf":
            assert data.count(b"\r\n") == 5
        case "blank_line":
            assert b"" in pieces[:-1]
        case "bom":
            assert data.startswith(b"\xef\xbb\xbf{")


def test_separators_inside_answers_are_no_ends_of_lines(gpt: openai.OpenAI, simulator: Simulator) -> None:
    simulator.set_scenario(scenario(answers=[{"content": {"t": "x"}, "form": "line_separators"}]))
    batch = end_of(gpt, start(gpt, jsonl([line(f"i-{n}") for n in range(5)])))
    data = gpt.files.content(batch.output_file_id or "").read()
    assert "\u2028" in data.decode()
    assert len(data.decode().splitlines()) > 5 == len(data.splitlines())


@pytest.mark.parametrize("form", ["all_completed", "zero", "null"])
def test_counts_that_lie(gpt: openai.OpenAI, simulator: Simulator, form: str) -> None:
    faults = ({"kind": "counts_wrong", "form": form}, {"kind": "line_error"})
    simulator.set_scenario(scenario(*faults))
    batch = end_of(gpt, start(gpt, DATA))
    counts = batch.request_counts
    told = None if counts is None else (counts.total, counts.completed, counts.failed)
    assert told == {"all_completed": (500, 500, 0), "zero": (0, 0, 0), "null": None}[form]


def test_create_whose_answer_is_lost_leaves_an_orphan(gpt: openai.OpenAI, simulator: Simulator) -> None:
    """E7: the submission is there, to be found by its metadata; for a while it is missing from lists."""
    faults = ({"kind": "reset_after_billing", "on": ["batch_create"], "first": 1}, {"kind": "list_lag", "for_ms": 5000})
    simulator.set_scenario(scenario(*faults))
    with pytest.raises(openai.APIConnectionError):
        start(gpt, DATA, metadata={"intent": "n-17"})
    assert list(gpt.batches.list()) == []
    simulator.set_clock(advance_s=6)
    [orphan] = [batch for batch in gpt.batches.list() if (batch.metadata or {}).get("intent") == "n-17"]
    assert end_of(gpt, orphan).status == "completed"


def test_polling_that_is_limited(gpt: openai.OpenAI, simulator: Simulator) -> None:
    simulator.set_scenario(scenario({"kind": "rate_limited", "on": ["batch_retrieve", "batch_list"], "first": 1}))
    batch = start(gpt, DATA)
    with pytest.raises(openai.RateLimitError):
        gpt.batches.retrieve(batch.id)
    with pytest.raises(openai.RateLimitError):
        gpt.batches.list()
    assert end_of(gpt, batch).status == "completed"


def test_odd_status(gpt: openai.OpenAI, simulator: Simulator) -> None:
    simulator.set_scenario(scenario({"kind": "odd_status", "status": "paused"}))
    assert str(start(gpt, DATA).status) == "paused"


def test_failures_by_scenario(gpt: openai.OpenAI, simulator: Simulator) -> None:
    story = {"kind": "batch_failed", "code": "invalid_json_line", "lines": 3, "match": '"job": "odd"'}
    simulator.set_scenario(scenario({**story, "match": None, "regex": r'"job":\s*"odd"'}))
    batch = end_of(gpt, start(gpt, DATA, metadata={"job": "odd"}))
    assert batch.errors is not None
    assert [error.line for error in batch.errors.data or []] == [1, 2, 3]
    assert end_of(gpt, start(gpt, DATA, metadata={"job": "even"})).status == "completed"


def test_results_that_are_gone(gpt: openai.OpenAI, simulator: Simulator) -> None:
    header = {"x-sim-fault": json.dumps({"kind": "results_gone"})}
    batch = end_of(gpt, start(gpt, DATA, extra_headers=header))
    assert batch.status == "completed"
    with pytest.raises(openai.NotFoundError):
        gpt.files.content(batch.output_file_id or "")
    assert simulator.ledger()["lost"]["calls"] == 500


def test_faults_of_lines_are_counted(gpt: openai.OpenAI, simulator: Simulator) -> None:
    """The same seed and lines, the same faults; each is drawn for the line alone."""
    rules = ({"kind": "line_error", "rate": 0.1}, {"kind": "row", "form": "missing", "rate": 0.1})
    simulator.set_scenario(scenario(*rules))
    seen = []
    for _ in range(2):
        simulator.reset()
        batch = end_of(gpt, start(gpt, DATA))
        missed = {row["custom_id"] for row in rows(gpt, batch.error_file_id)}
        found = {row["custom_id"] for row in rows(gpt, batch.output_file_id)}
        counts = simulator.ledger()["by_fault"]
        assert counts == {"line_error": len(missed), "row_missing": 500 - len(missed) - len(found)}
        seen.append((missed, found))
    assert seen[0] == seen[1]
    assert 20 < len(seen[0][0]) < 90
