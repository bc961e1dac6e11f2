"""Pools at a strict provider, what befalls their calls, and what the line tells of it."""

from typing import Any

from kit.line import Line
from kit.simulator import Simulator
from nightmill.kernel.domain.lifecycle import ItemOutcome
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.wire.messages import ItemSettled, ShardAttempt, ShardDispatched

SCHEMA = {
    "type": "object",
    "properties": {"label": {"enum": ["a", "b", "c"]}},
    "required": ["label"],
    "additionalProperties": False,
}
#: what both providers ask for their small models, as of 2026-11-29
RATES = {
    "input_usd_per_million": 0.10,
    "cached_usd_per_million": 0.01,
    "cache_write_usd_per_million": 0.125,
    "cache_write_1h_usd_per_million": 0.20,
    "output_usd_per_million": 0.50,
}
POOLS: dict[str, dict[str, Any]] = {
    "openai": {"provider": "openai", "model": "gpt-6-luna"},
    "responses": {"provider": "openai", "model": "gpt-6-luna", "api": "responses"},
    "anthropic": {"provider": "anthropic", "model": "claude-haiku-5-5"},
    "older": {"provider": "anthropic", "model": "claude-haiku-5-5", "anthropic_version": "2023-06-01"},
    "single": {"provider": "openai", "model": "gpt-6-luna", "limits": {"slots": 1}},
    "short": {"provider": "openai", "model": "gpt-6-luna", "call_deadline": "2s"},
}


def give(simulator: Simulator, *faults: dict[str, Any], **scenario: Any) -> None:
    simulator.set_scenario({"dialect": "openai", "faults": list(faults), **scenario})


def pipeline(pool: str, **fields: Any) -> Pipeline:
    base: dict[str, Any] = {
        "name": "label",
        "input": {"id": "id", "fields": ["text"]},
        "prompt": "system:\nLabel the text.\nuser:\n{{ text }}",
        "output": SCHEMA,
        "model": {"pools": [pool], "max_output_tokens": 32},
        "limits": {"budget_usd": 5},
        "gates": {"completion": 0.5},
        "publish": {"partial": True},
    }
    return Pipeline.model_validate({**base, **fields})


def settled(line: Line, outcome: ItemOutcome) -> list[ItemSettled]:
    return [item for item in line.told(ItemSettled, "item-settled") if item.outcome is outcome]


def minted(line: Line) -> list[ShardAttempt]:
    return [each for shard in line.told(ShardDispatched, "shard-dispatched") for each in shard.attempts]
