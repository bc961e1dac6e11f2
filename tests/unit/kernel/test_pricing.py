"""Money: whole atto-USD a token, rounded once to nano-USD, with the arithmetic shown."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.kernel.domain.lifecycle import Lane
from nightmill.kernel.domain.pricing import (
    BATCH,
    STANDARD,
    Level,
    Period,
    Price,
    Rates,
    Tariff,
    Tokens,
    cost_atto_usd,
    cost_nano_usd,
    price_at,
    prices_between,
    tokens_within,
    worst_cost_nano_usd,
)

#: atto-USD a token, of one USD per million
USD = 10**12


def rates(fresh: int, cached: int, write: int, hour: int, output: int) -> Rates:
    return Rates(input=fresh, cached=cached, cache_write=write, cache_write_1h=hour, output=output)


#: claude-haiku-5-5 as of 2026-11-29: five times as much for a call of more than 100,000 tokens
HAIKU = Tariff(
    base=rates(USD // 10, USD // 100, USD // 8, USD // 5, USD // 2),
    levels=(Level(above_input_tokens=100_000, rates=rates(USD // 2, USD // 20, 5 * USD // 8, USD, 5 * USD // 2)),),
)


@pytest.mark.parametrize(
    ("tokens", "nano"),
    [
        # 1,000 x 100 + 500 x 500 nano-USD a token
        (Tokens(fresh_input=1_000, output=500), 350_000),
        # 600 x 100 + 400 x 10 + 10 x 500
        (Tokens(fresh_input=600, cached=400, output=10), 69_000),
        # 100 x 100 + 800 x 125 + 100 x 200
        (Tokens(fresh_input=100, cache_write=800, cache_write_1h=100, output=0), 130_000),
        # each of the four classes of input and the output: 1 x (100 + 10 + 125 + 200 + 500)
        (Tokens(fresh_input=1, cached=1, cache_write=1, cache_write_1h=1, output=1), 935),
        # just not long: 100,000 x 100
        (Tokens(fresh_input=100_000, output=0), 10_000_000),
        # one token more, and all of them cost 500; it is the whole input that counts: 60,001 x 500 + 40,000 x 50
        (Tokens(fresh_input=100_001, output=0), 50_000_500),
        (Tokens(fresh_input=60_001, cached=40_000, output=2), 30_000_500 + 2_000_000 + 2 * 2_500),
        (Tokens(fresh_input=0, output=0), 0),
    ],
)
def test_a_calls_cost(tokens: Tokens, nano: int) -> None:
    """O1: four classes of tokens, priced apart."""
    assert cost_nano_usd(HAIKU, tokens) == nano


@pytest.mark.parametrize(
    ("atto_a_token", "tokens", "nano"),
    [
        (400_000_000, (1, 0), 0),  # 0.4 nano-USD
        (500_000_000, (1, 0), 1),  # half: up
        (400_000_000, (1, 1), 1),  # once, on the sum: 0.4 + 0.4 = 0.8, not 0 + 0
        (1_499_999_999, (1, 0), 1),
        (499_999_999, (1, 0), 0),
    ],
)
def test_it_is_rounded_once_half_up(atto_a_token: int, tokens: tuple[int, int], nano: int) -> None:
    tariff = Tariff(base=rates(*[atto_a_token] * 5))
    assert cost_nano_usd(tariff, Tokens(fresh_input=tokens[0], output=tokens[1])) == nano


@pytest.mark.parametrize(
    ("whole", "cached", "written", "hour", "tokens"),
    [
        (1_000, 0, 0, 0, Tokens(fresh_input=1_000, output=5)),
        (1_000, 400, 100, 50, Tokens(fresh_input=450, cached=400, cache_write=100, cache_write_1h=50, output=5)),
        (1_000, 900, 100, 0, Tokens(fresh_input=0, cached=900, cache_write=100, output=5)),
        (1_000, 900, 101, 0, None),  # more parts than there is: no usage, so no known cost
    ],
)
def test_parts_of_the_input_are_counted_once(
    whole: int, cached: int, written: int, hour: int, tokens: Tokens | None
) -> None:
    found = tokens_within(
        input_tokens=whole,
        cached_tokens=cached,
        cache_write_tokens=written,
        cache_write_1h_tokens=hour,
        output_tokens=5,
    )
    assert found == tokens
    assert found is None or found.input == whole


ONE, TWO = (Tariff(base=rates(*[each] * 5)) for each in (1, 2))


@pytest.mark.parametrize(
    ("lane", "tier", "tariff"),
    [
        (Lane.REALTIME, None, ONE),
        (Lane.REALTIME, "default", ONE),
        (Lane.REALTIME, "standard", ONE),
        (Lane.REALTIME, "auto", ONE),
        (Lane.BULK, None, TWO),
        (Lane.BULK, "batch", TWO),
        (Lane.REALTIME, "scale", None),
        (Lane.REALTIME, "priority", None),
    ],
)
def test_a_kind_of_processing_without_a_price_is_unknown(lane: Lane, tier: str | None, tariff: Tariff | None) -> None:
    """P4: what was asked for at the usual price may be carried out at another, as the response says."""
    assert Price(tariffs={STANDARD: ONE, BATCH: TWO}).tariff(lane, tier) == tariff
    assert Price(tariffs={STANDARD: ONE}).tariff(Lane.BULK) is None
    assert Price(tariffs={STANDARD: ONE, "flex": TWO}).tariff(Lane.REALTIME, "flex") == TWO


CHEAP, DEAR = Price(tariffs={STANDARD: ONE}), Price(tariffs={STANDARD: TWO})
PERIODS = (Period(from_ms=100, until_ms=200, price=DEAR), Period(until_ms=300, price=CHEAP))


@pytest.mark.parametrize(
    ("at_ms", "price"), [(0, CHEAP), (99, CHEAP), (100, DEAR), (199, DEAR), (200, CHEAP), (299, CHEAP), (300, None)]
)
def test_the_first_period_that_covers_a_moment_holds(at_ms: int, price: Price | None) -> None:
    assert price_at(PERIODS, at_ms) == price


@pytest.mark.parametrize(
    ("from_ms", "to_ms", "prices"),
    [
        (0, 50, [CHEAP]),
        (0, 100, [CHEAP, DEAR]),
        (150, 199, [DEAR]),
        (150, 250, [DEAR, CHEAP]),
        (250, 400, [CHEAP, None]),
        (400, 500, [None]),
    ],
)
def test_every_price_of_a_time_is_found(from_ms: int, to_ms: int, prices: list[Price | None]) -> None:
    assert prices_between(PERIODS, from_ms, to_ms) == prices


AMOUNTS = st.integers(0, 100 * USD)
RATES = st.builds(rates, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS)
LEVELS = st.lists(st.tuples(st.integers(1, 300_000), RATES), max_size=3, unique_by=lambda level: level[0]).map(
    lambda levels: tuple(Level(above_input_tokens=above, rates=of) for above, of in sorted(levels, key=lambda e: e[0]))
)
TARIFFS = st.builds(lambda base, levels: Tariff(base=base, levels=levels), RATES, LEVELS)
COUNTS = st.integers(0, 200_000)
TOKENS = st.builds(
    lambda a, b, c, d, e: Tokens(fresh_input=a, cached=b, cache_write=c, cache_write_1h=d, output=e),
    COUNTS, COUNTS, COUNTS, COUNTS, COUNTS,
)  # fmt: skip


def exactly(tariff: Tariff, tokens: Tokens) -> Fraction:
    """Nano-USD by fractions alone, level by level from the longest."""
    of = tariff.base
    for level in reversed(tariff.levels):
        if tokens.input > level.above_input_tokens:
            of = level.rates
            break
    usd = (
        Fraction(of.input, 10**18) * tokens.fresh_input
        + Fraction(of.cached, 10**18) * tokens.cached
        + Fraction(of.cache_write, 10**18) * tokens.cache_write
        + Fraction(of.cache_write_1h, 10**18) * tokens.cache_write_1h
        + Fraction(of.output, 10**18) * tokens.output
    )
    return usd * 10**9


@given(TARIFFS, TOKENS)
def test_a_cost_is_the_exact_one_to_half_a_nano_usd(tariff: Tariff, tokens: Tokens) -> None:
    """O1: no float, one rounding."""
    cost, exact = cost_nano_usd(tariff, tokens), exactly(tariff, tokens)
    assert Fraction(-1, 2) < cost - exact <= Fraction(1, 2)


@given(RATES, TOKENS)
def test_the_classes_sum_to_the_whole(of: Rates, tokens: Tokens) -> None:
    """Before rounding, nothing is lost between the classes and nothing is counted twice."""
    parts = (
        Tokens(fresh_input=tokens.fresh_input, output=0),
        Tokens(fresh_input=0, cached=tokens.cached, output=0),
        Tokens(fresh_input=0, cache_write=tokens.cache_write, output=0),
        Tokens(fresh_input=0, cache_write_1h=tokens.cache_write_1h, output=0),
        Tokens(fresh_input=0, output=tokens.output),
    )
    assert sum(cost_atto_usd(of, part) for part in parts) == cost_atto_usd(of, tokens)


@given(RATES, TOKENS, TOKENS)
def test_more_tokens_never_cost_less(of: Rates, tokens: Tokens, more: Tokens) -> None:
    tariff = Tariff(base=of)
    total = Tokens(
        fresh_input=tokens.fresh_input + more.fresh_input,
        cached=tokens.cached + more.cached,
        cache_write=tokens.cache_write + more.cache_write,
        cache_write_1h=tokens.cache_write_1h + more.cache_write_1h,
        output=tokens.output + more.output,
    )
    assert 0 <= cost_nano_usd(tariff, tokens) <= cost_nano_usd(tariff, total)


@given(TARIFFS, TOKENS, COUNTS, COUNTS)
def test_no_call_costs_more_than_its_worst_case(tariff: Tariff, tokens: Tokens, more: int, longer: int) -> None:
    """E10: what is reserved before a call is enough, whatever its classes and how short it stays."""
    worst = worst_cost_nano_usd(tariff, input_tokens=tokens.input + more, max_output_tokens=tokens.output + longer)
    assert cost_nano_usd(tariff, tokens) <= worst
