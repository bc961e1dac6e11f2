"""The providers, pools and documents of a run: prices of their own lists, and of prices.yaml with days.

Two simulators: one as strict as OpenAI and Anthropic, one as a self-hosted server with batches. What they charge is
their own price list; what the ledger charges is the price book. Neither knows the other's.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from agreement.befallings import STOPS
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.settings import Config
from nightmill.kernel.runtime.settings import load_config
from nightmill.provider_gateway.bulk.steps import Timing

#: a provider whose day is a second or two, on a machine that may be busy
TIMING = Timing(
    gather=100,
    submit_within=2_000,
    request=4_000,
    guard=500,
    list_lag=300,
    poll=100,
    longest_poll=500,
    retry=50,
    longest_retry=1_000,
    stuck=2_500,
    cancel_again=2_000,
    lost=1_000,
)
SCHEMA = {
    "type": "object",
    "properties": {"label": {"enum": ["a", "b", "c"]}, "why": {"type": "string"}},
    "required": ["label", "why"],
    "additionalProperties": False,
}
_TEXT = "the parties agree that this notice stays with every copy of the work whoever made it and whatever for"
#: what the self-hosted server charges, and prices.yaml says from 2026 on
SERVED = {"input": "0.15", "cached": "0.0375", "cache_write": "0.1875", "output": "0.6"}
PRICES: dict[str, Any] = {
    "version": "agreement",
    "models": {
        "served": [
            {"input_usd_per_million": 9, "output_usd_per_million": 9, "valid_to": "2025-12-31"},
            {
                "input_usd_per_million": 0.15,
                "cached_usd_per_million": 0.0375,
                "cache_write_usd_per_million": 0.1875,
                "output_usd_per_million": 0.6,
                "batch_discount": 0.5,
                "valid_from": "2026-01-01",
            },
        ]
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A pool and how its jobs run."""

    pool: str
    settings: dict[str, Any]
    bulk: bool = False
    words: int = 24  #: of a document


_OPENAI: dict[str, Any] = {"provider": "openai", "model": "gpt-6-luna"}
_HAIKU: dict[str, Any] = {"provider": "anthropic", "model": "claude-haiku-5-5"}
KINDS: tuple[Kind, ...] = (
    Kind(pool="openai-chat", settings=_OPENAI),
    Kind(pool="openai-responses", settings={**_OPENAI, "model": "gpt-5.4-mini", "api": "responses"}),
    Kind(pool="anthropic", settings=_HAIKU),
    Kind(
        pool="anthropic-older",
        settings={**_HAIKU, "model": "claude-haiku-4-5", "anthropic_version": "2023-06-01"},
    ),
    Kind(pool="own", settings={"provider": "openai_compatible", "model": "served"}),
    Kind(pool="openai-bulk", settings={**_OPENAI, "model": "gpt-4.1-mini"}, bulk=True),
    Kind(pool="anthropic-bulk", settings={**_HAIKU, "model": "claude-sonnet-5-5"}, bulk=True),
    Kind(pool="own-bulk", settings={"provider": "openai_compatible", "model": "served"}, bulk=True),
)
#: beyond 100,000 tokens of input the whole call has another price
LONG = (
    Kind(pool="anthropic-long", settings=_HAIKU, words=90_000),
    Kind(pool="anthropic-long-bulk", settings=_HAIKU, words=90_000, bulk=True),
)
#: leaves a call that hangs
IMPATIENT = Kind(pool="impatient", settings={**_OPENAI, "call_deadline": "4s"})
STOPPING = tuple(Kind(pool=f"{name}-stops", settings=_HAIKU if name == "spend" else _OPENAI) for name in STOPS)


def config(folder: Path, *, hosted: str, own: str) -> Config:
    """The config folder, written and read as the services read it."""
    key = folder / "key"
    key.write_text("sk-good")
    key.chmod(0o600)
    common: dict[str, Any] = {
        "key": {"file": str(key)},
        "limits": {"slots": 24},
        "context_tokens": 200_000,
        "call_deadline": "60s",
    }
    pools: dict[str, Any] = {}
    for kind in (*KINDS, *LONG, IMPATIENT, *STOPPING):
        url = own if kind.pool.startswith("own") else hosted
        bulk = {"bulk": {"max_requests": 200}} if kind.bulk else {}
        pools[kind.pool] = {**common, "base_url": url, **bulk, **kind.settings}
    classes = ("transient", "capacity", "account", "internal")
    files: dict[str, Any] = {
        "pools": {"pools": pools},
        "prices": PRICES,
        "retry": {"classes": {name: {"base": "0.05s", "cap": "0.2s"} for name in classes}},
        "tenants": {"tenants": {"default": {"sensitivity": "restricted"}}},
    }
    for name, content in files.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return load_config(folder)


def pipeline(kind: Kind) -> Pipeline:
    fields: dict[str, Any] = {
        "name": kind.pool,
        "input": {"id": "id", "fields": ["text"]},
        "prompt": "system:\nLabel the text and say why.\nuser:\n{{ text }}",
        "output": SCHEMA,
        "model": {"pools": [kind.pool], "max_output_tokens": 96},
        "lane": "bulk" if kind.bulk else "realtime",
        "limits": {"budget_usd": 1_000},
        "gates": {"completion": 0.01, "rejects": 1.0},
        "publish": {"partial": True},
    }
    return Pipeline.model_validate(fields)


def documents(kind: Kind, count: int, name: str) -> list[dict[str, Any]]:
    """Documents of different lengths; each says whose it is, so that a rule can aim at it."""
    vocabulary = _TEXT.split()
    whose = kind.pool.replace("-stops", " stops")
    rows = []
    for number in range(count):
        words = kind.words + number * 7 % 31
        text = " ".join(vocabulary[(number + place) % len(vocabulary)] for place in range(words))
        rows.append({"id": f"{name}-{number}", "text": f"{whose} {name} number {number}: {text}"})
    return rows
