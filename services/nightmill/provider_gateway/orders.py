"""An order: one attempt of a shard with everything its answer needs to say. And how each attempt can end.

Costs come from usage alone. A call that was surely not billed costs 0; one whose bill is not known costs None, never 0,
and keeps its reservation.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nightmill.kernel.domain.failures import Billed
from nightmill.kernel.domain.ids import attempt_id
from nightmill.kernel.domain.lifecycle import AttemptState
from nightmill.kernel.domain.pricing import (
    Period,
    Tariff,
    cost_nano_usd,
    price_at,
    tokens_within,
    worst_cost_nano_usd,
)
from nightmill.kernel.wire.messages import AttemptAnswered, Failure, ShardAttempt, ShardDispatched, Usage
from nightmill.kernel.wire.values import replace
from nightmill.provider_gateway.exchange import Reply
from nightmill.provider_gateway.failures import Signal, failure, outcome_unknown
from nightmill.provider_gateway.shares import apportioned

#: longer outputs travel as a blob
INLINE_OUTPUT_BYTES = 8 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One call to make."""

    shard: ShardDispatched
    index: int  #: of the attempt in the shard
    partition: int
    model: str
    periods: tuple[Period, ...]  #: prices of the model by time; none: what it costs is not known
    price_version: str
    planned: int = 0  #: items of its batch; 0: not told
    piece: int = 0  #: of its shard, once a call with others was refused; orders of different pieces do not mix

    def tariff(self, at_ms: int, service_tier: str | None = None) -> Tariff | None:
        """What a call of this order costs that was begun at a moment; None: not known."""
        price = price_at(self.periods, at_ms)
        return None if price is None else price.tariff(self.shard.lane, service_tier)

    @property
    def attempt(self) -> ShardAttempt:
        return self.shard.attempts[self.index]

    @property
    def key(self) -> str:
        """The attempt's whole identity."""
        return attempt_key(self.attempt)


def attempt_key(attempt: ShardAttempt | AttemptAnswered) -> str:
    """Item, ordinal and minting time: ordinals alone start again when an item's row was dropped."""
    return f"{attempt.item_key}-{attempt.ordinal}-{attempt.minted_at_ms}"


def custom_id(order: Order) -> str:
    """By which a line of a batch is joined with its order: unique in a submission, and the same in every try."""
    return attempt_id(order.attempt.item_key, order.attempt.ordinal)


def concluded(
    order: Order,
    reply: Reply,
    *,
    started_at_ms: int,
    ended_at_ms: int,
    http_status: int | None = None,
    provider_request_id: str | None = None,
) -> AttemptAnswered:
    """The message of a call that was made."""
    return _message(
        order,
        _state(reply.failure),
        reply,
        cost=_cost(order, reply, started_at_ms),
        started_at_ms=started_at_ms,
        ended_at_ms=ended_at_ms,
        http_status=http_status,
        provider_request_id=provider_request_id,
    )


def concluded_together(
    replies: Sequence[tuple[Order, Reply]],
    *,
    started_at_ms: int,
    ended_at_ms: int,
    http_status: int | None = None,
    provider_request_id: str | None = None,
) -> tuple[AttemptAnswered, ...]:
    """The messages of one call for many orders: what it cost, and what it might have, is theirs in shares of it."""
    answers = tuple(
        concluded(
            order,
            reply,
            started_at_ms=started_at_ms,
            ended_at_ms=ended_at_ms,
            http_status=http_status,
            provider_request_id=provider_request_id,
        )
        for order, reply in replies
    )
    if len(answers) < 2:
        return answers
    costs = _costs_together(replies, started_at_ms)
    reserved = _reserved_together([order for order, _ in replies], started_at_ms)
    return tuple(
        replace(answered, cost_nano_usd=cost, reserved_nano_usd=kept)
        for answered, cost, kept in zip(answers, costs, reserved, strict=True)
    )


def _costs_together(replies: Sequence[tuple[Order, Reply]], at_ms: int) -> Sequence[int | None]:
    """Shares of what the call cost as a whole, which is not the sum of what each would have cost alone."""
    order, first = replies[0]
    used = [reply.usage for _, reply in replies if reply.usage is not None]
    if len(used) < len(replies):
        return [_cost(order, reply, at_ms) for order, reply in replies]
    whole = Usage(
        input_tokens=sum(usage.input_tokens for usage in used),
        cached_tokens=sum(usage.cached_tokens for usage in used),
        output_tokens=sum(usage.output_tokens for usage in used),
    )
    cost = _cost(order, dataclasses.replace(first, usage=whole), at_ms)
    if cost is None:
        return [None] * len(replies)
    return apportioned(cost, [usage.input_tokens for usage in used])


def _reserved_together(orders: Sequence[Order], at_ms: int) -> Sequence[int]:
    tokens, tariff = [order.attempt.input_tokens for order in orders], orders[0].tariff(at_ms)
    if tariff is None:
        return [0] * len(orders)
    output = sum(order.attempt.max_output_tokens for order in orders)
    return apportioned(worst_cost_nano_usd(tariff, input_tokens=sum(tokens), max_output_tokens=output), tokens)


def refused(order: Order, reason: Failure, *, now_ms: int) -> AttemptAnswered:
    """The message of a call that was not made and will not be: its failure is our own finding, and it cost nothing."""
    return _message(order, AttemptState.FAILED, Reply(failure=reason), cost=0, ended_at_ms=now_ms)


def not_sent(order: Order, *, now_ms: int) -> AttemptAnswered:
    """The message of a call that was called off before it left."""
    return _message(order, AttemptState.NOT_SENT, Reply(), cost=0, ended_at_ms=now_ms)


def unknown(order: Order, signal: Signal, *, now_ms: int) -> AttemptAnswered:
    """The message of a call that may have been carried out, whose answer nobody has."""
    return _message(order, AttemptState.UNKNOWN, Reply(failure=failure(signal)), cost=None, ended_at_ms=now_ms)


def offloaded(answered: AttemptAnswered, put: Callable[[bytes], str]) -> AttemptAnswered:
    """The message with a long output moved to a blob. Raises what `put` raises."""
    if not is_long(answered) or answered.output is None:
        return answered
    return replace(answered, output=None, output_digest=put(answered.output.encode()))


def is_long(answered: AttemptAnswered) -> bool:
    """Whether the output is too long to travel in the message."""
    output = answered.output
    if output is None or len(output) * 4 <= INLINE_OUTPUT_BYTES:
        return False
    return len(output) > INLINE_OUTPUT_BYTES or len(output.encode()) > INLINE_OUTPUT_BYTES


def why_cost_unknown(answered: AttemptAnswered) -> str | None:
    """Why nobody knows what a call cost: `outcome`, `no_usage` or `no_price`; None when it is known."""
    if answered.cost_nano_usd is not None:
        return None
    if answered.state is AttemptState.UNKNOWN:
        return "outcome"
    return "no_usage" if answered.usage is None else "no_price"


def _state(reason: Failure | None) -> AttemptState:
    if reason is None:
        return AttemptState.ANSWERED
    return AttemptState.UNKNOWN if outcome_unknown(reason) else AttemptState.FAILED


def _cost(order: Order, reply: Reply, at_ms: int) -> int | None:
    if reply.failure is not None and reply.failure.billed is Billed.NO:
        return 0
    tariff, usage = order.tariff(at_ms, reply.service_tier), reply.usage
    if tariff is None or usage is None or reply.price_percent is None:
        return None
    tokens = tokens_within(
        input_tokens=usage.input_tokens,
        cached_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens or 0,
        cache_write_1h_tokens=usage.cache_write_1h_tokens or 0,
        output_tokens=usage.output_tokens,
    )
    return None if tokens is None else cost_nano_usd(tariff, tokens, percent=reply.price_percent)


def _reserved(order: Order, at_ms: int) -> int:
    attempt, tariff = order.attempt, order.tariff(at_ms)
    if tariff is None:
        return 0
    return worst_cost_nano_usd(tariff, input_tokens=attempt.input_tokens, max_output_tokens=attempt.max_output_tokens)


def _message(
    order: Order,
    state: AttemptState,
    reply: Reply,
    *,
    cost: int | None,
    ended_at_ms: int,
    started_at_ms: int | None = None,
    http_status: int | None = None,
    provider_request_id: str | None = None,
) -> AttemptAnswered:
    shard, attempt = order.shard, order.attempt
    return AttemptAnswered(
        item_key=attempt.item_key,
        ordinal=attempt.ordinal,
        minted_at_ms=attempt.minted_at_ms,
        shard_id=shard.shard_id,
        batch_id=attempt.batch_id,
        job_id=shard.job_id,
        generation=attempt.generation,
        source_id=attempt.source_id,
        row=attempt.row,
        pipeline_digest=shard.pipeline_digest,
        pool=shard.pool,
        model=order.model,
        lane=shard.lane,
        state=state,
        failure=reply.failure,
        output=reply.text,
        finish_reason=reply.finish_reason,
        usage=reply.usage,
        cost_nano_usd=cost,
        reserved_nano_usd=_reserved(order, ended_at_ms if started_at_ms is None else started_at_ms),
        price_version=order.price_version,
        http_status=http_status,
        provider_request_id=provider_request_id,
        is_repair=attempt.repair is not None,
        late=False,
        started_at_ms=started_at_ms,
        ended_at_ms=ended_at_ms,
    )
