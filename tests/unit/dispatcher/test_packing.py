"""Queues, shares, shards, pools."""

import dataclasses
from collections import Counter
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.dispatcher import pools
from nightmill.dispatcher.backlog import INDEXES
from nightmill.dispatcher.packing import Candidate, Queue, ShardSize, in_order, mint, pack
from nightmill.dispatcher.watchdog import overdue_at_ms, send_again
from nightmill.kernel.domain.lifecycle import ItemState, Lane
from nightmill.kernel.domain.pipeline import ModelPolicy, Sensitivity
from nightmill.kernel.domain.settings import BulkLimits, EmbeddingLimits, PoolLimits
from nightmill.kernel.wire.messages import ItemStateRow, RowRef, Waiter
from nightmill.kernel.wire.totals import NO_TOTALS
from nightmill.kernel.wire.values import replace
from unit.dispatcher.stage import A, B, config, pipeline, pool


def candidate(key: str, batch_id: str = A, prefix: str = "p", tokens: int = 10) -> Candidate:
    waiter = Waiter(batch_id=batch_id, generation=1, ordinal=0)
    row = ItemStateRow(
        item_key=key,
        state=ItemState.READY,
        job_id="j",
        dataset_id="acme.tickets",
        source_id=key,
        row=RowRef(block="b", row=0),
        pipeline_digest="d",
        input_tokens=tokens,
        max_output_tokens=5,
        prefix=prefix,
        priority=0,
        waiters=(waiter,),
        settled=(),
        ordinal=0,
        pool="small",
        tries=0,
        repairs=0,
        overdue=0,
        totals=NO_TOTALS,
        planned_at_ms=0,
    )
    return Candidate(row=row, waiters=(waiter,), payer=waiter, input_tokens=tokens)


@given(
    st.lists(st.tuples(st.sampled_from([A, B]), st.sampled_from(["p", "q"]), st.integers(0, 400)), max_size=200),
    st.integers(1, 60),
    st.integers(1, 1_000),
    st.integers(1, 2_000),
)
def test_pack_loses_and_repeats_nothing(
    rows: list[tuple[str, str, int]], max_items: int, max_tokens: int, max_bytes: int
) -> None:
    """P3: every candidate is in one shard, in order, with its like, within the limits."""
    given_ = [candidate(str(n), batch, prefix, tokens) for n, (batch, prefix, tokens) in enumerate(rows)]
    shards = pack(given_, most=ShardSize(items=max_items, tokens=max_tokens, bytes=max_bytes))
    assert sorted(c.row.item_key for c in chain(*shards)) == sorted(c.row.item_key for c in given_)
    for shard in shards:
        assert 0 < len(shard) <= max_items
        assert len({(c.payer.batch_id, c.row.prefix) for c in shard}) == 1
        assert sum(c.input_tokens + 5 for c in shard) <= max_tokens or len(shard) == 1
        assert sum(300 + 4 * len(c.row.source_id) for c in shard) <= max_bytes or len(shard) == 1
        numbers = [int(c.row.item_key) for c in shard]
        assert numbers == sorted(numbers)


@given(st.lists(st.tuples(st.sampled_from([A, B]), st.sampled_from(["p", "q"])), max_size=200), st.integers(1, 60))
def test_items_that_share_a_prefix_go_together(rows: list[tuple[str, str]], max_items: int) -> None:
    """P3, E12: in as few shards as they fill, however they are mixed with others."""
    given_ = [candidate(str(n), batch, prefix) for n, (batch, prefix) in enumerate(rows)]
    shards = pack(given_, most=ShardSize(items=max_items, tokens=10**9, bytes=10**9))
    found = Counter((shard[0].payer.batch_id, shard[0].row.prefix) for shard in shards)
    assert found == {like: -(-count // max_items) for like, count in Counter(rows).items()}


def test_who_failed_travels_with_fewer_then_alone() -> None:
    """E8, E15: an input that breaks its server takes an eighth of a call with it, then nobody."""
    size = ShardSize(items=16, tokens=10**6, bytes=10**6, is_one_call=True)
    fresh = [candidate(str(n)) for n in range(17)]
    tried = [candidate(f"{n}-{tries}") for tries in (1, 2) for n in range(3)]
    tried = [dataclasses.replace(each, row=replace(each.row, tries=int(each.row.item_key[-1]))) for each in tried]
    shards = pack([*fresh, *tried], most=size)
    assert [len(shard) for shard in shards] == [16, 1, 2, 1, 1, 1, 1]
    answers = dataclasses.replace(size, is_one_call=False)
    assert [len(shard) for shard in pack(tried, most=answers)] == [6]


def test_a_shard_of_a_pool_that_embeds_is_one_call() -> None:
    """P3, E2: and so many calls may be under way as of any other pool."""
    vectors = pool(limits=PoolLimits(slots=2), embeddings=EmbeddingLimits(max_inputs=64, max_tokens=9_000))
    size = pools.shard_size(vectors, Lane.REALTIME)
    assert (size.items, size.tokens, size.is_one_call) == (64, 9_000, True)
    assert pools.shard_size(vectors, Lane.BULK) == pools.SHARD_SIZES[Lane.BULK]
    assert pools.most_in_realtime(vectors) == 4 * 2 * 64
    assert pools.worth_dispatching(4 * 2 * 64, size) == 64
    many = pool(limits=PoolLimits(slots=64), embeddings=EmbeddingLimits(max_inputs=2_048))
    assert pools.most_in_realtime(many) == 20_000
    assert pools.worth_dispatching(20_000, pools.shard_size(many, Lane.REALTIME)) == 500


def test_urgent_batches_first_equals_share() -> None:
    """P3: priority, then deadline; equals in turn, each taking its share of the room that is left."""

    def queue(name: str, priority: int, deadline: int, served: int = 0) -> Queue:
        return Queue(batch_id=name, priority=priority, deadline_at_ms=deadline, served=served)

    queues = [queue("late", 0, 900), queue("x", 5, 900, 2), queue("y", 5, 900, 1), queue("soon", 5, 100)]
    assert [(q.batch_id, equals) for q, equals in in_order(queues)] == [
        ("soon", 1),
        ("y", 2),
        ("x", 1),
        ("late", 1),
    ]


def test_ready_order() -> None:
    """Within a queue: priority desc, deadline asc, planned first, place in the batch."""
    row = candidate("k").row
    ready = next(index.key for index in INDEXES if index.name == "ready")
    second = Waiter(batch_id=A, generation=1, ordinal=1)
    rows = [
        replace(row, priority=9),
        replace(row, priority=1, deadline_at_ms=5),
        replace(row, priority=1),
        replace(row, priority=-4, planned_at_ms=3),
        replace(row, priority=-4, planned_at_ms=4),
        replace(row, priority=-4, planned_at_ms=4, waiters=(second,)),
    ]
    keys = [ready(each) for each in rows]
    assert keys == sorted(keys)  # type: ignore[type-var]
    assert ready(replace(row, state=ItemState.DISPATCHED)) is None


def test_minting() -> None:
    """E9: a new ordinal at each dispatch; another batch's account is not taken over."""
    first = candidate("first-item-of-the-shard")
    used = replace(first.row, ordinal=2, totals=replace(NO_TOTALS, attempts=2), payer=first.payer)
    other = Waiter(batch_id=B, generation=1, ordinal=0)
    kept, changed = dataclasses.replace(first, row=used), dataclasses.replace(first, row=used, payer=other)
    for each, attempts in ((kept, 2), (changed, 0)):
        message, rows = mint([each], pool="small", lane=Lane.REALTIME, now_ms=7_000, overdue_at_ms=9_000)
        assert (message.shard_id, message.attempts[0].ordinal) == ("first-item-of-th-3-7000", 3)
        assert (rows[0].state, rows[0].totals.attempts, rows[0].due_at_ms) == (ItemState.DISPATCHED, attempts, 9_000)
        assert rows[0].payer == each.payer


def test_watchdog_doubles() -> None:
    """Call deadline 120 s and a minute: 180 s, 360 s, 720 s; attempt ids stay."""
    assert [overdue_at_ms(120.0, n, 0) for n in range(3)] == [180_000, 360_000, 720_000]
    message, rows = mint(
        [candidate("a"), candidate("b")], pool="small", lane=Lane.REALTIME, now_ms=0, overdue_at_ms=180_000
    )
    again, later = send_again(rows, call_deadline_s=120.0, now_ms=180_000)
    assert (again.shard_id, again.attempts, again.pool) == (message.shard_id, message.attempts, "small")
    assert {(row.overdue, row.due_at_ms, row.ordinal) for row in later} == {(1, 180_000 + 360_000, 1)}


@pytest.mark.parametrize(
    ("tenant", "sensitivity", "allowed"),
    [
        ("acme", Sensitivity.INTERNAL, ("small", "long")),
        ("unlisted", Sensitivity.INTERNAL, ("small", "long")),
        ("acme", Sensitivity.CONFIDENTIAL, ()),  # both pools are internal
        ("acme", Sensitivity.RESTRICTED, ()),
        ("guest", Sensitivity.INTERNAL, ()),  # a guest has public documents only
        ("guest", Sensitivity.PUBLIC, ("long",)),
    ],
)
def test_allowed_pools(tenant: str, sensitivity: Sensitivity, allowed: tuple[str, ...]) -> None:
    """P6: checked before a byte leaves."""
    frozen = pipeline(sensitivity=sensitivity, model=ModelPolicy(pools=("gone", "small", "long"), max_output_tokens=64))
    assert pools.allowed_pools(config(), frozen, tenant, Lane.REALTIME) == allowed


@pytest.mark.parametrize(("tokens", "chosen"), [(4_000, "small"), (4_001, "long"), (32_000, "long"), (32_001, None)])
def test_first_pool_whose_context_fits(tokens: int, chosen: str | None) -> None:
    """P7."""
    assert pools.choose_pool(config(), ("small", "long"), tokens) == chosen


@pytest.mark.parametrize(
    ("limits", "outstanding", "worth"),
    [
        (PoolLimits(slots=1), 4, 1),  # 4 x 1
        (PoolLimits(slots=2, requests_per_minute=600), 30, 7),  # 600 / 60 * 3
        (PoolLimits(slots=200), 800, 50),  # 4 x 200
    ],
)
def test_outstanding(limits: PoolLimits, outstanding: int, worth: int) -> None:
    assert pools.most_outstanding(pool(limits=limits).limits) == outstanding
    assert pools.worth_dispatching(outstanding, pools.SHARD_SIZES[Lane.REALTIME]) == worth


@pytest.mark.parametrize(
    ("requests", "outstanding"),
    [
        (1, 4),  # 4 submissions of one
        (10_000, 40_000),  # 4 x 10,000
        (20_000, 50_000),  # what the gateway holds
        (50_000, 50_000),
        (100_000, 100_000),  # never less than one submission
    ],
)
def test_what_a_bulk_pool_may_have_under_way(requests: int, outstanding: int) -> None:
    """E2, E6: the next submission is written while others run, and memory has a bound."""
    assert pools.most_in_bulk(pool(bulk=BulkLimits(max_requests=requests))) == outstanding


def test_a_pool_without_a_batch_api_has_nothing_under_way_in_bulk() -> None:
    assert pools.most_in_bulk(pool()) == 0
