"""Tokens, cost and time of a plan before anything is spent (P4). Money is integer nano-USD.

Expected: one call per item whose answer is as long as `max_output_tokens`, unless a better length is known. Worst: that
call and every repair the pipeline allows, each at `max_output_tokens`; a repair sends the first prompt, the failed
answer and its fault again. Nothing is read from a cache; at worst all is written into one, if that is dearer. Of the
prices in force until the plan is done, the dearest holds at worst. Retries after a failed call are not counted: what
fails is, as a rule, not billed, and the running total stops the batch at its budget.

The lane is the one that `kernel.domain.lanes` chooses for the whole plan; other lanes that the pipeline may take are
estimated beside it. A plan that may be moved from bulk to realtime costs at worst what realtime costs. A provider has a
day for its batches, and as many days as there are rounds of what may be enqueued at once; most take far less. A call
of a pool that embeds holds many items, as many as its limits allow.

A price may rise for long calls. Expected: all calls are of the mean length. Worst: as many calls are that long as the
tokens allow, each as long as the longest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nightmill.kernel.domain.lanes import ASSUMED_CALL_S, Choice, Outlook, choose, pools_for
from nightmill.kernel.domain.lifecycle import Lane
from nightmill.kernel.domain.pipeline import PROVIDERS_DAY_S, Pipeline
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTotals:
    """What the planner read: rows that can be items, rows that can not, tokens of all first calls."""

    items: int
    refused_rows: int
    input_tokens: int
    longest_input_tokens: int | None = None  #: of the longest first call; None: not known, so it may be all of them


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolEstimate:
    """The whole plan on one pool in one lane. Costs are None where the model has no price in that lane."""

    pool: str
    model: str
    lane: Lane
    expected_cost_nano_usd: int | None
    worst_cost_nano_usd: int | None
    duration_s: float
    least_s: float  #: what the pool's rates alone take, whatever a call takes; 0: it has none
    limited_by: str  #: the limit that takes longest: requests, input tokens, output tokens, slots, a provider's day


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a plan takes: expected on the first pool of its lane, at worst on the dearest."""

    lane: Lane
    lane_reason: str
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
    pools: tuple[PoolEstimate, ...]  #: in the pipeline's order, those of the lane that is chosen first

    def in_lane(self, lane: Lane) -> tuple[PoolEstimate, ...]:
        return tuple(pool for pool in self.pools if pool.lane is lane)


def usable_pools(pipeline: Pipeline, tenant: str, config: Config, lane: Lane | None = None) -> dict[str, Pool]:
    """Pools of the pipeline, in its order, that are known and may see its documents for this tenant (P6).

    Those that have `lane`; without one, all that it may use in any of its lanes.
    """
    owner = config.tenants.get(tenant)
    if owner is None:
        return {}
    # a pool that has a bulk lane has a realtime one, too
    wanted = lane or lanes_of(pipeline)[0]
    return {name: config.pools[name] for name in pools_for(pipeline, wanted, config.pools, owner).usable}


def lanes_of(pipeline: Pipeline) -> tuple[Lane, ...]:
    """Lanes that a pipeline may take."""
    return (pipeline.lane,) if isinstance(pipeline.lane, Lane) else (Lane.REALTIME, Lane.BULK)


def estimate(
    pipeline: Pipeline,
    plan: PlanTotals,
    *,
    tenant: str,
    config: Config,
    now_ms: int,
    deadline_at_ms: int | None = None,
    answer_tokens: int | None = None,
    call_s: float = ASSUMED_CALL_S,
) -> Estimate:
    """Estimate of a plan; `answer_tokens` is the usual length of an answer where it is known."""
    longest = pipeline.model.max_output_tokens
    output_tokens = plan.items * (longest if answer_tokens is None else min(answer_tokens, longest))
    found = {
        lane: tuple(
            _on_pool(name, pool, lane, config, pipeline, plan, output_tokens, call_s, now_ms)
            for name, pool in usable_pools(pipeline, tenant, config, lane).items()
        )
        for lane in lanes_of(pipeline)
    }
    left_ms = None if deadline_at_ms is None else deadline_at_ms - now_ms
    choice = _choice(pipeline, config, plan, found, left_ms)
    chosen = found.get(choice.lane, ())
    others = tuple(pool for lane, pools in found.items() if lane is not choice.lane for pool in pools)
    may_move = choice.lane is Lane.BULK and (left_ms is not None or _too_long_for(chosen, config, pipeline, plan))
    return Estimate(
        lane=choice.lane,
        lane_reason=choice.reason,
        items=plan.items,
        refused_rows=plan.refused_rows,
        input_tokens=plan.input_tokens,
        output_tokens=output_tokens,
        max_output_tokens=plan.items * longest,
        expected_cost_nano_usd=chosen[0].expected_cost_nano_usd if chosen else None,
        worst_cost_nano_usd=_greatest([pool.worst_cost_nano_usd for pool in (*chosen, *(others if may_move else ()))]),
        duration_s=chosen[0].duration_s if chosen else 0.0,
        done_at_ms=now_ms + round(chosen[0].duration_s * 1000) if chosen else now_ms,
        price_version=config.prices.book_version,
        pools=(*chosen, *others),
    )


def _choice(
    pipeline: Pipeline,
    config: Config,
    plan: PlanTotals,
    found: Mapping[Lane, Sequence[PoolEstimate]],
    left_ms: int | None,
) -> Choice:
    """What the dispatcher would choose for the whole plan now, on the first realtime pool."""
    first = next(iter(found.get(Lane.REALTIME, ())), None)
    busy = first is not None and first.duration_s > 0
    outlook = Outlook(
        left_ms=left_ms,
        items=plan.items if busy else 0,
        per_s=plan.items / first.duration_s if first is not None and busy else 1.0,
        call_ms=0 if first is None else round(config.pools[first.pool].call_deadline * 1000),
    )
    return choose(pipeline, has_bulk=bool(found.get(Lane.BULK)), outlook=outlook)


def _too_long_for(chosen: Sequence[PoolEstimate], config: Config, pipeline: Pipeline, plan: PlanTotals) -> bool:
    """Whether an item may need a longer context than the chosen pools have."""
    if plan.longest_input_tokens is None:
        return True
    needed = plan.longest_input_tokens + pipeline.model.max_output_tokens
    return needed > max((config.pools[pool.pool].context_tokens for pool in chosen), default=0)


def _greatest(costs: Sequence[int | None]) -> int | None:
    known = [cost for cost in costs if cost is not None]
    return max(known) if known and len(known) == len(costs) else None


def _on_pool(
    name: str,
    pool: Pool,
    lane: Lane,
    config: Config,
    pipeline: Pipeline,
    plan: PlanTotals,
    output_tokens: int,
    call_s: float,
    now_ms: int,
) -> PoolEstimate:
    least_s, duration_s, limited_by = _duration(pool, plan, output_tokens, call_s)
    if lane is Lane.BULK:
        least_s, duration_s, limited_by = 0.0, _rounds(pool, plan) * PROVIDERS_DAY_S, "a provider's day"
    prices = prices_between(config.prices.periods(pool), now_ms, now_ms + round(duration_s * 1000))
    tariffs = [None if price is None else price.tariff(lane) for price in prices]
    return PoolEstimate(
        pool=name,
        model=pool.model,
        lane=lane,
        expected_cost_nano_usd=None if tariffs[0] is None else _expected(tariffs[0], plan, output_tokens),
        worst_cost_nano_usd=_greatest(
            [None if each is None else _worst(each, lane, pipeline, plan) for each in tariffs]
        ),
        duration_s=duration_s,
        least_s=least_s,
        limited_by=limited_by,
    )


def _expected(tariff: Tariff, plan: PlanTotals, output_tokens: int) -> int:
    rates = tariff.rates(-(-plan.input_tokens // max(plan.items, 1)))
    return to_nano_usd(cost_atto_usd(rates, Tokens(fresh_input=plan.input_tokens, output=output_tokens)))


def _worst(tariff: Tariff, lane: Lane, pipeline: Pipeline, plan: PlanTotals) -> int:
    output = pipeline.model.max_output_tokens
    longest = plan.input_tokens if plan.longest_input_tokens is None else plan.longest_input_tokens
    total = _worst_round(tariff, lane, plan.items, plan.input_tokens, longest, output)
    more = output + REPAIR_TOKENS
    again = _worst_round(tariff, lane, plan.items, plan.input_tokens + plan.items * more, longest + more, output)
    return to_nano_usd(total + pipeline.repair.attempts * again)


def _worst_round(tariff: Tariff, lane: Lane, calls: int, input_tokens: int, longest: int, output: int) -> int:
    """Upper bound in atto-USD of one call for each item: the calls' sum of input tokens and the longest are known."""
    reached = [level.above_input_tokens for level in tariff.levels if longest > level.above_input_tokens]
    long_calls = min(calls, input_tokens // (reached[0] + 1)) if reached else 0
    long_tokens = min(input_tokens, long_calls * longest)
    short = _dearest_atto_usd(tariff.base, lane, input_tokens - long_tokens, (calls - long_calls) * output)
    return short + _dearest_atto_usd(tariff.dearest(longest), lane, long_tokens, long_calls * output)


def _dearest_atto_usd(rates: Rates, lane: Lane, input_tokens: int, output_tokens: int) -> int:
    # only requests of a batch ask to cache for an hour
    dearest = rates.dearest_input if lane is Lane.BULK else rates.dearest_unasked_input
    return input_tokens * dearest + output_tokens * rates.output


def _rounds(pool: Pool, plan: PlanTotals) -> int:
    """How many times what may be enqueued at once."""
    most = None if pool.bulk is None else pool.bulk.enqueued_tokens
    return 1 if most is None else max(1, -(-plan.input_tokens // most))


def _duration(pool: Pool, plan: PlanTotals, output_tokens: int, call_s: float) -> tuple[float, float, str]:
    """Seconds by the rates alone and by all limits, and the limit that takes longest."""
    limits, calls = pool.limits, _calls(pool, plan)
    by_minute = (
        ("requests", calls, limits.requests_per_minute),
        ("input tokens", plan.input_tokens, limits.input_tokens_per_minute),
        ("output tokens", output_tokens, limits.output_tokens_per_minute),
    )
    times = [(amount * 60 / limit, name) for name, amount, limit in by_minute if limit is not None]
    # max keeps the first of equals, so a pool without rates is limited by its slots
    slowest = max([(calls * call_s / limits.slots, "slots"), *times], key=lambda entry: entry[0])
    return max((time_s for time_s, _ in times), default=0.0), *slowest


def _calls(pool: Pool, plan: PlanTotals) -> int:
    """First calls of the plan."""
    if pool.embeddings is None:
        return plan.items
    by_inputs, by_tokens = -(-plan.items // pool.embeddings.max_inputs), plan.input_tokens // pool.embeddings.max_tokens
    return max(by_inputs, by_tokens)
