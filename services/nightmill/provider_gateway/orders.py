"""An order: one attempt of a shard with everything its answer needs to say. And how each attempt can end.

Costs come from usage alone. A call that was surely not billed costs 0; one whose bill is not known costs None, never 0,
and keeps its reservation.
"""

from collections.abc import Callable
from dataclasses import dataclass

from nightmill.kernel.domain.failures import Billed
from nightmill.kernel.domain.lifecycle import AttemptState
from nightmill.kernel.domain.pricing import cost_nano_usd, worst_cost_nano_usd
from nightmill.kernel.domain.settings import Price
from nightmill.kernel.wire.messages import AttemptAnswered, Failure, ShardAttempt, ShardDispatched
from nightmill.kernel.wire.values import replace
from nightmill.provider_gateway.exchange import Reply
from nightmill.provider_gateway.failures import Signal, failure, outcome_unknown

#: longer outputs travel as a blob
INLINE_OUTPUT_BYTES = 8 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One call to make."""

    shard: ShardDispatched
    index: int  #: of the attempt in the shard
    partition: int
    model: str
    price: Price | None
    price_version: str

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
        cost=_cost(order, reply),
        started_at_ms=started_at_ms,
        ended_at_ms=ended_at_ms,
        http_status=http_status,
        provider_request_id=provider_request_id,
    )


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


def _state(reason: Failure | None) -> AttemptState:
    if reason is None:
        return AttemptState.ANSWERED
    return AttemptState.UNKNOWN if outcome_unknown(reason) else AttemptState.FAILED


def _cost(order: Order, reply: Reply) -> int | None:
    if reply.failure is not None and reply.failure.billed is Billed.NO:
        return 0
    if reply.usage is None or order.price is None:
        return None
    return cost_nano_usd(
        order.price,
        input_tokens=reply.usage.input_tokens,
        cached_tokens=reply.usage.cached_tokens,
        output_tokens=reply.usage.output_tokens,
    )


def _reserved(order: Order) -> int:
    attempt = order.attempt
    if order.price is None:
        return 0
    return worst_cost_nano_usd(
        order.price, input_tokens=attempt.input_tokens, max_output_tokens=attempt.max_output_tokens
    )


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
        reserved_nano_usd=_reserved(order),
        price_version=order.price_version,
        http_status=http_status,
        provider_request_id=provider_request_id,
        is_repair=attempt.repair is not None,
        late=False,
        started_at_ms=started_at_ms,
        ended_at_ms=ended_at_ms,
    )
