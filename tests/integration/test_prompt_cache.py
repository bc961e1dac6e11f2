"""The prompt cache in the whole line, over HTTP: what many prompts share is written once and read by the rest (E12)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.line import Line
from kit.simulator import Simulator
from nightmill.kernel.domain.lifecycle import BatchState
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.settings import Config
from nightmill.kernel.wire.messages import JobCompleted

SCHEMA = {
    "type": "object",
    "properties": {"label": {"enum": ["a", "b"]}},
    "required": ["label"],
    "additionalProperties": False,
}
RULE = "A ticket about money is of kind a, any other is of kind b. "
SYSTEM = RULE * 120  # 7,080 bytes: the simulator counts a quarter of them as tokens
SHARED_TOKENS = -(-len(SYSTEM.strip()) // 4)
SLOTS = 4
ITEMS = 60
#: nano-USD a token, as the simulator has them: read afresh, from the cache, written, written for an hour, output
SONNET = (2_000, 100, 2_500, 4_000, 10_000)
LUNA = (100, 10, 125, 125, 500)
MINI = (750, 75, 750, 750, 4_500)
MODELS = {"claude-sonnet-5-5": SONNET, "gpt-6-luna": LUNA, "gpt-5.4-mini": MINI}
POOLS: dict[str, dict[str, Any]] = {
    "anthropic": {"provider": "anthropic", "model": "claude-sonnet-5-5"},
    "openai": {"provider": "openai", "model": "gpt-6-luna"},
    "responses": {"provider": "openai", "model": "gpt-6-luna", "api": "responses"},
    "automatic": {"provider": "openai", "model": "gpt-5.4-mini"},
}


@pytest.fixture
def simulator(provider: Simulator) -> Simulator:
    provider.set_scenario({"dialect": "openai", "seed": 3})
    provider.reset()
    return provider


def price(model: str) -> dict[str, Any]:
    names = ("input", "cached", "cache_write", "cache_write_1h", "output")
    rates = zip(names, MODELS[model], strict=True)
    return {**{f"{name}_usd_per_million": nano_usd / 1000 for name, nano_usd in rates}, "batch_discount": 0.5}


@pytest.fixture
def line(simulator: Simulator, tmp_path: Path) -> Iterator[Line]:
    key = tmp_path / "key"
    key.write_text("sk-good")
    key.chmod(0o600)
    common: dict[str, Any] = {
        "base_url": simulator.base_url,
        "key": {"file": str(key)},
        "limits": {"slots": SLOTS},
        "context_tokens": 8000,
        "call_deadline": "30s",
        "bulk": {},
    }
    pools = {name: {**common, **pool} for name, pool in POOLS.items()}
    pools |= {f"{name}-plain": {**pool, "prompt_cache": False} for name, pool in pools.items()}
    config = {
        "pools": pools,
        "prices": {"version": "1", "models": {model: price(model) for model in MODELS}},
        "retry": {"classes": {name: {"base": "0.05s", "cap": "0.2s"} for name in ("transient", "capacity", "account")}},
        "tenants": {"default": {"sensitivity": "restricted"}},
    }
    line = Line(tmp_path, Config.model_validate(config))
    yield line
    line.close()


def pipeline(pool: str, **fields: Any) -> Pipeline:
    base: dict[str, Any] = {
        "name": pool,
        "input": {"id": "id", "fields": ["text"]},
        "prompt": f"system:\n{SYSTEM}\nuser:\n{{{{ text }}}}",
        "output": SCHEMA,
        "model": {"pools": [pool], "max_output_tokens": 32},
        "limits": {"budget_usd": 5},
    }
    return Pipeline.model_validate({**base, **fields})


def run(line: Line, of: Pipeline) -> JobCompleted:
    job = line.submit(of, [{"id": f"d{i}", "text": f"ticket number {i} end"} for i in range(ITEMS)])
    notice = line.finish(job, patience_s=60)
    assert (notice.state, notice.counts.accepted) == (BatchState.PUBLISHED, ITEMS)
    return notice


def billed(simulator: Simulator, kind: str) -> list[int]:
    """Tokens of a class, call by call."""
    return [row[f"billed_{kind}_tokens"] for row in simulator.attempts()]


def agree(simulator: Simulator, notice: JobCompleted) -> None:
    """The bill is the spend, to the token and the nano-dollar."""
    ledger = simulator.ledger()
    assert notice.totals.cost_nano_usd == ledger["money"]["billed_nano_usd"]
    assert notice.totals.input_tokens == ledger["billed"]["prompt_tokens"]
    assert notice.totals.cached_tokens == sum(billed(simulator, "cached"))
    assert ledger["billed"]["calls"] == ITEMS


def unmarked_nano_usd(simulator: Simulator, pool: str) -> int:
    """What the same calls cost where nothing is cached."""
    fresh, _, _, _, output = MODELS[POOLS[pool]["model"]]
    return sum(billed(simulator, "prompt")) * fresh + sum(billed(simulator, "completion")) * output


@pytest.mark.parametrize("pool", ["anthropic", "openai", "responses"])
def test_the_shared_beginning_is_read_from_the_cache(line: Line, simulator: Simulator, pool: str) -> None:
    """E12, P4: all but the first calls read it; the saving is what the price list says, to the nano-dollar."""
    fresh, cached, write, _, _ = MODELS[POOLS[pool]["model"]]
    notice = run(line, pipeline(pool))
    agree(simulator, notice)
    reads, writes = billed(simulator, "cached"), billed(simulator, "cache_write")
    read = sum(tokens > 0 for tokens in reads)
    assert ITEMS - SLOTS <= read < ITEMS
    assert set(reads) - {0} == {SHARED_TOKENS}
    assert sorted(writes) == [0] * read + [SHARED_TOKENS] * (ITEMS - read)
    saved = read * SHARED_TOKENS * (fresh - cached) - (ITEMS - read) * SHARED_TOKENS * (write - fresh)
    assert notice.totals.cost_nano_usd == unmarked_nano_usd(simulator, pool) - saved


def test_older_models_of_openai_need_no_mark(line: Line, simulator: Simulator) -> None:
    """E12: they cache by themselves, in steps of 128 tokens, and writing is free."""
    fresh, cached, _, _, _ = MINI
    notice = run(line, pipeline("automatic"))
    agree(simulator, notice)
    reads = [tokens for tokens in billed(simulator, "cached") if tokens]
    assert len(reads) >= ITEMS - SLOTS
    assert set(reads) == {SHARED_TOKENS // 128 * 128}
    assert sum(billed(simulator, "cache_write")) == 0
    assert notice.totals.cost_nano_usd == unmarked_nano_usd(simulator, "automatic") - sum(reads) * (fresh - cached)


@pytest.mark.parametrize("pool", ["anthropic", "openai"])
def test_without_marks_nothing_is_read(line: Line, simulator: Simulator, pool: str) -> None:
    """E12: `prompt_cache: false`. Anthropic then caches nothing; OpenAI writes each prompt up to its end, in vain."""
    fresh, _, write, _, _ = MODELS[POOLS[pool]["model"]]
    notice = run(line, pipeline(f"{pool}-plain"))
    agree(simulator, notice)
    assert notice.totals.cached_tokens == 0
    written = sum(billed(simulator, "cache_write"))
    assert written == 0 if pool == "anthropic" else written > ITEMS * SHARED_TOKENS
    assert notice.totals.cost_nano_usd == unmarked_nano_usd(simulator, pool) + written * (write - fresh)


@pytest.mark.parametrize(("pool", "kind"), [("anthropic", "cache_write_1h"), ("openai", "cache_write")])
def test_requests_of_a_batch_are_marked_too(line: Line, simulator: Simulator, pool: str, kind: str) -> None:
    """E12, P4: for an hour at Anthropic. Batches hit as luck has it; the bill is the spend all the same."""
    simulator.set_scenario({"dialect": "openai", "seed": 3, "prompt_cache_hits": 0.6})
    fresh, cached, write, write_1h, _ = MODELS[POOLS[pool]["model"]]
    notice = run(line, pipeline(pool, lane="bulk"))
    agree(simulator, notice)
    read = sum(tokens > 0 for tokens in billed(simulator, "cached"))
    written = sum(tokens > 0 for tokens in billed(simulator, kind))
    assert read + written == ITEMS
    assert 0.4 * ITEMS < read < 0.8 * ITEMS
    dear = write_1h if kind == "cache_write_1h" else write
    saved = read * SHARED_TOKENS * (fresh - cached) - written * SHARED_TOKENS * (dear - fresh)
    assert notice.totals.cost_nano_usd == (unmarked_nano_usd(simulator, pool) - saved) // 2


def test_a_beginning_that_nobody_shares_is_not_written(line: Line, simulator: Simulator) -> None:
    """E12: a template that begins with the document has nothing to mark, and OpenAI is told to write nothing."""
    agree(simulator, run(line, pipeline("openai", prompt=f"user:\n{{{{ text }}}}\n{SYSTEM}")))
    for kind in ("cached", "cache_write", "cache_write_1h"):
        assert sum(billed(simulator, kind)) == 0
