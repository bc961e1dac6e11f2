"""Tokens, cost and time of a plan before anything is spent (P4). Money is integer nano-USD.

Expected: one call per item whose answer is as long as `max_output_tokens`, unless a better length is known. Worst: that
call and every repair the pipeline allows, each at `max_output_tokens`; a repair sends the first prompt, the failed
answer and its fault again. Nothing is read from a cache; at worst all is written into one, if that is dearer. Of the
prices in force until the plan is done, the dearest holds at worst. Retries after a failed call are not counted: what
fails is, as a rule, not billed, and the running total stops the batch at its budget.

A call of a pool that embeds holds many items, as many as its limits allow.

A price may rise for long calls. Expected: all calls are of the mean length. Worst: as many calls are that long as the
tokens allow, each as long as the longest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from nightmill.kernel.domain.lifecycle import Lane
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.pricing import (
    Rates,
    Tariff,
    Tokens,
    cost_atto_usd,
    prices_between,
    to_nano_usd,
)
from nightmill.kernel.domain.settings import Config, Pool

#: tokens of a repair call's own words and frame, rounded up
REPAIR_TOKENS = 128
#: stated assumption: seconds that a call takes, until the pool's own are known
ASSUMED_CALL_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTotals:
    """What the planner read: rows that can be items, rows that can not, tokens of all first calls."""

    items: int
    refused_rows: int
    input_tokens: int
    longest_input_tokens: int | None = None  #: of the longest first call; None: not known, so it may be all of them


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolEstimate:
    """The whole plan on one pool. Costs are None where the model has no price."""

    pool: str
    model: str
    expected_cost_nano_usd: int | None
    worst_cost_nano_usd: int | None
    duration_s: float
    limited_by: str  #: the limit that takes longest: requests, input tokens, output tokens or slots


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a plan takes: expected on the first pool that may be used, at worst on the dearest."""

    items: int
    refused_rows: int
    input_tokens: int  #: of all first calls
    output_tokens: int  #: expected
    max_output_tokens: int  #: of all first calls, at worst
    expected_cost_nano_usd: int | None
    worst_cost_nano_usd: int | None
    duration_s: float
    done_at_ms: int
    price_version: str
    pools: tuple[PoolEstimate, ...]  #: in the pipeline's order


def usable_pools(pipeline: Pipeline, tenant: str, config: Config) -> dict[str, Pool]:
    """Pools of the pipeline, in its order, that are known and may see its documents for this tenant (P6).

    Of a bulk pipeline only those with a bulk lane.
    """
    owner = config.tenants.get(tenant)
    if owner is None or not owner.sensitivity.allows(pipeline.sensitivity):
        return {}
    return {
        name: config.pools[name]
        for name in pipeline.model.pools
        if name in config.pools
        and (owner.pools is None or name in owner.pools)
        and config.pools[name].sensitivity.allows(pipeline.sensitivity)
        and (pipeline.lane is not Lane.BULK or config.pools[name].bulk is not None)
    }


def estimate(
    pipeline: Pipeline,
    plan: PlanTotals,
    *,
    tenant: str,
    config: Config,
    now_ms: int,
    answer_tokens: int | None = None,
    call_s: float = ASSUMED_CALL_S,
) -> Estimate:
    """Estimate of a plan; `answer_tokens` is the usual length of an answer where it is known."""
    longest = pipeline.model.max_output_tokens
    output_tokens = plan.items * (longest if answer_tokens is None else min(answer_tokens, longest))
    pools = tuple(
        _on_pool(name, pool, config, pipeline, plan, output_tokens, call_s, now_ms)
        for name, pool in usable_pools(pipeline, tenant, config).items()
    )
    worst = [pool.worst_cost_nano_usd for pool in pools]
    duration_s = pools[0].duration_s if pools else 0.0
    return Estimate(
        items=plan.items,
        refused_rows=plan.refused_rows,
        input_tokens=plan.input_tokens,
        output_tokens=output_tokens,
        max_output_tokens=plan.items * longest,
        expected_cost_nano_usd=pools[0].expected_cost_nano_usd if pools else None,
        worst_cost_nano_usd=_greatest(worst),
        duration_s=duration_s,
        done_at_ms=now_ms + round(duration_s * 1000),
        price_version=config.prices.book_version,
        pools=pools,
    )


def _greatest(costs: Sequence[int | None]) -> int | None:
    known = [cost for cost in costs if cost is not None]
    return max(known) if known and len(known) == len(costs) else None


def _on_pool(
    name: str,
    pool: Pool,
    config: Config,
    pipeline: Pipeline,
    plan: PlanTotals,
    output_tokens: int,
    call_s: float,
    now_ms: int,
) -> PoolEstimate:
    duration_s, limited_by = _duration(pool, plan, output_tokens, call_s)
    prices = prices_between(config.prices.periods(pool), now_ms, now_ms + round(duration_s * 1000))
    tariffs = [None if price is None else price.tariff(Lane.REALTIME) for price in prices]
    return PoolEstimate(
        pool=name,
        model=pool.model,
        expected_cost_nano_usd=None if tariffs[0] is None else _expected(tariffs[0], plan, output_tokens),
        worst_cost_nano_usd=_greatest([None if each is None else _worst(each, pipeline, plan) for each in tariffs]),
        duration_s=duration_s,
        limited_by=limited_by,
    )


def _expected(tariff: Tariff, plan: PlanTotals, output_tokens: int) -> int:
    rates = tariff.rates(-(-plan.input_tokens // max(plan.items, 1)))
    return to_nano_usd(cost_atto_usd(rates, Tokens(fresh_input=plan.input_tokens, output=output_tokens)))


def _worst(tariff: Tariff, pipeline: Pipeline, plan: PlanTotals) -> int:
    output = pipeline.model.max_output_tokens
    longest = plan.input_tokens if plan.longest_input_tokens is None else plan.longest_input_tokens
    total = _worst_round(tariff, plan.items, plan.input_tokens, longest, output)
    more = output + REPAIR_TOKENS
    again = _worst_round(tariff, plan.items, plan.input_tokens + plan.items * more, longest + more, output)
    return to_nano_usd(total + pipeline.repair.attempts * again)


def _worst_round(tariff: Tariff, calls: int, input_tokens: int, longest: int, output: int) -> int:
    """Upper bound in atto-USD of one call for each item: the calls' sum of input tokens and the longest are known."""
    reached = [level.above_input_tokens for level in tariff.levels if longest > level.above_input_tokens]
    long_calls = min(calls, input_tokens // (reached[0] + 1)) if reached else 0
    long_tokens = min(input_tokens, long_calls * longest)
    short = _dearest_atto_usd(tariff.base, input_tokens - long_tokens, (calls - long_calls) * output)
    return short + _dearest_atto_usd(tariff.dearest(longest), long_tokens, long_calls * output)


def _dearest_atto_usd(rates: Rates, input_tokens: int, output_tokens: int) -> int:
    # only requests of a batch ask to cache for an hour: twice the input, at half the price that is reckoned with here
    return input_tokens * rates.dearest_unasked_input + output_tokens * rates.output


def _duration(pool: Pool, plan: PlanTotals, output_tokens: int, call_s: float) -> tuple[float, str]:
    limits, calls = pool.limits, _calls(pool, plan)
    by_minute = (
        ("requests", calls, limits.requests_per_minute),
        ("input tokens", plan.input_tokens, limits.input_tokens_per_minute),
        ("output tokens", output_tokens, limits.output_tokens_per_minute),
    )
    times = [(amount * 60 / limit, name) for name, amount, limit in by_minute if limit is not None]
    # max keeps the first of equals, so a pool without rates is limited by its slots
    return max([(calls * call_s / limits.slots, "slots"), *times], key=lambda entry: entry[0])


def _calls(pool: Pool, plan: PlanTotals) -> int:
    """First calls of the plan."""
    if pool.embeddings is None:
        return plan.items
    by_inputs, by_tokens = -(-plan.items // pool.embeddings.max_inputs), plan.input_tokens // pool.embeddings.max_tokens
    return max(by_inputs, by_tokens)
