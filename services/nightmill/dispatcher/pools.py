"""Which pool an item goes to, and how much of a pool's work may be under way (P6, E2).

Sensitivity and the tenant's own pools are checked here, before a byte leaves, at admission and again at each dispatch.
"""

from nightmill.dispatcher.packing import ShardSize
from nightmill.kernel.domain.failures import Billed, FailureClass
from nightmill.kernel.domain.lanes import pools_for
from nightmill.kernel.domain.lifecycle import Lane
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.pricing import price_at, worst_cost_nano_usd
from nightmill.kernel.domain.settings import Config, Pool, PoolLimits, Tenant
from nightmill.kernel.wire.messages import Failure, ItemStateRow

#: Items that a realtime shard holds at most.
SHARD_ITEMS = 50
#: Limits of a shard by lane. What a bulk one costs in tokens does not matter: a submission is made of many.
SHARD_SIZES = {
    Lane.REALTIME: ShardSize(items=SHARD_ITEMS, tokens=250_000, bytes=3 << 20),
    Lane.BULK: ShardSize(items=1_000, tokens=2**62, bytes=768 << 10),
}
#: A provider has a day for a batch, is waited for two hours more, and its results take their time.
BULK_DEADLINE_S = 30 * 3600.0

#: Characters of a repair's text per token, on the safe side, and what the wording around it takes.
_CHARS_PER_TOKEN = 3
_REPAIR_WORDING_TOKENS = 64

_RATE_WINDOW_S = 3
_SLOTS_AHEAD = 4
_SUBMISSIONS_AHEAD = 4
_MOST_BULK_ITEMS = 50_000
_MOST_OUTSTANDING = 20_000  #: so that cancel and order stay in force
_MOST_WORTH = 500  #: less than a tick may take


def reservation_nano_usd(config: Config, row: ItemStateRow, now_ms: int) -> int:
    """What the row's current call costs at the most; 0 where its pool or price is not known any more."""
    pool = config.pools.get(row.pool or "")
    price = None if pool is None else price_at(config.prices.periods(pool), now_ms)
    tariff = None if price is None else price.tariff(row.lane or Lane.REALTIME)
    if tariff is None:
        return 0
    mended = 0 if row.repair is None else repair_tokens(len(row.repair.output) + len(row.repair.problem))
    tokens = row.input_tokens + mended
    return worst_cost_nano_usd(tariff, input_tokens=tokens, max_output_tokens=row.max_output_tokens)


def lane_of(config: Config, pool: str, lane: Lane) -> Lane:
    """How items of a batch in `lane` reach a pool."""
    known = config.pools.get(pool)
    has_bulk = known is not None and known.bulk is not None
    return lane if has_bulk else Lane.REALTIME


def allowed_pools(config: Config, pipeline: Pipeline, tenant: str, lane: Lane) -> tuple[str, ...]:
    """The pools that exist and may see the pipeline's documents on behalf of the tenant, best first for `lane`.

    In the bulk lane those without one are left out: they would cost twice as much. Where the deadline decides the lane
    they come last, for what no other pool's context holds.
    """
    rights = config.tenants.get(tenant) or Tenant()
    found = pools_for(pipeline, lane, config.pools, rights).usable
    if lane is Lane.REALTIME or pipeline.bulk_over_s is None:
        return found
    others = pools_for(pipeline, Lane.REALTIME, config.pools, rights).usable
    return (*found, *(name for name in others if name not in found))


def choose_pool(config: Config, allowed: tuple[str, ...], tokens: int) -> str | None:
    """The first allowed pool whose context holds so many tokens of input and output."""
    for name in allowed:
        if tokens <= config.pools[name].context_tokens:
            return name
    return None


def headroom_tokens(config: Config, allowed: tuple[str, ...], tokens: int) -> int:
    """What the longest context among the allowed pools leaves beside `tokens`; negative when it does not hold them."""
    return max((config.pools[name].context_tokens for name in allowed), default=0) - tokens


def repair_tokens(chars: int) -> int:
    """Estimate, on the safe side, of what a repair of so many characters adds to the input."""
    return chars // _CHARS_PER_TOKEN + 1 + _REPAIR_WORDING_TOKENS


def forbidden(config: Config, pipeline: Pipeline, tenant: str, lane: Lane) -> Failure:
    """No pool may see the item's documents in the lane."""
    found = pools_for(pipeline, lane, config.pools, config.tenants.get(tenant) or Tenant())
    reasons = "; ".join(f"{name}: {why}" for name, why in found.left_out)
    return _refusal(
        FailureClass.POLICY,
        "pool_forbidden",
        f"no pool may take {pipeline.sensitivity} documents of tenant {tenant} ({reasons}); name another pool in "
        "model.pools, or change pools.yaml or tenants.yaml",
    )


def too_long(config: Config, pipeline: Pipeline, allowed: tuple[str, ...], tokens: int) -> Failure:
    """No allowed pool's context holds the item."""
    contexts = ", ".join(f"{name} ({config.pools[name].context_tokens})" for name in allowed)
    if pipeline.embedding is not None:
        return _refusal(
            FailureClass.BAD_INPUT,
            "context_too_long",
            f"{', '.join(pipeline.input.fields)}: {tokens} tokens exceed the context of {contexts}; cut the text in "
            "the prompt, split the document, or name a pool with a longer context",
        )
    return _refusal(
        FailureClass.BAD_INPUT,
        "context_too_long",
        f"{tokens} tokens of input and output exceed the context of {contexts}; shorten the document, lower "
        f"model.max_output_tokens, or name a pool with a longer context",
    )


def internal(signal: str, message: str) -> Failure:
    """Something of ours could not be read; the item must still end."""
    return _refusal(FailureClass.INTERNAL, signal, message)


def _refusal(failure_class: FailureClass, signal: str, message: str) -> Failure:
    return Failure(
        failure_class=failure_class, signal=signal, message=message, uses_retry_budget=False, billed=Billed.NO
    )


def shard_size(pool: Pool, lane: Lane) -> ShardSize:
    """What a shard for a pool may hold; of a pool that embeds, one call."""
    if pool.embeddings is None or lane is Lane.BULK:
        return SHARD_SIZES[lane]
    limits = pool.embeddings
    return ShardSize(items=limits.max_inputs, tokens=limits.max_tokens, bytes=SHARD_SIZES[lane].bytes, is_one_call=True)


def most_in_realtime(pool: Pool) -> int:
    """Unanswered items that a pool may have in one partition: `most_outstanding` calls of as many as one holds."""
    calls = most_outstanding(pool.limits)
    return calls if pool.embeddings is None else min(calls * pool.embeddings.max_inputs, _MOST_OUTSTANDING)


def most_in_bulk(pool: Pool) -> int:
    """Unanswered items that a pool may have in one partition in its bulk lane.

    One submission at least, since its results come all at once; where submissions are small, so many that one is
    written while others run and are read. No more than the gateway can hold in its memory.
    """
    if pool.bulk is None:
        return 0
    one = pool.bulk.max_requests
    return min(_SUBMISSIONS_AHEAD * one, max(one, _MOST_BULK_ITEMS))


def most_outstanding(limits: PoolLimits) -> int:
    """Unanswered items of a pool in one partition: four times its slots, or three seconds of its request rate.

    An item is on its way for about a second beside its call, so a pool whose calls take 200 ms needs so much to keep
    its slots busy. Little enough that order and cancel stay in force; at least one item, whatever the limits say.
    """
    per_window = (limits.requests_per_minute or 0) * _RATE_WINDOW_S // 60
    return max(_SLOTS_AHEAD * limits.slots, per_window, 1)


def worth_dispatching(limit: int, size: ShardSize) -> int:
    """The least room at which packing begins: a shard, or a quarter of a small pool, not one item at a time."""
    items = size.items if size.is_one_call else SHARD_ITEMS
    return max(1, min(items, _MOST_WORTH, limit // 4))
