"""The job of a run, and a provider that is slow and fails now and then."""

import json
from pathlib import Path
from typing import Any

from kit.laptop import Laptop

_BUDGET_USD = 100
_ATTEMPTS = 20
_SPOILT_EVERY = 40


def scenario(seed: int) -> dict[str, Any]:
    """200 ms a call; a few calls in a hundred fail in one of the ways of real providers, some after billing."""
    return {
        "seed": seed,
        "latency": {"fixed_ms": 200},
        "answers": [
            # wrong when asked for the first time, right when asked to mend it
            {"regex": r"spoilt\s*\Z", "form": "wrong_schema"},
            {"rate": 0.02, "form": "fenced"},
        ],
        "faults": [
            {"kind": "rate_limited", "rate": 0.003, "retry_after_s": 1},
            {"kind": "server_error", "rate": 0.01},
            {"kind": "reset_before_billing", "rate": 0.003},
            {"kind": "reset_after_billing", "rate": 0.003},
            {"kind": "cut_json", "rate": 0.005},
            {"kind": "slow", "rate": 0.01, "delay_ms": 1000},
        ],
    }


def pipeline(laptop: Laptop, name: str) -> Path:
    """Publishes only when every item is accepted; its retries outlast the provider's faults."""
    return laptop.pipeline(name, limits={"budget_usd": _BUDGET_USD, "attempts": _ATTEMPTS})


def documents(laptop: Laptop, name: str, items: int) -> tuple[Path, frozenset[str]]:
    """A file of documents that no other run has, and their ids."""
    rows = [{"id": f"{name}-{number}", "text": _text(name, number)} for number in range(items)]
    path = laptop.folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path, frozenset(row["id"] for row in rows)


def _text(name: str, number: int) -> str:
    return f"{name} document {number}" + (" spoilt" if number % _SPOILT_EVERY == 0 else " end")
