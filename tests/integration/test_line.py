"""How the services fit together: every service on the memory log, a real provider over HTTP, real files.

The simulator's ledger is the oracle of what was paid; the published files are what readers see.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.line import SERVICES, Line
from kit.simulator import Simulator
from nightmill.kernel.domain.lifecycle import BatchState, Command, ControlState
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.settings import Config
from nightmill.publisher.results import read_rows

LABELS = ["a", "b", "c"]
SCHEMA = {"type": "object", "properties": {"label": {"enum": LABELS}}, "required": ["label"]}


@pytest.fixture
def line(simulator: Simulator, tmp_path: Path) -> Iterator[Line]:
    pool = {
        "provider": "openai_compatible",
        "base_url": simulator.base_url,
        "model": "simulated",
        "limits": {"slots": 20},
        "context_tokens": 2000,
        "sensitivity": "internal",
        "call_deadline": "5s",
    }
    config = {
        "pools": {"sim": pool, "underestimated": {**pool, "token_factor": 0.01}},
        "prices": {
            "version": "1",
            "models": {"simulated": {"input_usd_per_million": 0.15, "output_usd_per_million": 0.6}},
        },
        "retry": {"classes": {name: {"base": "0.05s", "cap": "0.2s"} for name in ("transient", "capacity", "account")}},
        "tenants": {"default": {"sensitivity": "restricted"}},
    }
    line = Line(tmp_path, Config.model_validate(config))
    yield line
    line.close()


def pipeline(**fields: Any) -> Pipeline:
    base: dict[str, Any] = {
        "name": "label",
        "input": {"id": "id", "fields": ["text"]},
        "prompt": "system:\nLabel the text.\nuser:\n{{ text }}",
        "output": SCHEMA,
        "model": {"pools": ["sim"], "max_output_tokens": 32},
        "limits": {"budget_usd": 5},
    }
    return Pipeline.model_validate({**base, **fields})


def documents(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"id": f"d{i}", "text": f"document number {i}"} for i in range(start, start + count)]


def published(line: Line, dataset: str = "default.label") -> list[dict[str, Any]]:
    return list(read_rows(line.folder / "results" / dataset))


def settled(line: Line, job: str) -> int:
    row = line.publications().get(job)
    return 0 if row is None else row.counts.accepted


def test_documents_become_a_published_costed_result(line: Line, simulator: Simulator) -> None:
    """M1-M5, Q3, Q5, O1: every document once, with what it cost, and the provider's bill agrees to the token."""
    job = line.submit(pipeline(), documents(120))
    notice = line.finish(job)
    assert notice.state is BatchState.PUBLISHED
    assert notice.counts.accepted == 120
    bill = simulator.ledger()["billed"]
    assert (notice.totals.attempts, notice.totals.input_tokens) == (bill["calls"], bill["prompt_tokens"])
    assert notice.totals.output_tokens == bill["completion_tokens"]
    expected_nano_usd = sum(row["_cost_nano_usd"] for row in published(line))
    assert notice.totals.cost_nano_usd == expected_nano_usd
    rows = published(line)
    assert Counter(row["_source_id"] for row in rows) == Counter(f"d{i}" for i in range(120))
    assert {row["label"] for row in rows} <= set(LABELS)


def test_a_second_run_calls_nobody_and_a_changed_prompt_makes_a_new_version(line: Line, simulator: Simulator) -> None:
    """M3: an equal key is settled from its earlier outcome; a new prompt is a new answer."""
    line.finish(line.submit(pipeline(), documents(40)))
    again = line.finish(line.submit(pipeline(), documents(40)))
    assert again.counts.reused == 40
    assert again.totals.attempts == 0
    assert again.totals.cost_nano_usd == 0
    assert simulator.ledger()["billed"]["calls"] == 40
    changed = pipeline(prompt="system:\nLabel this text.\nuser:\n{{ text }}")
    renewed = line.finish(line.submit(changed, documents(40)))
    assert simulator.ledger()["billed"]["calls"] == 80
    assert (again.version, renewed.version) == (2, 3)
    dataset = line.dataset("default.label")
    assert dataset is not None
    assert [version.version for version in dataset.versions] == [1, 2, 3]


def test_added_columns_and_budget_change_nothing(line: Line, simulator: Simulator) -> None:
    """M3: what does not change answers does not change keys."""
    line.finish(line.submit(pipeline(), documents(10)))
    richer = [{**row, "note": "new"} for row in documents(10)]
    notice = line.finish(line.submit(pipeline(limits={"budget_usd": 7}), richer))
    assert notice.counts.reused == 10
    assert simulator.ledger()["billed"]["calls"] == 10


@pytest.mark.parametrize("victim", [name for name in SERVICES if name != "provider_gateway"])
def test_a_killed_service_goes_on_where_it_was(line: Line, simulator: Simulator, victim: str) -> None:
    """E1, M4: whatever dies in the middle, every item is published once; only calls in flight may be paid again."""
    simulator.set_scenario({"latency": {"fixed_ms": 30}})
    job = line.submit(pipeline(), documents(150))
    line.run_until(lambda: settled(line, job) >= 30)
    line.kill(victim)
    line.start(victim)
    notice = line.finish(job)
    assert notice.state is BatchState.PUBLISHED
    assert notice.counts.accepted == 150
    assert Counter(row["_source_id"] for row in published(line)) == Counter(f"d{i}" for i in range(150))
    assert simulator.ledger()["billed"]["calls"] <= 150 + 20


def test_cancel_fences_and_resume_pays_nothing_again(line: Line, simulator: Simulator) -> None:
    """E10, E11, O1: nothing of a cancelled generation is published; a new one keeps what was paid for, and the job's
    spend is the provider's bill, calls that were under way at the cancel included."""
    simulator.set_scenario({"latency": {"fixed_ms": 500}})
    job = line.submit(pipeline(), documents(200))
    line.run_until(lambda: settled(line, job) >= 1)
    line.command(job, Command.CANCEL)
    simulator.set_scenario({"latency": {"fixed_ms": 40}})
    cancelled = line.finish(job)
    assert cancelled.state is BatchState.CANCELLED
    control = line.control(job)
    assert control is not None
    assert control.state is ControlState.CANCELLED
    for _ in range(200):
        line.step()
    assert published(line) == []
    paid = simulator.ledger()["billed"]["calls"]
    assert paid < 200
    line.command(job, Command.RESUME)
    resumed = line.finish(job, times=2)
    assert resumed.state is BatchState.PUBLISHED
    assert resumed.generation == 2
    assert Counter(row["_source_id"] for row in published(line)) == Counter(f"d{i}" for i in range(200))
    bill = simulator.ledger()["billed"]
    assert bill["calls"] == 200
    assert resumed.totals.attempts == 200
    assert resumed.totals.input_tokens == bill["prompt_tokens"]
    assert resumed.totals.output_tokens == bill["completion_tokens"]
    # 0.15 and 0.60 USD a million tokens
    assert resumed.totals.cost_nano_usd == bill["prompt_tokens"] * 150 + bill["completion_tokens"] * 600


def test_failures_take_the_path_of_their_class(line: Line, simulator: Simulator) -> None:
    """E8, E9: throttled and broken calls come again under the same key; what can not be read is dead, alone."""
    simulator.set_scenario(
        {
            "faults": [
                {"kind": "rate_limited", "match": "number 3 ", "occurrences": [1], "retry_after_s": 1},
                {"kind": "server_error", "match": "number 4 ", "occurrences": [1, 2]},
                {"kind": "context_length_exceeded", "match": "number 5 "},
                {"kind": "reset_after_billing", "match": "number 6 ", "occurrences": [1]},
                {"kind": "cut_json", "match": "number 7 ", "occurrences": [1]},
                {"kind": "html", "match": "number 8 ", "occurrences": [1]},
            ]
        }
    )
    rows = [{"id": f"d{i}", "text": f"document number {i} end"} for i in range(30)]
    notice = line.finish(line.submit(pipeline(publish={"partial": True}, gates={"completion": 0.9}), rows))
    assert notice.state is BatchState.PARTIAL_FAILED
    assert (notice.counts.accepted, notice.counts.dead_letter) == (29, 1)
    bill = simulator.ledger()
    unknown = bill["lost"]["calls"]
    assert unknown >= 1
    assert notice.totals.unknown_attempts >= unknown
    assert Counter(row["_source_id"] for row in published(line)) == Counter(f"d{i}" for i in range(30) if i != 5)


def test_an_invalid_answer_is_mended_once_or_parked(line: Line, simulator: Simulator) -> None:
    """Q1, Q2: one bounded repair, then review; it never slips into the published set."""
    simulator.set_scenario(
        {
            "answers": [
                {"regex": "(?s)number 1 .*not accepted", "content": {"label": "a"}},
                {"match": "number 1 ", "content": "not json at all"},
                {"match": "number 2 ", "content": '{"label": "zebra"}'},
                {"match": "number 3 ", "form": "fenced"},
            ]
        }
    )
    rows = [{"id": f"d{i}", "text": f"document number {i} end"} for i in range(10)]
    job = line.submit(pipeline(), rows)
    held = line.finish(job)
    assert held.state is BatchState.HELD
    assert (held.counts.accepted, held.counts.in_review) == (9, 1)
    assert held.totals.repairs == 2
    assert published(line) == []
    line.command(job, Command.APPROVE)
    approved = line.finish(job, times=2)
    assert approved.state is BatchState.PARTIAL_FAILED
    assert Counter(row["_source_id"] for row in published(line)) == Counter(f"d{i}" for i in range(10) if i != 2)


REFUSALS: list[tuple[str, Callable[[], tuple[Pipeline, list[dict[str, Any]]]], str]] = [
    ("no price", lambda: (pipeline(model={"pools": ["free"], "max_output_tokens": 8}), documents(3)), "free"),
    ("budget", lambda: (pipeline(limits={"budget_usd": 0.00001}), documents(50)), "budget"),
    ("duplicate", lambda: (pipeline(), [*documents(3), *documents(1)]), "d0"),
    ("missing field", lambda: (pipeline(), [*documents(2), {"id": "x"}]), "text"),
    ("missing id", lambda: (pipeline(), [*documents(2), {"text": "x"}]), "id"),
    ("sensitivity", lambda: (pipeline(sensitivity="confidential"), documents(3)), "confidential"),
    ("empty", lambda: (pipeline(), []), "no rows"),
]


@pytest.mark.parametrize(("name", "given", "named"), REFUSALS, ids=[r[0] for r in REFUSALS])
def test_a_job_that_can_not_run_is_refused_before_anything_is_spent(
    line: Line, simulator: Simulator, name: str, given: Callable[[], tuple[Pipeline, list[dict[str, Any]]]], named: str
) -> None:
    """P4, P6: the completion notice names place, value and remedy; the provider hears nothing."""
    frozen, rows = given()
    notice = line.finish(line.submit(frozen, rows))
    assert notice.state is BatchState.REFUSED, name
    assert named in (notice.reason or "")
    assert simulator.ledger()["accepted"]["calls"] == 0


def test_a_document_over_the_context_fails_alone(line: Line) -> None:
    """P7: that row only, never the job."""
    rows = [*documents(5), {"id": "long", "text": "word " * 5000}]
    notice = line.finish(line.submit(pipeline(publish={"partial": True}, gates={"completion": 0.5}), rows))
    assert (notice.counts.accepted, notice.counts.dead_letter) == (5, 1)


def test_the_spend_stops_at_the_budget(line: Line, simulator: Simulator) -> None:
    """E10: a job that costs more than was estimated is held at its budget; nothing fails, and resume goes on."""
    simulator.set_scenario({"latency": {"fixed_ms": 100}})
    rows = [{"id": f"d{i}", "text": f"document number {i} " + "word " * 200} for i in range(1_400)]
    model = {"pools": ["underestimated"], "max_output_tokens": 8}
    frozen = pipeline(model=model, repair={"attempts": 0}, limits={"budget_usd": 0.016})
    job = line.submit(frozen, rows)
    held = line.finish(job)
    assert held.state is BatchState.HELD, held.reason
    assert "budget" in (held.reason or "")
    assert held.totals.cost_nano_usd > 16_000_000
    calls = simulator.ledger()["billed"]["calls"]
    for _ in range(100):
        line.step()
    # two partitions, three seconds of the seen rate may be on their way; 20 slots of 100 ms make 200 calls a second
    outstanding = 2 * 4 * 20 + 3 * 200
    assert simulator.ledger()["billed"]["calls"] <= min(calls + outstanding, 1_399)
