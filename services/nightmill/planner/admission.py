"""Whether a job may start: a value, never an exception (P4, P5, P6).

`admit` is asked twice with the same arguments but one: before anything is read (`plan=None`), and with the estimate
once the input is frozen. The `estimate` command asks it too, so that what it says is what would happen.
"""

from nightmill.kernel.domain.lanes import pools_for, span
from nightmill.kernel.domain.lifecycle import Lane
from nightmill.kernel.domain.parameters import unfit, unfit_kind
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.pricing import price_at
from nightmill.kernel.domain.prompt import PromptError, parse_prompt
from nightmill.kernel.domain.settings import Config, Pool
from nightmill.kernel.wire.messages import Refusal
from nightmill.planner.estimate import Estimate, lanes_of, usable_pools
from nightmill.planner.meter import ENCODINGS

#: work that must be done sooner belongs on the online path
LEAST_DEADLINE_S = 5
_NANO = 1_000_000_000


def admit(
    pipeline: Pipeline,
    *,
    tenant: str,
    config: Config,
    plan: Estimate | None,
    budget_nano_usd: int | None,
    deadline_at_ms: int | None,
    now_ms: int,
) -> Refusal | None:
    """The first rule that forbids the job, with place, value and remedy; None when it may start."""
    return (
        _check_deadline(deadline_at_ms, now_ms)
        or _check_prompt(pipeline)
        or _check_pools(pipeline, config)
        or _check_kind(pipeline, config)
        or _check_sensitivity(pipeline, tenant, config)
        or _check_parameters(pipeline, tenant, config)
        or _check_prices(pipeline, tenant, config, now_ms)
        or (_check_plan(plan, budget_nano_usd, deadline_at_ms, now_ms) if plan is not None else None)
    )


def doubts(pipeline: Pipeline, plan: Estimate, *, deadline_at_ms: int | None, now_ms: int) -> tuple[str, ...]:
    """Why an admitted plan may miss its deadline all the same: what rests on an assumption, or on a provider's day."""
    if deadline_at_ms is None or not plan.pools:
        return ()
    left_ms, first = deadline_at_ms - now_ms, plan.pools[0]
    if first.duration_s * 1000 <= left_ms:
        return ()
    left, takes = span(left_ms), span(round(first.duration_s * 1000))
    if plan.lane is Lane.REALTIME:
        return (f"deadline: {left} left, and real time may take {takes} on pool {first.pool!r} ({first.limited_by})",)
    fallback = next(iter(plan.in_lane(Lane.REALTIME)), None)
    if fallback is None:
        return (
            f"deadline: {left} left, and batches may take {takes}; nothing is moved, for the pipeline says lane: bulk; "
            "lane: {bulk: over 2h} moves what is late to realtime",
        )
    if fallback.duration_s * 1000 <= left_ms:
        return ()
    late = span(round(fallback.duration_s * 1000))
    return (f"deadline: {left} left; batches may take {takes}, and real time {late} on pool {fallback.pool!r}",)


def usd(nano: int) -> str:
    """An amount for people, exact."""
    whole, rest = divmod(nano, _NANO)
    digits = f"{rest:09d}".rstrip("0").ljust(2, "0")
    return f"{whole:,}.{digits} USD"


def _check_deadline(deadline_at_ms: int | None, now_ms: int) -> Refusal | None:
    if deadline_at_ms is None or deadline_at_ms - now_ms >= LEAST_DEADLINE_S * 1000:
        return None
    left_s = (deadline_at_ms - now_ms) / 1000
    when = f"{-left_s:.1f} s ago" if left_s < 0 else f"only {left_s:.1f} s away"
    return Refusal(
        rule="deadline",
        message=f"deadline: it is {when}, and {LEAST_DEADLINE_S} s is the least; "
        "submit with a later --deadline, or call the model directly when somebody waits",
    )


def _check_prompt(pipeline: Pipeline) -> Refusal | None:
    try:
        prompt = parse_prompt(pipeline.prompt)
    except PromptError as error:
        return Refusal(rule="prompt", message=f"{error}; correct the template")
    if pipeline.embedding is not None and len(prompt.parts) > 1:
        return Refusal(
            rule="prompt",
            message="prompt: an embedding is made of one text; take the lines 'system:' and 'assistant:' out, "
            "with their parts",
        )
    unknown = sorted(prompt.variables - set(pipeline.input.fields))
    if not unknown:
        return None
    return Refusal(
        rule="prompt",
        message=f"prompt: the variable {unknown[0]!r} is not among input.fields {list(pipeline.input.fields)}; "
        "correct its name, or add it to input.fields in pipeline.yaml",
    )


def _check_pools(pipeline: Pipeline, config: Config) -> Refusal | None:
    for name in pipeline.model.pools:
        pool = config.pools.get(name)
        if pool is None:
            return Refusal(
                rule="unknown_pool",
                message=f"pipeline.yaml, model.pools: pools.yaml has no pool {name!r}, only {sorted(config.pools)}; "
                "add it there or name another",
            )
        if pool.tokenizer not in ENCODINGS:
            return Refusal(
                rule="unknown_tokenizer",
                message=f"pools.yaml, pool {name!r}: no tokenizer {pool.tokenizer!r}; name one of {sorted(ENCODINGS)}",
            )
    if pipeline.lane is Lane.BULK and all(config.pools[name].bulk is None for name in pipeline.model.pools):
        return Refusal(
            rule="no_bulk_pool",
            message=f"pipeline.yaml, lane: bulk, but none of the pools {list(pipeline.model.pools)} has a bulk lane; "
            "add bulk to a pool whose provider has a Batch API (pools.yaml), or set lane: realtime",
        )
    return None


def _check_kind(pipeline: Pipeline, config: Config) -> Refusal | None:
    for name in pipeline.model.pools:
        found = unfit_kind(pipeline.embedding, config.pools[name])
        if found is not None:
            return Refusal(rule=found.rule, message=f"pipeline.yaml, pool {name!r}: {found.message}")
    return None


def _check_sensitivity(pipeline: Pipeline, tenant: str, config: Config) -> Refusal | None:
    owner = config.tenants.get(tenant)
    if owner is None:
        return Refusal(
            rule="unknown_tenant",
            message=f"tenants.yaml has no tenant {tenant!r}, only {sorted(config.tenants)}; add it there",
        )
    wanted = pipeline.sensitivity
    if not owner.sensitivity.allows(wanted):
        return Refusal(
            rule="sensitivity",
            message=f"pipeline.yaml, sensitivity: {wanted} documents are more than tenant {tenant!r} may submit "
            f"({owner.sensitivity} at most, tenants.yaml); change the class there if that is wrong",
        )
    if usable_pools(pipeline, tenant, config):
        return None
    left_out = pools_for(pipeline, lanes_of(pipeline)[0], config.pools, owner).left_out
    reasons = "; ".join(f"{name}: {why}" for name, why in left_out)
    return Refusal(
        rule="sensitivity",
        message=f"pipeline.yaml, model.pools: none may see {wanted} documents of tenant {tenant!r} ({reasons}); "
        "name a pool that may, or change its class in pools.yaml or the tenant's rights in tenants.yaml",
    )


def _check_parameters(pipeline: Pipeline, tenant: str, config: Config) -> Refusal | None:
    """The pool is chosen only when an item is dispatched, so every pool must take what the pipeline sets."""
    for name, pool in usable_pools(pipeline, tenant, config).items():
        found = unfit(pipeline.model, pool)
        if found is not None:
            return Refusal(rule=found.rule, message=f"pipeline.yaml, pool {name!r}: {found.message}")
    return None


def _check_prices(pipeline: Pipeline, tenant: str, config: Config, now_ms: int) -> Refusal | None:
    for lane in lanes_of(pipeline):
        for name, pool in usable_pools(pipeline, tenant, config, lane).items():
            price = price_at(config.prices.periods(pool), now_ms)
            if price is None or price.tariff(lane) is None:
                return _no_price(name, pool, lane, has_price=price is not None)
    return None


def _no_price(name: str, pool: Pool, lane: Lane, *, has_price: bool) -> Refusal:
    what, remedy = "price", "add it (0 must be stated, it is never assumed)"
    if lane is Lane.BULK and has_price:
        what, remedy = "price of batches", "add batch or batch_discount to its entry, or set lane: realtime"
    return Refusal(
        rule="no_price",
        message=f"prices.yaml has no {what} for the model {pool.model!r} of pool {name!r} that holds now, "
        f"nor has the list of its provider; {remedy}",
    )


def _check_plan(plan: Estimate, budget_nano_usd: int | None, deadline_at_ms: int | None, now_ms: int) -> Refusal | None:
    if plan.items == 0:
        refused = f"all {plan.refused_rows} rows were refused" if plan.refused_rows else "it has no rows"
        return Refusal(rule="empty_input", message=f"input: {refused}, so there is nothing to do; check the file")
    late = None if deadline_at_ms is None else _check_reach(plan, deadline_at_ms - now_ms)
    if late is not None:
        return late
    worst = plan.worst_cost_nano_usd
    if budget_nano_usd is None or worst is None or worst <= budget_nano_usd:
        return None
    return Refusal(
        rule="budget",
        message=f"budget: {usd(budget_nano_usd)} is below the worst case of {usd(worst)} for {plan.items:,} items; "
        "raise --budget-usd, lower model.max_output_tokens or repair.attempts, or take fewer rows with --limit",
    )


def _check_reach(plan: Estimate, left_ms: int) -> Refusal | None:
    """Refuses what no lane can do in time: no bulk, and every pool's own rates take longer than is left."""
    pools = plan.in_lane(Lane.REALTIME)
    if plan.lane is Lane.BULK or not pools or pools[0].least_s * 1000 <= left_ms:
        return None
    first = pools[0]
    return Refusal(
        rule="deadline_unreachable",
        message=f"deadline: {span(left_ms)} left, but {plan.items:,} items take "
        f"{span(round(first.least_s * 1000))} at least by the rates of pool {first.pool!r} (lane realtime: "
        f"{plan.lane_reason}); give a later --deadline, fewer rows with --limit, or the pool higher limits in "
        "pools.yaml",
    )
