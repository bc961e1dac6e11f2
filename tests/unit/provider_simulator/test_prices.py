"""The provider's bill: exact sums, one rounding, nothing for nothing."""

from __future__ import annotations

from decimal import Decimal

import pytest

from nightmill.provider_simulator.prices import Usage, cost_nano_usd, price_book
from nightmill.provider_simulator.scenario import ModelPrice

BOOK = price_book({"odd": ModelPrice(input=Decimal("0.0005"), output=Decimal("0.0015"))})


@pytest.mark.parametrize(
    ("model", "usage", "tier", "nano_usd"),
    [
        # 0.10 USD a million is 100 nano-USD a token
        ("gpt-6-luna", Usage(prompt_tokens=10, completion_tokens=4), "default", 10 * 100 + 4 * 500),
        ("gpt-6-luna", Usage(prompt_tokens=10, completion_tokens=4), "batch", (10 * 100 + 4 * 500) // 2),
        ("gpt-6-luna", Usage(prompt_tokens=10, completion_tokens=4), "priority", (10 * 100 + 4 * 500) * 2),
        ("gpt-6-luna", Usage(prompt_tokens=10, completion_tokens=0, cached_tokens=6), "default", 4 * 100 + 6 * 10),
        # Anthropic: writes at 1.25 and 2 times the price, reads at a tenth
        (
            "claude-haiku-5-5",
            Usage(
                prompt_tokens=100,
                completion_tokens=1,
                cached_tokens=50,
                cache_write_tokens=20,
                cache_write_1h_tokens=10,
            ),
            "standard",
            20 * 100 + 50 * 10 + 20 * 125 + 10 * 200 + 500,
        ),
        # the whole request moves to the higher price
        ("claude-haiku-5-5", Usage(prompt_tokens=100_000, completion_tokens=1), "default", 100_000 * 100 + 500),
        ("claude-haiku-5-5", Usage(prompt_tokens=100_001, completion_tokens=1), "default", (100_001 * 100 + 500) * 5),
        ("gpt-6-sol", Usage(prompt_tokens=272_001, completion_tokens=2), "default", 272_001 * 4000 + 2 * 15_000),
        ("gpt-6-luna", Usage(prompt_tokens=272_001, completion_tokens=2), "batch", 272_001 * 100 + 2 * 375),
        # a batch has no discount on what is cached
        (
            "gpt-4.1-mini",
            Usage(prompt_tokens=10, completion_tokens=1, cached_tokens=6),
            "batch",
            4 * 200 + 6 * 100 + 800,
        ),
        # 0.5 nano-USD a token: half is rounded up, once, on the sum
        ("odd", Usage(prompt_tokens=1, completion_tokens=0), "default", 1),
        ("odd", Usage(prompt_tokens=1, completion_tokens=1), "default", 2),
        ("odd", Usage(prompt_tokens=1, completion_tokens=0), "batch", 0),
        ("nobody's", Usage(prompt_tokens=1, completion_tokens=0), "default", None),
        (None, Usage(prompt_tokens=1, completion_tokens=0), "default", None),
    ],
)
def test_cost(model: str | None, usage: Usage, tier: str, nano_usd: int | None) -> None:
    """E12"""
    assert cost_nano_usd(BOOK, model, usage, tier) == nano_usd


def test_star_is_for_every_other_model() -> None:
    book = price_book({"*": ModelPrice(input=Decimal(1), output=Decimal(2))})
    assert cost_nano_usd(book, "nobody's", Usage(prompt_tokens=3, completion_tokens=1), "default") == 5000
    assert cost_nano_usd(book, "gpt-6-luna", Usage(prompt_tokens=3, completion_tokens=1), "default") == 800
