"""Money and time of a plan, with the arithmetic shown (P4)."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.kernel.domain.lifecycle import Lane
from nightmill.kernel.domain.pricing import Tokens, cost_nano_usd, price_at
from nightmill.planner.estimate import REPAIR_TOKENS, PlanTotals, estimate, usable_pools
from unit.planner.makers import CONFIG, NOW_MS, POOLS, make_config, make_embedding, make_pipeline


@pytest.mark.parametrize(
    ("items", "tokens", "calls"),
    [(1, 10, 1), (100, 5_000, 1), (101, 5_000, 2), (1_000, 3_000_000, 10), (10, 3_000_000, 10)],
)
def test_many_items_are_few_calls(items: int, tokens: int, calls: int) -> None:
    """P4: 100 inputs and 300,000 tokens a call; 10 slots at 2 s a call, and nothing is repaired."""
    config = make_config(pools={"mini": {**CONFIG["pools"]["mini"], "embeddings": {}}})
    plan = PlanTotals(items=items, refused_rows=0, input_tokens=tokens)
    found = estimate(make_embedding(), plan, tenant="acme", config=config, now_ms=NOW_MS)
    assert found.duration_s == max(calls * 2 / 10, calls * 60 / 600)
    # 1 USD a million tokens
    assert found.expected_cost_nano_usd == found.worst_cost_nano_usd == tokens * 1_000


PLAN = PlanTotals(items=1_000, refused_rows=2, input_tokens=300_000)


def test_expected_and_worst_cost_without_a_repair() -> None:
    """P4"""
    told = estimate(make_pipeline(), PLAN, tenant="acme", config=make_config(), now_ms=NOW_MS)
    # 300,000 in at 1 USD and 1,000 x 100 out at 10 USD per million: 0.3 + 1.0 USD
    assert told.expected_cost_nano_usd == told.worst_cost_nano_usd == 1_300_000_000
    assert (told.output_tokens, told.max_output_tokens) == (100_000, 100_000)
    assert (told.items, told.refused_rows, told.price_version) == (1_000, 2, "test-1")


def test_a_repair_sends_prompt_answer_and_fault_again() -> None:
    """P4"""
    pipeline = make_pipeline(repair={"attempts": 1})
    told = estimate(pipeline, PLAN, tenant="acme", config=make_config(), now_ms=NOW_MS, answer_tokens=20)
    # expected: 0.3 USD in, 1,000 x 20 out = 0.2 USD
    assert told.expected_cost_nano_usd == 500_000_000
    # worst: 1.3 USD, and again with 300,000 + 100,000 + 1,000 x 128 tokens in
    assert told.worst_cost_nano_usd == 1_300_000_000 + (400_000 + 1_000 * REPAIR_TOKENS) * 1_000 + 1_000_000_000


def test_the_first_pool_is_expected_and_the_dearest_is_the_worst() -> None:
    pipeline = make_pipeline(model={"pools": ["big", "mini"], "max_output_tokens": 100})
    told = estimate(pipeline, PLAN, tenant="acme", config=make_config(), now_ms=NOW_MS)
    # big: 0.6 + 0.5 USD; mini: 0.3 + 1.0 USD
    assert (told.expected_cost_nano_usd, told.worst_cost_nano_usd) == (1_100_000_000, 1_300_000_000)
    assert [pool.pool for pool in told.pools] == ["big", "mini"]


def test_a_missing_price_is_unknown_and_never_nought() -> None:
    """P4"""
    pipeline = make_pipeline(model={"pools": ["mini", "big"], "max_output_tokens": 100})
    config = make_config(prices={"model-mini": {"input_usd_per_million": 0, "output_usd_per_million": 0}})
    told = estimate(pipeline, PLAN, tenant="acme", config=config, now_ms=NOW_MS)
    assert (told.expected_cost_nano_usd, told.worst_cost_nano_usd) == (0, None)


@pytest.mark.parametrize(
    ("limits", "seconds", "limited_by"),
    [
        # 1,000 calls of 2 s in 10 slots
        ({"slots": 10}, 200.0, "slots"),
        # 1,000 calls at 60 a minute
        ({"slots": 10, "requests_per_minute": 60}, 1_000.0, "requests"),
        # 300,000 tokens at 60,000 a minute
        ({"slots": 10, "input_tokens_per_minute": 60_000, "requests_per_minute": 600}, 300.0, "input tokens"),
        # 100,000 tokens at 10,000 a minute
        ({"slots": 10, "output_tokens_per_minute": 10_000}, 600.0, "output tokens"),
    ],
)
def test_the_slowest_limit_gives_the_time(limits: dict[str, int], seconds: float, limited_by: str) -> None:
    """P4"""
    pool = {**POOLS["mini"].model_dump(), "limits": limits}
    told = estimate(make_pipeline(), PLAN, tenant="acme", config=make_config(pools={"mini": pool}), now_ms=NOW_MS)
    assert (told.duration_s, told.pools[0].limited_by) == (seconds, limited_by)
    assert told.done_at_ms == NOW_MS + seconds * 1000


@pytest.mark.parametrize(
    ("tenant", "sensitivity", "usable"),
    [
        ("acme", "public", ["mini", "big"]),
        ("acme", "internal", ["mini", "big"]),
        ("acme", "confidential", ["big"]),
        ("acme", "restricted", []),
        ("small", "internal", ["big"]),
        ("small", "confidential", []),
        ("nobody", "public", []),
    ],
)
def test_pools_that_may_see_the_documents(tenant: str, sensitivity: str, usable: list[str]) -> None:
    """P6"""
    model = {"pools": ["mini", "gone", "big"], "max_output_tokens": 1}
    pipeline = make_pipeline(model=model, sensitivity=sensitivity)
    assert list(usable_pools(pipeline, tenant, make_config())) == usable


#: ten times as much for a call of more than 1,000 tokens, and writing into a cache is dearer than reading afresh
LEVEL = {"input_tokens": 1_000, "input_usd_per_million": 10, "output_usd_per_million": 100}
STEEP: dict[str, dict[str, Any]] = {
    "model-mini": {
        "input_usd_per_million": 1,
        "cache_write_usd_per_million": 1.25,
        "output_usd_per_million": 10,
        "above": [LEVEL],
    }
}


@pytest.mark.parametrize(
    ("longest", "expected", "worst"),
    [
        # none is long: all tokens written into a cache, 300,000 x 1.25, and 1,000 x 100 x 10
        (1_000, 1_300, 375 + 1_000),
        # 299 calls can be of more than 1,000 tokens, 1,001 at most: 299,299 x 10 and 299 x 100 x 100 for those,
        # 701 x 1.25 and 701 x 100 x 10 for the others
        (1_001, 1_300, 2_992.99 + 2_990 + 0.87625 + 701),
        # not known: nearly all tokens may be in the 299
        (None, 1_300, 3_000 + 2_990 + 701),
    ],
)
def test_long_calls_cost_more_as_far_as_there_can_be_any(longest: int | None, expected: float, worst: float) -> None:
    """P4: whatever the lengths are that sum to the total."""
    plan = PlanTotals(items=1_000, refused_rows=0, input_tokens=300_000, longest_input_tokens=longest)
    told = estimate(make_pipeline(), plan, tenant="acme", config=make_config(prices=STEEP), now_ms=NOW_MS)
    # in thousandths of a USD
    assert told.expected_cost_nano_usd == expected * 1_000_000
    assert told.worst_cost_nano_usd == worst * 1_000_000


@given(
    st.lists(st.tuples(st.integers(1, 3_000), st.integers(0, 100)), min_size=1, max_size=20),
    st.sampled_from([1, 999, 1_000, 1_001]),
)
def test_no_plan_costs_more_than_its_worst_case(calls: list[tuple[int, int]], above: int) -> None:
    """P4: calls of any lengths, each charged by its own."""
    steep = {"model-mini": {**STEEP["model-mini"], "above": [{**LEVEL, "input_tokens": above}]}}
    config = make_config(prices=steep)
    plan = PlanTotals(
        items=len(calls),
        refused_rows=0,
        input_tokens=sum(tokens for tokens, _ in calls),
        longest_input_tokens=max(tokens for tokens, _ in calls),
    )
    told = estimate(make_pipeline(), plan, tenant="acme", config=config, now_ms=NOW_MS)
    price = price_at(config.prices.periods(POOLS["mini"]), NOW_MS)
    tariff = None if price is None else price.tariff(Lane.REALTIME)
    assert tariff is not None
    assert told.worst_cost_nano_usd is not None
    costs = [
        cost_nano_usd(tariff, Tokens(fresh_input=0, cache_write=tokens, output=output)) for tokens, output in calls
    ]
    assert sum(costs) <= told.worst_cost_nano_usd + len(calls)  # half a nano-USD of rounding for each


def test_a_price_that_rises_before_the_end_is_the_worst() -> None:
    """P4: expected is what holds now."""
    dated = [
        {"input_usd_per_million": 1, "output_usd_per_million": 10, "valid_to": "2026-11-30"},
        {"input_usd_per_million": 2, "output_usd_per_million": 20, "valid_from": "2026-12-01"},
    ]
    config = make_config(prices={"model-mini": dated})
    # NOW_MS is 00:53 on 2026-11-30; 1,000 calls of 2 s in 10 slots take 200 s, of 1,000 s nearly 28 h
    quick = estimate(make_pipeline(), PLAN, tenant="acme", config=config, now_ms=NOW_MS)
    assert quick.worst_cost_nano_usd == quick.expected_cost_nano_usd == 1_300_000_000
    slow = estimate(make_pipeline(), PLAN, tenant="acme", config=config, now_ms=NOW_MS, call_s=1_000.0)
    assert (slow.expected_cost_nano_usd, slow.worst_cost_nano_usd) == (1_300_000_000, 2_600_000_000)
    ended = make_config(prices={"model-mini": dated[:1]})
    gone = estimate(make_pipeline(), PLAN, tenant="acme", config=ended, now_ms=NOW_MS, call_s=1_000.0)
    assert (gone.expected_cost_nano_usd, gone.worst_cost_nano_usd) == (1_300_000_000, None)


IN_BULK = {"mini": {**CONFIG["pools"]["mini"], "bulk": {"enqueued_tokens": 200_000}}}
HALF: dict[str, dict[str, Any]] = {
    "model-mini": {"input_usd_per_million": 1, "output_usd_per_million": 10, "batch_discount": 0.5},
    "model-big": {"input_usd_per_million": 2, "output_usd_per_million": 5},
}
#: 1,000 x 100 output tokens at 10 USD and 300,000 input tokens at 1 USD a million
FULL_PRICE = 1_300_000_000


@pytest.mark.parametrize(
    ("lane", "left_s", "chosen", "expected", "worst", "rows"),
    [
        ("realtime", None, "realtime", FULL_PRICE, FULL_PRICE, ["realtime"]),
        ("bulk", None, "bulk", FULL_PRICE // 2, FULL_PRICE // 2, ["bulk"]),
        ("bulk", 60, "bulk", FULL_PRICE // 2, FULL_PRICE // 2, ["bulk"]),
        ("by deadline", None, "bulk", FULL_PRICE // 2, FULL_PRICE // 2, ["bulk", "realtime"]),
        # it may be moved, and then costs the whole price
        ("by deadline", 90_000, "bulk", FULL_PRICE // 2, FULL_PRICE, ["bulk", "realtime"]),
        ("by deadline", 86_400, "realtime", FULL_PRICE, FULL_PRICE, ["realtime", "bulk"]),
        # 1,000 calls take 200 s: twice that, 120 s for a call and 15 s of grace are 535 s
        ({"bulk": "over 2m"}, 536, "bulk", FULL_PRICE // 2, FULL_PRICE, ["bulk", "realtime"]),
        ({"bulk": "over 2m"}, 535, "realtime", FULL_PRICE, FULL_PRICE, ["realtime", "bulk"]),
    ],
)
def test_cost_and_time_by_lane(
    lane: object, left_s: int | None, chosen: str, expected: int, worst: int, rows: list[str]
) -> None:
    """P4, P5: the lane that would be chosen, at its price; the other beside it."""
    config = make_config(prices=HALF, pools=IN_BULK)
    plan = replace(PLAN, longest_input_tokens=400)
    deadline = None if left_s is None else NOW_MS + left_s * 1000
    told = estimate(
        make_pipeline(lane=lane), plan, tenant="acme", config=config, now_ms=NOW_MS, deadline_at_ms=deadline
    )
    assert (told.lane, told.expected_cost_nano_usd, told.worst_cost_nano_usd) == (chosen, expected, worst)
    assert [pool.lane for pool in told.pools] == rows
    # 300,000 tokens are two rounds of 200,000, a day each
    times = {"realtime": (200.0, "slots"), "bulk": (2 * 86_400.0, "a provider's day")}
    assert [(pool.duration_s, pool.limited_by) for pool in told.pools] == [times[row] for row in rows]


def test_a_batch_without_a_price_has_an_unknown_cost() -> None:
    """P4: never the realtime price, and never 0."""
    told = estimate(make_pipeline(lane="bulk"), PLAN, tenant="acme", config=make_config(pools=IN_BULK), now_ms=NOW_MS)
    assert (told.expected_cost_nano_usd, told.worst_cost_nano_usd) == (None, None)


def test_a_document_too_long_for_bulk_counts_at_the_price_of_realtime() -> None:
    """P4, P7: it takes a longer pool, whatever the deadline."""
    pools = {**IN_BULK, "big": {**CONFIG["pools"]["big"], "context_tokens": 9_000}}
    config = make_config(prices=HALF, pools=pools)
    pipeline = make_pipeline(lane="by deadline", model={"pools": ["mini", "big"], "max_output_tokens": 100})
    # on `big` 300,000 tokens at 2 USD and 100,000 at 5 USD a million: 1.1 USD; on `mini` in realtime 1.3 USD
    for longest, worst in ((900, FULL_PRICE // 2), (901, FULL_PRICE)):
        plan = replace(PLAN, longest_input_tokens=longest)
        told = estimate(pipeline, plan, tenant="acme", config=config, now_ms=NOW_MS)
        assert (told.lane, told.worst_cost_nano_usd) == ("bulk", worst)


def test_requests_of_a_batch_may_be_written_into_a_cache_for_an_hour() -> None:
    """P4, E12: at half of 2 USD a million for 300,000 tokens, and the half of the output's 1 USD; a call's are not."""
    prices = {"model-mini": {**HALF["model-mini"], "cache_write_1h_usd_per_million": 2}}
    config = make_config(prices=prices, pools=IN_BULK)
    plan = replace(PLAN, longest_input_tokens=400)
    for lane, worst in (("bulk", 300_000_000 + 500_000_000), ("realtime", FULL_PRICE)):
        told = estimate(make_pipeline(lane=lane), plan, tenant="acme", config=config, now_ms=NOW_MS)
        assert told.worst_cost_nano_usd == worst
