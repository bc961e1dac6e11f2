"""Writes `deploy/prices/genai-prices.json` from the installed package genai-prices (a dependency of development).

`python -m nightmill.kernel.runtime.price_list_update` writes the file; with `--check` it writes nothing and exits 1
when it differs from what it would write. For newer prices, install a newer package, write, and review the difference.

What the package says by dates and conditions is written out: for each period between two dates, the prices of each kind
of processing that then has one. Left out, so that it has no price rather than a wrong one: what is not charged by the
token alone (requests, hours, pages, citations, reasoning at its own price), prices that depend on the hour of the day,
and amounts of more than twelve decimals.
"""

import json
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from importlib.metadata import version
from typing import Any

from genai_prices.data import providers
from genai_prices.types import ConditionalPrice, ModelInfo, ModelPrice, PriceVariant, StartDateConstraint, TieredPrices

from nightmill.kernel.domain.pricing import BATCH, STANDARD
from nightmill.kernel.runtime.price_list import price_list_file

#: providers that are called directly at one host, with a price list of their own and a chat API that adapters speak
PROVIDERS = (
    "anthropic", "cerebras", "deepseek", "fireworks", "google", "groq", "mistral", "openai", "together", "x-ai",
)  # fmt: skip
_KEYS = {
    "input_mtok": "input",
    "cache_read_mtok": "cached",
    "cache_write_mtok": "cache_write",
    "cache_write_1h_mtok": "cache_write_1h",
    "output_mtok": "output",
}
#: charged for what no call here asks for
_IGNORED = frozenset({"web_searches_kcount", "storage_searches_kcount"})
_OTHER_MEDIA = ("audio", "image", "video")
_DECIMALS = 12


class NotByToken(Exception):
    """A price that can not be told from the tokens of a text call."""


def document() -> dict[str, Any]:
    """The list as JSON."""
    chosen = {provider.id: provider for provider in providers if provider.id in PROVIDERS}
    return {
        "source": f"genai-prices {version('genai-prices')}",
        "providers": {
            name: {
                "url": chosen[name].api_pattern,
                "models": [entry for model in chosen[name].models if (entry := _entry(model)) is not None],
            }
            for name in PROVIDERS
        },
    }


def text() -> str:
    """The file: one line for each model, so that a difference can be read."""
    listed = document()
    parts = []
    for name, provider in listed["providers"].items():
        lines = ",\n".join(f"   {json.dumps(model)}" for model in provider["models"])
        head = f'  {json.dumps(name)}: {{"url": {json.dumps(provider["url"])}, "models": ['
        parts.append(f"{head}\n{lines}\n  ]}}")
    body = ",\n".join(parts)
    return f'{{\n "source": {json.dumps(listed["source"])},\n "providers": {{\n{body}\n }}\n}}\n'


def _entry(model: ModelInfo) -> dict[str, Any] | None:
    try:
        periods = list(_periods(model))
    except NotByToken:
        return None
    return {"id": model.id, "match": _clause(model.match), "periods": periods} if periods else None


def _periods(model: ModelInfo) -> Iterator[dict[str, Any]]:
    before: dict[str, Any] | None = None
    for day in (None, *_dates(model)):
        moment = datetime(1970, 1, 2, tzinfo=UTC) if day is None else _noon(day)
        prices = _kinds(model, moment)
        if prices != before and (prices or before):
            yield {"from": None if day is None else day.isoformat(), "prices": prices}
        before = prices


def _dates(model: ModelInfo) -> list[date]:
    """Every day on which something changes."""
    conditional: list[ConditionalPrice | PriceVariant] = [*(model.price_variants or ())]
    if not isinstance(model.prices, ModelPrice):
        conditional += model.prices
    dates: set[date] = set()
    for each in conditional:
        match each.constraint:
            case None:
                continue
            case StartDateConstraint(start_date=day):
                dates.add(day)
            case _:
                raise NotByToken(model.id)
    return sorted(dates)


def _noon(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(hours=12)


def _kinds(model: ModelInfo, moment: datetime) -> dict[str, Any]:
    """Tariffs by kind of processing; empty where the model has no price yet."""
    if not isinstance(model.prices, ModelPrice) and not any(
        each.constraint is None or each.constraint.active(moment) for each in model.prices
    ):
        return {}
    kinds = {STANDARD: _tariff(model.get_prices(moment))}
    for variant in model.price_variants or ():
        if variant.constraint is not None and not variant.constraint.active(moment):
            continue
        match variant.when:
            case {"processing": "batch", **rest} if not rest:
                kinds.setdefault(BATCH, _tariff(model.get_prices(moment, variant.when)))
            case {"service_tier": str(tier), **rest} if not rest and tier != "default":
                kinds.setdefault(tier, _tariff(model.get_prices(moment, variant.when)))
    return kinds


def _tariff(price: ModelPrice) -> dict[str, Any]:
    stated = {key: value for key, value in vars(price).items() if value is not None and key not in _IGNORED}
    ours = {_KEYS[key]: value for key, value in stated.items() if key in _KEYS}
    others = [key for key in stated if key not in _KEYS and not any(medium in key for medium in _OTHER_MEDIA)]
    if "input" not in ours or others:
        raise NotByToken(str(price))
    if "output" not in ours:
        if any(key.startswith("output") for key in stated):
            raise NotByToken(str(price))
        ours["output"] = Decimal(0)  # an embedding model: nothing is written
    starts = sorted({tier.start for value in ours.values() if isinstance(value, TieredPrices) for tier in value.tiers})
    tariff: dict[str, Any] = {name: _amount(value, 0) for name, value in ours.items()}
    if starts:
        tariff["above"] = {
            str(start): {name: _amount(value, start + 1) for name, value in ours.items()} for start in starts
        }
    return tariff


def _amount(value: Any, input_tokens: int) -> str:
    """The amount that holds for a call with so many input tokens, in USD per million."""
    amount = value
    if isinstance(value, TieredPrices):
        amount = value.base
        for tier in value.tiers:
            if input_tokens > tier.start:
                amount = tier.price
    if -amount.as_tuple().exponent > _DECIMALS:
        raise NotByToken(str(amount))
    return format(amount, "f")


def _clause(clause: Any) -> dict[str, Any]:
    ((field, value),) = vars(clause).items()
    kind = field.removesuffix("_")
    return {kind: [_clause(each) for each in value] if isinstance(value, list) else value}


def main(arguments: list[str]) -> int:
    path, written = price_list_file(), text()
    if "--check" in arguments:
        same = path.is_file() and path.read_text(encoding="utf-8") == written
        print(f"{path}: {'as genai-prices says' if same else 'differs; run this without --check'}")
        return 0 if same else 1
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(written, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
