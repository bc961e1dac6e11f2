"""What the provider charges: its own price list, so that its bill does not repeat a mistake of the system under test.

USD per million tokens as published on 2026-11-29 (provider price pages, by way of genai-prices 0.2.3). Sums are exact
in pico-USD and rounded half up, once, to nano-USD. A model without a price costs None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from nightmill.provider_simulator.scenario import ModelPrice

_PICO_PER_MILLIONTH = 1_000_000  # one USD per million tokens is this many pico-USD a token
_PICO_PER_NANO = 1000


class Usage(NamedTuple):
    """Tokens of one answer. Everything read is in `prompt_tokens`, everything written in `completion_tokens`."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0  # part of prompt_tokens
    cache_write_tokens: int = 0  # part of prompt_tokens
    cache_write_1h_tokens: int = 0  # part of prompt_tokens
    reasoning_tokens: int = 0  # part of completion_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Pico-USD per token, and where the price of the whole request moves to a higher level."""

    input: int
    output: int
    cached: int
    cache_write: int
    cache_write_1h: int
    long_above: int | None = None  # prompt tokens
    long_input_percent: int = 100
    long_output_percent: int = 100
    batch_cached: int | None = None  # where a batch has no discount on it, or another than on the rest


def _rates(
    usd_input: str,
    usd_output: str,
    usd_cached: str = "",
    usd_write: str = "",
    usd_write_1h: str = "",
    *,
    long: tuple[int, int, int] | None = None,
    batch_cached: str | None = None,
) -> Rates:
    above, percent_in, percent_out = long or (None, 100, 100)
    return Rates(
        input=_pico(usd_input),
        output=_pico(usd_output),
        cached=_pico(usd_cached or usd_input),
        cache_write=_pico(usd_write or usd_input),
        cache_write_1h=_pico(usd_write_1h or usd_write or usd_input),
        long_above=above,
        long_input_percent=percent_in,
        long_output_percent=percent_out,
        batch_cached=None if batch_cached is None else _pico(batch_cached),
    )


def _pico(usd_per_million: str | Decimal) -> int:
    return int(Decimal(usd_per_million) * _PICO_PER_MILLIONTH)


_LONG = (272_000, 200, 150)
PRICES: dict[str, Rates] = {
    "gpt-6-astra": _rates("10", "50", "1", "12.5", long=_LONG),
    "gpt-6-sol": _rates("2", "10", "0.2", "2.5", long=_LONG),
    "gpt-6.1-sol": _rates("2", "10", "0.1", "2.5", long=_LONG),
    "gpt-6.1-terra": _rates("1", "5", "0.05", "1.25", long=_LONG),
    "gpt-6-luna": _rates("0.10", "0.50", "0.01", "0.125", long=_LONG),
    "gpt-5.6-luna": _rates("0.20", "1.20", "0.02", "0.25", long=_LONG),
    "gpt-5.4": _rates("2.5", "15", "0.25", long=_LONG, batch_cached="0.13"),
    "gpt-5.4-mini": _rates("0.75", "4.5", "0.075"),
    "gpt-5.4-nano": _rates("0.2", "1.25", "0.02"),
    "gpt-4.1": _rates("2", "8", "0.5", batch_cached="0.5"),
    "gpt-4.1-mini": _rates("0.4", "1.6", "0.1", batch_cached="0.1"),
    "gpt-4o-mini": _rates("0.15", "0.60", "0.075", batch_cached="0.075"),
    "text-embedding-3-small": _rates("0.02", "0"),
    "text-embedding-3-large": _rates("0.13", "0"),
    "claude-fable-5-2": _rates("8", "40", "0.2", "10", "16"),
    "claude-opus-5-5": _rates("4", "20", "0.2", "5", "8"),
    "claude-sonnet-5-5": _rates("2", "10", "0.10", "2.5", "4"),
    "claude-haiku-5-5": _rates("0.10", "0.50", "0.01", "0.125", "0.2", long=(100_000, 500, 500)),
    "claude-haiku-4-5": _rates("1", "5", "0.1", "1.25", "2"),
}

#: what a service tier or a batch costs, in percent of the standard price
TIER_PERCENT = {"batch": 50, "flex": 50, "priority": 200, "fast": 200}


def price_book(scenario_prices: Mapping[str, ModelPrice]) -> dict[str, Rates]:
    """The price list with what the scenario says on top."""
    ours = {
        model: Rates(
            input=_pico(price.input),
            output=_pico(price.output),
            cached=_pico(price.input if price.cached is None else price.cached),
            cache_write=_pico(price.input if price.cache_write is None else price.cache_write),
            cache_write_1h=_pico(price.input if price.cache_write_1h is None else price.cache_write_1h),
        )
        for model, price in scenario_prices.items()
    }
    return {**PRICES, **ours}


def cost_nano_usd(book: Mapping[str, Rates], model: str | None, usage: Usage, tier: str) -> int | None:
    """What `usage` costs at `tier` (`batch`, `flex`, ... or anything else for the standard price)."""
    rates = book.get(model or "") or book.get("*")
    if rates is None:
        return None
    percent = TIER_PERCENT.get(tier, 100)
    cached = rates.cached * percent
    if tier == "batch" and rates.batch_cached is not None:
        cached = rates.batch_cached * 100
    plain = usage.prompt_tokens - usage.cached_tokens - usage.cache_write_tokens - usage.cache_write_1h_tokens
    fresh = (
        plain * rates.input
        + usage.cache_write_tokens * rates.cache_write
        + usage.cache_write_1h_tokens * rates.cache_write_1h
    )
    read = fresh * percent + usage.cached_tokens * cached
    written = usage.completion_tokens * rates.output * percent
    if rates.long_above is not None and usage.prompt_tokens > rates.long_above:
        total = read * rates.long_input_percent + written * rates.long_output_percent
    else:
        total = (read + written) * 100
    divisor = 100 * 100 * _PICO_PER_NANO
    return (total + divisor // 2) // divisor
