"""What tests of the bulk lane share: a pool with a Batch API, a bulk pipeline, documents, and the provider's books."""

import json
import urllib.request
from collections import Counter
from typing import Any

import pytest

from kit.line import Line
from kit.simulator import Simulator
from nightmill.kernel.domain.lifecycle import ItemOutcome
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.settings import Config
from nightmill.kernel.wire.messages import ItemSettled, ProviderBatchRow
from nightmill.publisher.results import read_rows

LABELS = ["a", "b", "c"]
SCHEMA = {"type": "object", "properties": {"label": {"enum": LABELS}}, "required": ["label"]}
#: what the simulator charges: the same as our price book says
PRICES = {"simulated": {"input": "0.15", "output": "0.6"}}

every_provider = pytest.mark.parametrize("kind", ["openai", "anthropic", "openai_compatible"])


def make_config(base_url: str, provider: str = "openai_compatible", **bulk: Any) -> Config:
    pool = {
        "provider": provider,
        "base_url": base_url,
        "model": "simulated",
        "limits": {"slots": 20},
        "context_tokens": 2000,
        "call_deadline": "5s",
        "bulk": bulk,
    }
    config = {
        "pools": {"sim": pool, "realtime": {**pool, "bulk": None}},
        "prices": {
            "version": "1",
            "models": {
                "simulated": {"input_usd_per_million": 0.15, "output_usd_per_million": 0.6, "batch_discount": 0.5}
            },
        },
        "retry": {"classes": {name: {"base": "0.05s", "cap": "0.2s"} for name in ("transient", "capacity", "account")}},
        "tenants": {"default": {"sensitivity": "restricted"}},
    }
    return Config.model_validate(config)


def pipeline(**fields: Any) -> Pipeline:
    base: dict[str, Any] = {
        "name": "label",
        "input": {"id": "id", "fields": ["text"]},
        "prompt": "system:\nLabel the text.\nuser:\n{{ text }}",
        "output": SCHEMA,
        "model": {"pools": ["sim"], "max_output_tokens": 32},
        "lane": "bulk",
        "limits": {"budget_usd": 5},
    }
    return Pipeline.model_validate({**base, **fields})


def documents(count: int) -> list[dict[str, Any]]:
    return [{"id": f"d{i}", "text": f"document number {i} end"} for i in range(count)]


def published(line: Line) -> Counter[str]:
    """How often each document is in what readers see."""
    return Counter(row["_source_id"] for row in read_rows(line.folder / "results" / "default.label"))


def billed_lines(simulator: Simulator) -> list[dict[str, Any]]:
    """Lines of batches that the provider charges for."""
    return [row for row in simulator.attempts() if row.get("batch_id") and row["billed"]]


def befalls(simulator: Simulator, *faults: dict[str, Any], **scenario: Any) -> None:
    simulator.set_scenario({"prices": PRICES, "faults": list(faults), **scenario})


def open_submissions(line: Line) -> int:
    """Submissions whose files are not removed yet."""
    parts = line.loops["provider_gateway"].owned()
    return sum(1 for part in parts for _ in part.table(ProviderBatchRow).index("batch_open"))


def listed(simulator: Simulator, what: str) -> list[dict[str, Any]]:
    """Files or batches that the provider has: `files`, `batches`, or Anthropic's `messages/batches`."""
    headers = {"anthropic-version": "2026-10-21"} if what.startswith("messages") else {}
    request = urllib.request.Request(f"{simulator.base_url}/{what}?limit=100", headers=headers)
    with urllib.request.urlopen(request) as response:
        found: list[dict[str, Any]] = json.load(response)["data"]
        return found


def dead_letters(line: Line) -> list[ItemSettled]:
    """Items that were given up."""
    return [item for item in line.told(ItemSettled, "item-settled") if item.outcome is ItemOutcome.DEAD_LETTER]
