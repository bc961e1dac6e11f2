"""The job of a run, over two pools with Batch APIs, and their provider."""

import json
from pathlib import Path
from typing import Any

from kit.laptop import Laptop

_BUDGET_USD = 100
_SHORT_POOL, _LONG_POOL = "openai-batch", "anthropic-batch"
#: the first pool's context does not hold the long documents, which are for the second
_CONTEXT = 300
_FILLER = "The rest of it is of no concern to anybody, and is here for its length. " * 16


def sound(seed: int) -> dict[str, Any]:
    """A provider whose creates, uploads and downloads take their time."""
    return {
        "seed": seed,
        "prices": {"simulated": {"input": "0.15", "output": "0.6"}},
        "batches": {"validate_ms": 500, "lines_per_s": 500, "finalize_ms": 500},
        "faults": [
            {"kind": "slow", "on": ["batch_create"], "delay_ms": 1500},
            {"kind": "slow", "on": ["file_create"], "delay_ms": 500},
            {"kind": "slow", "on": ["file_content", "batch_results"], "delay_ms": 1000},
        ],
    }


def failing(seed: int) -> dict[str, Any]:
    """The same, and a few lines in a thousand fail or are answered wrong. None is kept back.

    Equal requests are answered alike, so a wrong answer to a repair would be the answer to the next one, too, and its
    item wait for a person: repairs are answered right.
    """
    base = sound(seed)
    faults = [
        {"kind": "server_error", "on": ["batch_retrieve", "batch_list"], "rate": 0.05},
        {"kind": "server_error", "on": ["line"], "rate": 0.003},
    ]
    answers = [{"match": "Your answer was not accepted"}, {"rate": 0.005, "form": "wrong_schema"}]
    return {**base, "answers": answers, "faults": [*base["faults"], *faults]}


def configure(laptop: Laptop, submission: int) -> None:
    """Two pools whose submissions hold so many requests, and the price of a batch."""
    pool = {
        "base_url": laptop.base_url,
        "model": "simulated",
        "limits": {"slots": 8},
        "sensitivity": "internal",
        "bulk": {"max_requests": submission},
    }
    short = {**pool, "provider": "openai", "context_tokens": _CONTEXT}
    long = {**pool, "provider": "anthropic", "context_tokens": 4000}
    laptop.write_config("pools.yaml", {"pools": {_SHORT_POOL: short, _LONG_POOL: long}})
    price = {"input_usd_per_million": 0.15, "output_usd_per_million": 0.6, "batch_discount": 0.5}
    laptop.write_config("prices.yaml", {"version": "1", "models": {"simulated": price}})


def pipeline(laptop: Laptop, name: str) -> Path:
    """Publishes only when every item is accepted; its retries outlast the provider's faults."""
    return laptop.pipeline(
        name,
        lane="bulk",
        model={"pools": [_SHORT_POOL, _LONG_POOL], "max_output_tokens": 32},
        repair={"attempts": 3},
        limits={"budget_usd": _BUDGET_USD, "attempts": 20},
    )


def documents(laptop: Laptop, name: str, items: int) -> tuple[Path, frozenset[str]]:
    """A file of documents that no other run has, every other one long, and their ids."""
    rows = [{"id": f"{name}-{number}", "text": _text(name, number)} for number in range(items)]
    path = laptop.folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path, frozenset(row["id"] for row in rows)


def _text(name: str, number: int) -> str:
    return f"{_FILLER if number % 2 else ''}{name} document {number} end"
