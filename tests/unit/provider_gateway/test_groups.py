"""Calls of many orders: who goes together, and what the end of such a call is for each (E7, E8, P4)."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.kernel.domain.lifecycle import AttemptState, Lane
from nightmill.kernel.domain.prices import WrittenPrice
from nightmill.kernel.domain.settings import EmbeddingLimits, Pool
from nightmill.kernel.domain.vectors import encode_vector
from nightmill.kernel.wire.messages import RowRef, ShardAttempt, ShardDispatched, Usage
from nightmill.provider_gateway.adapters import EMBEDDERS, adapter_of
from nightmill.provider_gateway.caller import Call, CallResult
from nightmill.provider_gateway.calls import Amounts
from nightmill.provider_gateway.exchange import Request
from nightmill.provider_gateway.failures import Signal, failure
from nightmill.provider_gateway.groups import calls_for, ended, together
from nightmill.provider_gateway.orders import Order
from nightmill.provider_gateway.render import Renderer
from nightmill.provider_gateway.shares import apportioned, usages
from unit.provider_gateway.makers import (
    NOW_MS,
    make_access,
    make_documents,
    make_order,
    make_pool,
    make_shard,
    response,
)

PRICE = WrittenPrice(input_usd_per_million=0.0003, output_usd_per_million=0)  # 0.3 nano-USD a token
PLENTY = Amounts(requests=9, input_tokens=10**9, output_tokens=0)


def shard(tokens: Sequence[int], shard_id: str = "s1") -> ShardDispatched:
    attempts = tuple(
        ShardAttempt(
            item_key=f"{shard_id}-item{n}",
            ordinal=1,
            minted_at_ms=NOW_MS,
            batch_id="b",
            generation=1,
            source_id=str(n),
            row=RowRef(block="b", row=n),
            input_tokens=each,
            max_output_tokens=0,
        )
        for n, each in enumerate(tokens)
    )
    return ShardDispatched(
        shard_id=shard_id,
        pool="sim",
        lane=Lane.REALTIME,
        job_id="j",
        pipeline_digest="p",
        attempts=attempts,
        dispatched_at_ms=NOW_MS,
    )


def orders(*tokens: int, shard_id: str = "s1") -> list[Order]:
    of = shard(tokens, shard_id)
    return [make_order(of, n, price=PRICE) for n in range(len(tokens))]


def pool(inputs: int = 100, tokens: int = 10_000, provider: str = "openai") -> Pool:
    return make_pool(provider=provider, embeddings=EmbeddingLimits(max_inputs=inputs, max_tokens=tokens))


def call(*tokens: int) -> Call:
    made = tuple(orders(*tokens))
    request = Request(url="http://host/v1/embeddings", headers={}, body=b"{}")
    return Call(
        orders=made,
        lane="l",
        adapter=adapter_of("sim", "openai"),
        request=request,
        deadline_s=1,
        embedder=EMBEDDERS["openai"],
    )


def end(of: Call, body: Any, status: int = 200) -> CallResult:
    return ended(of, response(body, status), started_at_ms=NOW_MS, ended_at_ms=NOW_MS + 5)


def vectors(count: int, prompt_tokens: int | None = 100) -> dict[str, Any]:
    data = [{"index": n, "embedding": encode_vector([1.0, n])} for n in range(count)]
    usage = None if prompt_tokens is None else {"prompt_tokens": prompt_tokens}
    return {"object": "list", "model": "small", "data": data, "usage": usage}


def refusal(**error: Any) -> dict[str, Any]:
    return {"error": {"message": "no", "type": "invalid_request_error", **error}}


def places(pieces: Sequence[Sequence[Order]]) -> list[list[int]]:
    return [[order.index for order in piece] for piece in pieces]


@pytest.mark.parametrize(
    ("queue", "of", "lease", "count"),
    [
        (orders(10, 10, 10), pool(), PLENTY, 3),
        (orders(10, 10, 10), pool(inputs=2), PLENTY, 2),
        (orders(10, 10, 10), pool(tokens=20), PLENTY, 2),
        (orders(10, 10, 10), pool(tokens=5), PLENTY, 1),  # one that is too long goes alone, and is refused
        (orders(10, 10, 10), pool(), Amounts(requests=1, input_tokens=25, output_tokens=0), 2),
        ([*orders(10, 10), *orders(10, shard_id="s2")], pool(), PLENTY, 2),
        (orders(10, 10, 2_000, 10), pool(), PLENTY, 4),
        # where a long text may be cut without a word, its usage must tell
        (orders(10, 10, 2_000, 10), pool(provider="openai_compatible"), PLENTY, 2),
        (orders(2_000, 10), pool(provider="openai_compatible"), PLENTY, 1),
        (orders(10, 10), make_pool(), PLENTY, 1),  # a pool of answers
        ([], pool(), PLENTY, 0),
    ],
)
def test_who_goes_together(queue: list[Order], of: Pool, lease: Amounts, count: int) -> None:
    """E2: a call stays within what the provider takes and what the lease holds."""
    assert together(queue, of, lease) == queue[:count]


@pytest.mark.parametrize(
    ("of", "waiting", "tokens", "count"),
    [(make_pool(), 7, 70, 7), (pool(), 0, 0, 0), (pool(), 101, 10, 2), (pool(), 3, 25_000, 3), (pool(), 1, 5, 1)],
)
def test_how_many_calls_wait(of: Pool, waiting: int, tokens: int, count: int) -> None:
    assert calls_for(of, waiting, tokens) == count


@given(st.integers(0, 10**9), st.lists(st.integers(0, 10**6), min_size=1, max_size=60))
def test_shares_are_the_whole(whole: int, weights: list[int]) -> None:
    """P4: to the token; none is further than one from its part, none negative."""
    shares = apportioned(whole, weights)
    total = sum(weights)
    assert sum(shares) == whole
    assert all(share >= 0 for share in shares)
    if total:
        assert all(abs(share - whole * each / total) < 1.01 for share, each in zip(shares, weights, strict=True))


@given(st.data())
def test_shares_of_a_usage_are_usages(data: st.DataObject) -> None:
    whole = data.draw(st.integers(0, 10**6))
    cached = data.draw(st.integers(0, whole))
    weights = data.draw(st.lists(st.integers(0, 9_000), min_size=1, max_size=20))
    shares = usages(Usage(input_tokens=whole, cached_tokens=cached, output_tokens=0), weights)
    assert sum(share.input_tokens for share in shares) == whole
    assert sum(share.cached_tokens for share in shares) == cached
    assert all(0 <= share.cached_tokens <= share.input_tokens for share in shares)


def test_shares_by_hand() -> None:
    """100 over 1, 1, 1: 33 and 33 and 34; of 2 over 3 : 1, floor(2 * 3 / 4) = 1 and 2 - 1 = 1."""
    assert apportioned(100, [1, 1, 1]) == [33, 33, 34]
    assert apportioned(2, [3, 1]) == [1, 1]
    assert apportioned(5, [0, 0]) == [2, 3]


def test_an_answered_call_is_an_answer_for_each() -> None:
    """P4: 101 tokens at 0.3 nano-USD are 30.3, and the shares of the call's 30 add up to it; each keeps its id."""
    result = end(call(10, 20, 70), vectors(3, 101))
    assert result.again == ()
    assert [each.item_key for each in result.answers] == ["s1-item0", "s1-item1", "s1-item2"]
    assert [each.output for each in result.answers] == [encode_vector([1.0, n]) for n in range(3)]
    assert [each.usage.input_tokens for each in result.answers if each.usage] == [10, 20, 71]
    assert [each.cost_nano_usd for each in result.answers] == [2, 6, 22]
    assert [each.reserved_nano_usd for each in result.answers] == [3, 6, 21]
    assert {each.state for each in result.answers} == {AttemptState.ANSWERED}


def test_a_usage_that_is_not_told_is_nobodys() -> None:
    """P4."""
    result = end(call(10, 20), vectors(2, None))
    assert [(each.usage, each.cost_nano_usd) for each in result.answers] == [(None, None)] * 2


def test_a_failure_of_the_call_is_everybodys() -> None:
    """E8: one class for all; of an unknown outcome all keep their share of the reservation."""
    lost = failure(Signal.CONNECTION_LOST)
    result = ended(call(10, 20, 70), lost, started_at_ms=NOW_MS, ended_at_ms=NOW_MS)
    assert {(each.state, each.failure) for each in result.answers} == {(AttemptState.UNKNOWN, lost)}
    assert [each.cost_nano_usd for each in result.answers] == [None] * 3
    assert sum(each.reserved_nano_usd for each in result.answers) == 30
    assert result.failure == lost


def test_vectors_that_do_not_fit_were_paid_for_all_the_same() -> None:
    """Row 39."""
    result = end(call(10, 20), vectors(1, 30))
    assert {each.failure.signal for each in result.answers if each.failure} == {Signal.EMBEDDINGS_MISMATCHED}
    assert [each.cost_nano_usd for each in result.answers] == [3, 6]


def test_a_refusal_that_names_one_is_that_ones_alone() -> None:
    """E8: the others go together again, under the attempts they have."""
    result = end(call(10, 20, 30), refusal(param="input[1]"), 400)
    assert [(each.item_key, each.failure and each.failure.signal) for each in result.answers] == [
        ("s1-item1", Signal.BAD_REQUEST)
    ]
    assert places(result.again) == [[0, 2]]
    assert result.answers[0].cost_nano_usd == 0


@pytest.mark.parametrize(
    ("code", "status"),
    [(None, 400), ("context_length_exceeded", 400), (None, 413), ("content_policy_violation", 400), (None, 422)],
)
def test_a_refusal_that_names_nobody_is_looked_for_in_halves(code: str | None, status: int) -> None:
    """E8: nothing was carried out, so nobody has had an answer."""
    result = end(call(1, 2, 3, 4, 5), refusal(code=code), status)
    assert (result.answers, result.failure, places(result.again)) == ((), None, [[0, 1, 2], [3, 4]])


@pytest.mark.parametrize(("status", "code"), [(401, None), (429, "rate_limit_exceeded"), (500, None), (503, None)])
def test_what_is_no_inputs_fault_divides_nothing(status: int, code: str | None) -> None:
    """E8: the pool's and the server's failures stay what they are."""
    result = end(call(1, 2, 3), refusal(code=code), status)
    assert (len(result.answers), result.again) == (3, ())


def halved(count: int, guilty: Collection[int]) -> tuple[list[str], list[str], int]:
    """Who failed, who was answered, and in how many calls, when a call that has one of these is refused by no name."""
    waiting, failed, answered, calls = [orders(*[5] * count)], [], [], 0
    while waiting:
        queue = waiting.pop()
        calls += 1
        group = together(queue, pool(), PLENTY)
        assert group == queue  # pieces stay together, and do not mix
        made = replace(call(5), orders=tuple(group))
        bad = any(order.index in guilty for order in group)
        result = end(made, refusal(), 400) if bad else end(made, vectors(len(group)))
        failed += [each.source_id for each in result.answers if each.failure]
        answered += [each.source_id for each in result.answers if not each.failure]
        waiting += [list(piece) for piece in result.again]
    return failed, answered, calls


@given(st.integers(2, 60), st.data())
def test_the_one_at_fault_is_found_and_nobody_else_fails(count: int, data: st.DataObject) -> None:
    """E8: halves end at the one; every other one is answered, each once, in less calls than two for each halving."""
    guilty = data.draw(st.integers(0, count - 1))
    failed, answered, calls = halved(count, {guilty})
    assert failed == [str(guilty)]
    assert sorted(answered) == sorted(str(n) for n in range(count) if n != guilty)
    assert calls <= 2 * count.bit_length() + 1


@given(st.integers(1, 16), st.data())
def test_a_fault_of_the_whole_request_costs_less_than_two_calls_an_item(count: int, data: st.DataObject) -> None:
    """E8: if each is refused, 2 n - 1 calls; never more, whoever is at fault, and each ends once."""
    assert halved(count, range(count))[2] == 2 * count - 1
    failed, answered, calls = halved(count, data.draw(st.sets(st.integers(0, count - 1))))
    assert sorted(failed + answered) == sorted(map(str, range(count)))
    assert calls <= 2 * count - 1


def test_pieces_of_a_shard_do_not_mix() -> None:
    result = end(call(1, 2, 3, 4), refusal(), 400)
    queue = [order for piece in result.again for order in piece]
    assert together(queue, pool(), PLENTY) == list(result.again[0])


def test_orders_of_answers_do_not_vanish_in_a_pool_of_vectors(tmp_path: Path) -> None:
    """E2: pools.yaml may make a pool one of vectors after a pipeline of answers was admitted to it."""
    documents = make_documents(tmp_path)
    work = make_shard(documents, range(3))
    of_answers = [make_order(work, index) for index in range(3)]
    access = make_access(embeddings=EmbeddingLimits())
    for some in (of_answers, of_answers[:1]):
        made = Renderer(documents.blobs).rendered(some, access, "lane")
        assert made.call is None
        assert [why.signal for _, why in made.refused] == [Signal.POOL_UNUSABLE] * len(some)
        assert made.looked_at == len(some)
