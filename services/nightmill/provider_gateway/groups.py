"""Calls of many orders: which orders go together, and how the end of such a call falls on each of them. Pure.

A call is made of orders of one shard, which the dispatcher packs to what one call may hold. It has one slot and one
request of the rate, and the tokens of all. Every order keeps its attempt: a mark and an answer of its own.

A call that the provider refuses for what is in it, unbilled, was carried out for nobody. If it names one input, that
one has failed; the others are called again under the same attempts. If it names none, each half is called by itself,
and so on down to the one whose fault it is. Their marks stay: a crash before their next call makes them unknown.
Whatever else befalls a call befalls all of its orders; the dispatcher lets those that failed travel with fewer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from nightmill.kernel.domain.failures import Billed, FailureClass
from nightmill.kernel.domain.settings import Pool
from nightmill.kernel.wire.messages import Failure
from nightmill.provider_gateway.caller import Call, CallResult
from nightmill.provider_gateway.calls import Amounts
from nightmill.provider_gateway.exchange import Reply, Response, Vectors
from nightmill.provider_gateway.orders import Order, concluded_together
from nightmill.provider_gateway.shares import usages
from nightmill.provider_gateway.truncation import meaning, unless_cut
from nightmill.provider_gateway.unreadable import with_body

#: on servers that may cut a text without a word, a longer one goes alone, so that the usage tells
_ALONE_TOKENS = 1_000
_INPUTS_FAULT = frozenset({FailureClass.BAD_INPUT, FailureClass.POLICY})


def together(queue: Iterable[Order], pool: Pool, lease: Amounts) -> list[Order]:
    """The first order and those behind it that may go in one call with it, as far as the lease holds."""
    limits = pool.embeddings
    taken: list[Order] = []
    tokens = 0
    for order in queue:
        wanted = order.attempt.input_tokens
        if taken:
            same = order.shard.shard_id == taken[0].shard.shard_id and order.piece == taken[0].piece
            full = limits is None or len(taken) >= limits.max_inputs or tokens + wanted > limits.max_tokens
            if not same or full or tokens + wanted > lease.input_tokens or _goes_alone(order, pool):
                break
        taken.append(order)
        tokens += wanted
        if _goes_alone(order, pool):
            break
    return taken


def calls_for(pool: Pool, orders: int, input_tokens: int) -> int:
    """About how many calls so many orders are."""
    if pool.embeddings is None:
        return orders
    return max(-(-orders // pool.embeddings.max_inputs), -(-input_tokens // pool.embeddings.max_tokens))


def ended(
    call: Call,
    response: Response | Failure,
    *,
    started_at_ms: int,
    ended_at_ms: int,
    provider_request_id: str | None = None,
) -> CallResult:
    """What came of a call: a response, or the failure that came in its place."""
    replies, named = _replies(call, response, ended_at_ms)
    spoken = [(order, reply) for order, reply in zip(call.orders, replies, strict=True) if reply is not None]
    return CallResult(
        call=call,
        answers=concluded_together(
            spoken,
            started_at_ms=started_at_ms,
            ended_at_ms=ended_at_ms,
            http_status=response.status if isinstance(response, Response) else None,
            provider_request_id=provider_request_id,
        ),
        again=_again([order for order, reply in zip(call.orders, replies, strict=True) if reply is None], named),
        served_model=spoken[0][1].served_model if spoken else None,
    )


def _replies(call: Call, response: Response | Failure, now_ms: int) -> tuple[Sequence[Reply | None], bool]:
    """A reply for each order, None for one that is to be called again; and whether the call named who is at fault."""
    if isinstance(response, Failure):
        return [Reply(failure=response)] * len(call.orders), False
    if call.embedder is None:
        return [meaning(call, response, now_ms=now_ms)], False
    many = len(call.orders) > 1
    found = call.embedder.vectors(response, inputs=len(call.orders), now_ms=now_ms)
    if many and found.failure is not None and _refused_for_an_input(found.failure):
        spoken = {found.at_fault: Reply(failure=found.failure)}
        return [spoken.get(place) for place in range(len(call.orders))], found.at_fault is not None
    replies = _shared(call.orders, found)
    return replies if many else [unless_cut(call, with_body(replies[0], response))], False


def _shared(orders: Sequence[Order], found: Vectors) -> list[Reply]:
    weights = [order.attempt.input_tokens for order in orders]
    used = [None] * len(orders) if found.usage is None else usages(found.usage, weights)
    texts = found.texts or [None] * len(orders)
    return [
        Reply(text=text, usage=usage, served_model=found.served_model, failure=found.failure)
        for text, usage in zip(texts, used, strict=True)
    ]


def _refused_for_an_input(found: Failure) -> bool:
    return found.billed is Billed.NO and found.failure_class in _INPUTS_FAULT


def _again(orders: Sequence[Order], named: bool) -> tuple[tuple[Order, ...], ...]:
    """Pieces that are called by themselves. Numbered as the nodes of a tree, so that no two of a shard are alike."""
    if not orders:
        return ()
    left = orders[0].piece * 2 + 1
    if named:
        return (tuple(replace(order, piece=left) for order in orders),)
    half = (len(orders) + 1) // 2
    pieces = ((left, orders[:half]), (left + 1, orders[half:]))
    return tuple(tuple(replace(order, piece=piece) for order in part) for piece, part in pieces if part)


def _goes_alone(order: Order, pool: Pool) -> bool:
    return pool.provider == "openai_compatible" and order.attempt.input_tokens > _ALONE_TOKENS
