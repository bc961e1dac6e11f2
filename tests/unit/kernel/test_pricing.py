"""Money: integers, rounded once, with the arithmetic shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nightmill.kernel.domain.pricing import cost_nano_usd, worst_cost_nano_usd
from nightmill.kernel.domain.settings import Price


def price(input_usd: object, output_usd: object, cached_usd: object = None) -> Price:
    return Price.model_validate(
        {
            "input_usd_per_million": input_usd,
            "output_usd_per_million": output_usd,
            "cached_usd_per_million": cached_usd,
        }
    )


@pytest.mark.parametrize(
    ("usd", "nano"),
    [(0, 0), (0.15, 150_000_000), ("0.15", 150_000_000), (2.5, 2_500_000_000), (0.1, 100_000_000), (1e-9, 1)],
)
def test_usd_per_million_is_held_in_nano_usd_exactly(usd: object, nano: int) -> None:
    assert price(usd, 0).input_usd_per_million == nano


@pytest.mark.parametrize("usd", [-1, "cheap", None, float("nan"), float("inf"), True, 1e-10])
def test_what_is_no_price_is_refused(usd: object) -> None:
    """P4."""
    with pytest.raises(ValidationError):
        price(usd, 0)


@pytest.mark.parametrize(
    ("one", "used", "cost"),
    [
        # (1000·150,000,000 + 0 + 500·600,000,000) / 1,000,000 = 150,000 + 300,000
        (price(0.15, 0.60, 0.075), (1_000, 0, 500), 450_000),
        # (1000-400)·150 + 400·75 + 10·600 = 90,000 + 30,000 + 6,000, in units of nano-USD
        (price(0.15, 0.60, 0.075), (1_000, 400, 10), 126_000),
        # no cached price: as input; 1000·150 + 10·600
        (price(0.15, 0.60), (1_000, 400, 10), 156_000),
        # a stated price of 0
        (price(0, 0), (1_000_000, 0, 1_000_000), 0),
        # a cached price of 0 is not an absent one: (10-4)·1000
        (price(1, 1, 0), (10, 4, 0), 6_000),
        # 1 token at 0.0004 USD a million = 0.4 nano-USD, rounds down; at 0.0005 it is 0.5 and rounds up
        (price("0.0004", 0), (1, 0, 0), 0),
        (price("0.0005", 0), (1, 0, 0), 1),
        # rounded once, on the sum: 0.4 + 0.4 = 0.8 → 1, not 0 + 0
        (price("0.0004", "0.0004"), (1, 0, 1), 1),
        (price(0.15, 0.60), (0, 0, 0), 0),
    ],
)
def test_a_calls_cost(one: Price, used: tuple[int, int, int], cost: int) -> None:
    """O1: integer nano-USD."""
    tokens, cached, output = used
    assert cost_nano_usd(one, input_tokens=tokens, cached_tokens=cached, output_tokens=output) == cost


PRICES = st.builds(
    lambda i, c, o: price(i, o, None if c is None else min(i, c)),
    st.integers(0, 100),
    st.none() | st.integers(0, 100),
    st.integers(0, 100),
)
TOKENS = st.integers(0, 2_000_000)


@given(PRICES, TOKENS, TOKENS, TOKENS, TOKENS)
def test_no_call_costs_more_than_its_worst_case(one: Price, tokens: int, cached: int, output: int, more: int) -> None:
    """E10: what was reserved before the call is enough for what it turns out to use."""
    cost = cost_nano_usd(one, input_tokens=tokens, cached_tokens=min(cached, tokens), output_tokens=output)
    assert 0 <= cost <= worst_cost_nano_usd(one, input_tokens=tokens, max_output_tokens=output + more)
