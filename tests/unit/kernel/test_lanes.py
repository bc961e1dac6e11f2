"""Lane choice: when bulk, when realtime, when a deadline is in danger, and which pools may be used (P5, P6)."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.kernel.domain.lanes import Outlook, choose, danger_words, in_danger, pools_for, realtime_per_s, span
from nightmill.kernel.domain.lifecycle import Lane
from nightmill.kernel.domain.pipeline import Pipeline, Sensitivity
from nightmill.kernel.domain.settings import Pool, Tenant

H = 3_600_000
MIN = 60_000


def pipeline(lane: object = "realtime", **fields: Any) -> Pipeline:
    base: dict[str, Any] = {
        "name": "tickets",
        "input": {"id": "id", "fields": ["body"]},
        "prompt": "user:\n{{ body }}",
        "output": {"type": "object"},
        "model": {"pools": ["a", "b", "c"], "max_output_tokens": 64},
        "lane": lane,
    }
    return Pipeline.model_validate({**base, **fields})


def pool(**fields: Any) -> Pool:
    base: dict[str, Any] = {
        "provider": "openai_compatible",
        "base_url": "http://127.0.0.1:1",
        "model": "m",
        "limits": {"slots": 10},
        "context_tokens": 1_000,
    }
    return Pool.model_validate({**base, **fields})


def outlook(left_ms: int | None, items: int = 0, per_s: float = 1.0, call_ms: int = 2 * MIN) -> Outlook:
    return Outlook(left_ms=left_ms, items=items, per_s=per_s, call_ms=call_ms)


OVER_2H = {"bulk": "over 2h"}


@pytest.mark.parametrize(
    ("lane", "has_bulk", "seen", "chosen", "why"),
    [
        ("realtime", True, outlook(None), Lane.REALTIME, "the pipeline says lane: realtime"),
        ("realtime", True, outlook(90 * H), Lane.REALTIME, "the pipeline says lane: realtime"),
        ("bulk", True, outlook(1 * MIN, 9_999), Lane.BULK, "the pipeline says lane: bulk"),
        (OVER_2H, True, outlook(None, 9_999), Lane.BULK, "there is no deadline"),
        (OVER_2H, False, outlook(None), Lane.REALTIME, "none of the pools that may be used has a bulk lane"),
        (OVER_2H, True, outlook(2 * H), Lane.REALTIME, "2 h left until the deadline, bulk is for more than 2 h"),
        (OVER_2H, True, outlook(2 * H + 1), Lane.BULK, "2 h left until the deadline, more than 2 h"),
        (OVER_2H, True, outlook(-MIN), Lane.REALTIME, "-1 min left until the deadline, bulk is for more than 2 h"),
        ("by deadline", True, outlook(24 * H), Lane.REALTIME, "1 d left until the deadline, bulk is for more than 1 d"),
        ("by deadline", True, outlook(25 * H), Lane.BULK, "1 d 1 h left until the deadline, more than 1 d"),
        # 4,000 items at 1 a second need 1 h 7 min: twice that, 2 min for a call and 15 min of grace are 2 h 30 min
        (OVER_2H, True, outlook(151 * MIN, 4_000), Lane.BULK, "2 h 31 min left until the deadline, more than 2 h"),
        (OVER_2H, True, outlook(150 * MIN, 4_000), Lane.REALTIME, "the deadline is in danger: 2 h 30 min left, and "
         "4,000 items at 1 a second take 1 h 6 min in real time"),
    ],
)  # fmt: skip
def test_the_lane(lane: object, has_bulk: bool, seen: Outlook, chosen: Lane, why: str) -> None:
    """P5: tolerance for delay decides, and the reason says how."""
    choice = choose(pipeline(lane), has_bulk=has_bulk, outlook=seen)
    assert (choice.lane, choice.reason) == (chosen, why)


@pytest.mark.parametrize(
    ("lane", "seen", "danger"),
    [
        # need 10 min, call 2 min, grace min(15 min, 2 h / 8): 12 min <= left <= 2 * 10 + 2 + 15 = 37 min
        (OVER_2H, outlook(37 * MIN + 1, 600), False),
        (OVER_2H, outlook(37 * MIN, 600), True),
        (OVER_2H, outlook(12 * MIN, 600), True),
        (OVER_2H, outlook(12 * MIN - 1, 600), False),  # too late: batches may end, realtime can not
        # over 8 min has a grace of 1 min: 23 min
        ({"bulk": "over 8m"}, outlook(23 * MIN, 600), True),
        ({"bulk": "over 8m"}, outlook(23 * MIN + 1, 600), False),
        (OVER_2H, outlook(37 * MIN, 0), False),  # nothing is left
        (OVER_2H, outlook(None, 600), False),
        ("bulk", outlook(37 * MIN, 600), False),
        ("realtime", outlook(37 * MIN, 600), False),
    ],
)
def test_danger(lane: object, seen: Outlook, danger: bool) -> None:
    """P5: 600 items at one a second; the formula of the module with its arithmetic."""
    assert in_danger(pipeline(lane), seen) is danger


RULES = st.sampled_from(["by deadline", {"bulk": "over 2h"}, {"bulk": "over 8m"}, {"bulk": "over 5s"}])
OUTLOOKS = st.builds(
    outlook,
    st.integers(-H, 48 * H),
    st.integers(0, 10**6),
    st.floats(0.01, 5_000),
    st.integers(0, 10 * MIN),
)


@given(RULES, OUTLOOKS, st.integers(0, 10**6))
def test_a_lane_that_is_over_does_not_come_back_as_time_passes(rule: object, seen: Outlook, later_ms: int) -> None:
    """P5: realtime because of the time that is left stays so, and danger ends only when it is too late."""
    frozen = pipeline(rule)
    assert seen.left_ms is not None
    later = outlook(seen.left_ms - later_ms, seen.items, seen.per_s, seen.call_ms)
    over_ms = (frozen.bulk_over_s or 0) * 1000
    if seen.left_ms <= over_ms:
        assert choose(frozen, has_bulk=True, outlook=later).lane is Lane.REALTIME
    if in_danger(frozen, seen):
        assert later.left_ms is not None
        assert in_danger(frozen, later) is (later.left_ms >= later.need_ms + later.call_ms)
        assert danger_words(seen).startswith("the deadline is in danger: ")


@given(RULES, OUTLOOKS)
def test_bulk_only_while_realtime_could_do_it_twice_or_not_at_all(rule: object, seen: Outlook) -> None:
    """P5: what goes bulk has more time than the rule wants, and is not in danger."""
    frozen = pipeline(rule)
    if choose(frozen, has_bulk=True, outlook=seen).lane is Lane.BULK:
        assert seen.left_ms is not None
        assert seen.left_ms > (frozen.bulk_over_s or 0) * 1000
        assert not in_danger(frozen, seen)


CLASSES = list(Sensitivity)


@given(
    lane=st.sampled_from(Lane),
    documents=st.sampled_from(CLASSES),
    rights=st.builds(
        Tenant,
        pools=st.none() | st.lists(st.sampled_from("abc"), unique=True).map(tuple),
        sensitivity=st.sampled_from(CLASSES),
    ),
    pools=st.dictionaries(
        st.sampled_from("abc"),
        st.builds(
            lambda s, bulk: pool(sensitivity=s, bulk={} if bulk else None), st.sampled_from(CLASSES), st.booleans()
        ),
    ),
)
def test_pools_are_usable_or_left_out_with_a_reason(
    lane: Lane, documents: Sensitivity, rights: Tenant, pools: dict[str, Pool]
) -> None:
    """P6: no lane shows a document to a pool, or for a tenant, that may not see it."""
    found = pools_for(pipeline(sensitivity=documents), lane, pools, rights)
    assert sorted((*found.usable, *(name for name, _ in found.left_out))) == ["a", "b", "c"]
    for name in found.usable:
        assert pools[name].sensitivity.allows(documents)
        assert rights.sensitivity.allows(documents)
        assert rights.pools is None or name in rights.pools
        assert lane is Lane.REALTIME or pools[name].bulk is not None
    assert all(why for _, why in found.left_out)
    if lane is Lane.BULK:
        assert set(found.usable) <= set(pools_for(pipeline(sensitivity=documents), Lane.REALTIME, pools, rights).usable)


def test_the_words_name_every_pool() -> None:
    pools = {"a": pool(), "b": pool(bulk={}, sensitivity="public")}
    found = pools_for(pipeline(), Lane.BULK, pools, Tenant(pools=("a", "b")))
    assert found.words == (
        "pools: none; not a: has no bulk lane; not b: may see public documents at most, these are internal; "
        "not c: not in pools.yaml"
    )


@pytest.mark.parametrize(
    ("limits", "per_s"),
    [
        ({"slots": 10}, 5.0),  # calls of 2 s
        ({"slots": 10, "requests_per_minute": 60}, 1.0),
        ({"slots": 10, "input_tokens_per_minute": 60_000}, 2.0),  # 1,000 a second for calls of 500
        ({"slots": 10, "output_tokens_per_minute": 6_000}, 4.0),  # 100 a second for calls of 25
        ({"slots": 10, "requests_per_minute": 6_000, "input_tokens_per_minute": 10**9}, 5.0),
    ],
)
def test_what_real_time_does_in_a_second(limits: dict[str, int], per_s: float) -> None:
    assert realtime_per_s(pool(limits=limits), input_tokens=500, output_tokens=25) == pytest.approx(per_s)


def test_a_call_that_embeds_is_for_many() -> None:
    """E7: 2,048 tokens hold four texts of 512; 10 slots and calls of 2 s do 20 a second, 60 requests a minute do 4."""
    vectors = {"max_inputs": 64, "max_tokens": 2_048}
    quick = pool(embeddings=vectors)
    assert realtime_per_s(quick, input_tokens=512, output_tokens=1) == pytest.approx(20)
    slow = pool(embeddings=vectors, limits={"slots": 10, "requests_per_minute": 60})
    assert realtime_per_s(slow, input_tokens=512, output_tokens=1) == pytest.approx(4)


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (0, "0 s"), (350, "0.35 s"), (9_999, "10 s"), (10_000, "10 s"), (59_999, "59 s"), (MIN, "1 min"),
        (61_000, "1 min 1 s"), (H, "1 h"), (H + 59 * MIN, "1 h 59 min"), (26 * H, "1 d 2 h"), (-90_000, "-1 min 30 s"),
    ],
)  # fmt: skip
def test_a_span(ms: int, words: str) -> None:
    assert span(ms) == words


def test_more_items_are_in_danger_sooner() -> None:
    """P5: the moment of the move comes earlier, the more is left."""
    frozen = pipeline(OVER_2H)
    moments = [
        max(left for left in range(0, 6 * H, MIN) if in_danger(frozen, outlook(left, items)))
        for items in (1, 600, 4_000)
    ]
    assert all(before < after for before, after in pairwise(moments))
