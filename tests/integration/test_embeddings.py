"""Embeddings through the whole line: real services, a real provider over HTTP, real files (E7).

The simulator gives each text a vector of its own, so that a vector in the wrong row is seen; its ledger is the oracle
of what was paid.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kit.line import Line
from kit.simulator import Simulator
from nightmill.kernel.domain.lifecycle import BatchState, Lane
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.settings import Config
from nightmill.kernel.wire.messages import AttemptAnswered, Refusal
from nightmill.provider_simulator.vectors import vector
from nightmill.publisher.results import read_failures, read_rows, read_table

MODEL = "text-embedding-3-small"
DATASET = "default.embed"
INPUTS = 32  #: of one call


@pytest.fixture
def line(simulator: Simulator, tmp_path: Path) -> Iterator[Line]:
    pool = {
        "provider": "openai",
        "base_url": simulator.base_url,
        "model": MODEL,
        "limits": {"slots": 4},
        "context_tokens": 500,
        "tokenizer": "cl100k_base",
        "call_deadline": "5s",
        "embeddings": {"max_inputs": INPUTS},
        "bulk": {},
    }
    chat = {**pool, "embeddings": None, "bulk": None}
    config = {
        "pools": {
            "vectors": pool,
            "server": {**pool, "provider": "openai_compatible", "refuses": ["encoding_format"], "bulk": None},
            "chat": chat,
            "anthropic": {**chat, "provider": "anthropic"},
        },
        "prices": {
            "version": "1",
            "models": {MODEL: {"input_usd_per_million": 0.02, "output_usd_per_million": 0, "batch_discount": 0.5}},
        },
        "retry": {
            "classes": {
                name: {"base": "0.05s", "cap": "0.2s"}
                for name in ("transient", "capacity", "account", "output_invalid")
            }
        },
        "tenants": {"default": {"sensitivity": "restricted"}},
    }
    line = Line(tmp_path, Config.model_validate(config))
    yield line
    line.close()


def pipeline(dimensions: int = 8, pool: str = "vectors", **fields: Any) -> Pipeline:
    base: dict[str, Any] = {
        "name": "embed",
        "input": {"id": "id", "fields": ["text"]},
        "prompt": "{{ text }}",
        "embedding": {"dimensions": dimensions, "shorten": True},
        "model": {"pools": [pool]},
        "publish": {"columns": ["text"]},
        "limits": {"budget_usd": 5},
    }
    return Pipeline.model_validate({**base, **fields})


def documents(count: int) -> list[dict[str, Any]]:
    return [{"id": f"d{i}", "text": f"document number {i} " + "and so on " * (i % 7)} for i in range(count)]


def refused(line: Line, job: str) -> Refusal:
    line.run_until(lambda: job in line.publications())
    sealed = line.publications()[job].sealed
    assert sealed is not None
    assert sealed.refusal is not None
    return sealed.refusal


def check_vectors(line: Line, count: int, dimensions: int = 8) -> None:
    """Every document is published once, with the vector of its own text."""
    rows = list(read_rows(line.folder / "results" / DATASET))
    assert Counter(row["_source_id"] for row in rows) == Counter(f"d{i}" for i in range(count))
    for row in rows:
        own = vector(row["text"].strip(), dimensions=dimensions, seed=0)
        assert row["embedding"] == pytest.approx(list(own), abs=1e-7)


@pytest.mark.parametrize("pool", ["vectors", "server"])
def test_documents_become_vectors_of_one_size(line: Line, simulator: Simulator, pool: str) -> None:
    """E7, Q5, P4: many items in one call, each with the vector of its own text; tokens and cost are the bill's."""
    job = line.submit(pipeline(pool=pool), documents(100))
    notice = line.finish(job)
    assert (notice.state, notice.counts.accepted, notice.totals.attempts) == (BatchState.PUBLISHED, 100, 100)
    check_vectors(line, 100)
    bill = simulator.ledger()["billed"]
    assert bill["calls"] <= 2 * -(-100 // INPUTS)
    assert notice.totals.input_tokens == bill["prompt_tokens"]
    assert notice.totals.cost_nano_usd == 20 * bill["prompt_tokens"]
    table = read_table(line.folder / "results" / DATASET)
    assert table is not None
    assert table.schema.field("embedding").type == pa.list_(pa.float32(), 8)
    assert sum(table["_cost_nano_usd"].to_pylist()) == notice.totals.cost_nano_usd


def test_a_second_run_calls_nobody(line: Line, simulator: Simulator) -> None:
    """M3."""
    line.finish(line.submit(pipeline(), documents(40)))
    paid = simulator.ledger()["billed"]["calls"]
    notice = line.finish(line.submit(pipeline(publish={"format": "jsonl", "columns": ["text"]}), documents(40)))
    assert (notice.counts.reused, simulator.ledger()["billed"]["calls"]) == (40, paid)
    check_vectors(line, 40)


def test_long_vectors_go_by_reference(line: Line) -> None:
    """Over 8 KiB a vector is a blob; readers see no difference."""
    notice = line.finish(line.submit(pipeline(1_600), documents(5)))
    assert notice.state is BatchState.PUBLISHED
    check_vectors(line, 5, 1_600)
    assert all(told.output is None and told.output_digest for told in line.told(AttemptAnswered, "attempt-answered"))


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "client_error", "status": 400, "match": "number 17 "},
        {"kind": "context_length_exceeded", "match": "number 17 "},
    ],
    ids=["refused", "too long"],
)
def test_one_bad_input_takes_nobody_with_it(line: Line, simulator: Simulator, fault: dict[str, Any]) -> None:
    """E8: the refusal names nobody, so the call is divided until it is found; nobody else uses a try for it."""
    simulator.set_scenario({"faults": [fault]})
    job = line.submit(pipeline(gates={"completion": 0.9}, publish={"partial": True}), documents(64))
    notice = line.finish(job)
    assert (notice.counts.accepted, notice.counts.dead_letter) == (63, 1)
    assert (notice.totals.attempts, notice.totals.retries) == (63, 0)  # what is refused unbilled is no cost
    assert [row["source_id"] for row in read_failures(line.folder / "results" / DATASET)] == ["d17"]
    assert notice.totals.input_tokens == simulator.ledger()["billed"]["prompt_tokens"]


def test_an_input_that_breaks_its_server_dies_alone(line: Line, simulator: Simulator) -> None:
    """E8, E15: a failure that may be anybody's costs each a try; who failed travels with fewer, then alone."""
    simulator.set_scenario({"faults": [{"kind": "server_error", "status": 500, "match": "number 9 "}]})
    notice = line.finish(line.submit(pipeline(gates={"completion": 0.9}, publish={"partial": True}), documents(64)))
    assert (notice.counts.accepted, notice.counts.dead_letter) == (63, 1)
    assert [row["source_id"] for row in read_failures(line.folder / "results" / DATASET)] == ["d9"]


@pytest.mark.parametrize("form", ["count", "dimension", "nan", "zero"])
def test_vectors_that_are_wrong_are_asked_for_again(line: Line, simulator: Simulator, form: str) -> None:
    """Row 39, Q1, Q2: nothing wrong is published, what was paid twice is on the bill, and nobody has to look at it."""
    simulator.set_scenario({"answers": [{"vectors": form, "first": 1}]})
    notice = line.finish(line.submit(pipeline(), documents(40)))
    assert (notice.state, notice.counts.accepted) == (BatchState.PUBLISHED, 40)
    assert notice.totals.retries >= 1
    check_vectors(line, 40)
    assert notice.totals.input_tokens == simulator.ledger()["billed"]["prompt_tokens"]


def test_vectors_that_stay_wrong_are_dead_letters(line: Line, simulator: Simulator) -> None:
    """Row 39: the retry budget ends it."""
    simulator.set_scenario({"embedding_dimensions": 9})
    fixed = pipeline(embedding={"dimensions": 8}, gates={"completion": 0}, publish={"partial": True})
    notice = line.finish(line.submit(fixed, documents(3)))
    assert notice.counts.dead_letter == 3
    failures = list(read_failures(line.folder / "results" / DATASET))
    assert {(row["failure_class"], row["signal"]) for row in failures} == {("output_invalid", "vector_dimensions")}
    assert notice.totals.attempts == 3 * 4


def test_a_killed_gateway_pays_again_only_for_calls_in_flight(line: Line, simulator: Simulator) -> None:
    """E1, E2: each item of the calls that were under way is unknown, and is called again under a number of its own."""
    simulator.set_scenario({"latency": {"fixed_ms": 150}})
    job = line.submit(pipeline(), documents(256))
    line.run_until(lambda: (row := line.publications().get(job)) is not None and row.counts.accepted >= 32)
    line.kill("provider_gateway")
    line.start("provider_gateway")
    notice = line.finish(job)
    assert (notice.state, notice.counts.accepted) == (BatchState.PUBLISHED, 256)
    check_vectors(line, 256)
    assert notice.totals.unknown_attempts <= 4 * INPUTS


def test_the_bulk_lane_takes_them_one_a_line(line: Line, simulator: Simulator) -> None:
    """E6: half the price, through the Batch API's own endpoint."""
    notice = line.finish(line.submit(pipeline(lane="bulk"), documents(20)))
    assert (notice.state, notice.counts.accepted) == (BatchState.PUBLISHED, 20)
    check_vectors(line, 20)
    assert notice.totals.cost_nano_usd == 10 * simulator.ledger()["billed"]["prompt_tokens"]
    assert {told.lane for told in line.told(AttemptAnswered, "attempt-answered")} == {Lane.BULK}


@pytest.mark.parametrize(
    ("changes", "rule", "says"),
    [
        ({"pool": "anthropic"}, "no_embeddings", "Anthropic has no embeddings API"),
        ({"pool": "chat"}, "no_embeddings", "add embeddings: {} in pools.yaml"),
        ({"prompt": "system:\nEmbed.\nuser:\n{{ text }}"}, "prompt", "one text"),
    ],
)
def test_what_can_make_no_vectors_is_refused(line: Line, changes: dict[str, Any], rule: str, says: str) -> None:
    """P4, E7: before anything is spent, with the rule's name and a remedy."""
    refusal = refused(line, line.submit(pipeline(**changes), documents(1)))
    assert refusal.rule == rule
    assert says in refusal.message


def test_a_text_without_words_is_a_bad_row(line: Line) -> None:
    """P7: every provider refuses it, so it is not sent."""
    refusal = refused(line, line.submit(pipeline(), [*documents(2), {"id": "empty", "text": " "}]))
    assert "the text to embed is empty" in refusal.message
