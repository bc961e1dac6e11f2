"""When to call again, with the arithmetic."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.dispatcher.retry import GiveUp, RetryAt, after_failure, backoff_ms, uses_budget, waited_ms
from nightmill.kernel.domain.failures import FailureClass
from nightmill.kernel.domain.settings import Retry, RetryRule
from nightmill.kernel.wire.messages import Failure
from unit.dispatcher.stage import RULES, failure

TRANSIENT, CAPACITY, ACCOUNT = FailureClass.TRANSIENT, FailureClass.CAPACITY, FailureClass.ACCOUNT
POLICY = Retry(classes=RULES, capacity_limit=600.0)


def after(why: Failure, **fields: Any) -> RetryAt | GiveUp:
    values: dict[str, Any] = {
        "tries": 0,
        "waits": 0,
        "planned_at_ms": -(10**9),
        "attempts": 4,
        "policy": POLICY,
        "now_ms": 0,
        "jitter": 0.0,
    }
    return after_failure(why, **{**values, **fields})


@pytest.mark.parametrize(
    ("doublings", "jitter", "expected_ms"),
    [
        # base 1 s, cap 60 s: min(60, 2^n) s, half of it sure, the other half by jitter
        (0, 0.0, 500),  # 1 s: 0.5 + 0.0
        (0, 0.5, 750),  # 1 s: 0.5 + 0.25
        (1, 0.0, 1_000),  # 2 s
        (2, 0.0, 2_000),  # 4 s
        (3, 0.5, 6_000),  # 8 s: 4 + 2
        (6, 0.0, 30_000),  # 64 -> 60 s
        (5_000, 0.0, 30_000),  # no overflow
    ],
)
def test_backoff(doublings: int, jitter: float, expected_ms: int) -> None:
    """E8: exponential, capped, jitter on the upper half."""
    assert backoff_ms(RULES[TRANSIENT], doublings, jitter) == expected_ms


@pytest.mark.parametrize(
    ("waits", "expected_ms"),
    [
        (0, 0),
        (1, 1_000),  # 2 s / 2
        (3, 7_000),  # (2 + 4 + 8) / 2
        (6, 63_000),  # (2 + 4 + 8 + 16 + 32 + 64) / 2
        (8, 183_000),  # ... and twice the cap: 63 + 2 * 60
    ],
)
def test_waits_add_up(waits: int, expected_ms: int) -> None:
    assert waited_ms(RULES[CAPACITY], waits) == expected_ms
    assert waited_ms(RULES[CAPACITY], waits) == sum(backoff_ms(RULES[CAPACITY], n, 0.0) for n in range(waits))


def test_schedule_of_a_transient_failure() -> None:
    """E8, E9: four attempts have three waits between them, then nothing."""
    assert [after(failure(TRANSIENT), tries=tries) for tries in range(4)] == [
        RetryAt(due_at_ms=500, tries=1),
        RetryAt(due_at_ms=1_000, tries=2),
        RetryAt(due_at_ms=2_000, tries=3),
        GiveUp(),
    ]


def test_retry_after_is_honoured() -> None:
    """E8: never earlier than the provider asked for, and not later for its sake."""
    assert after(failure(TRANSIENT, retry_after_ms=9_000)) == RetryAt(due_at_ms=9_000, tries=1)
    assert after(failure(TRANSIENT, retry_after_ms=100)) == RetryAt(due_at_ms=500, tries=1)


def test_capacity_waits_leave_the_budget_alone() -> None:
    """E8: waiting for capacity uses no try, whatever the failure says of itself."""
    for why in (failure(CAPACITY), failure(CAPACITY, uses_retry_budget=True)):
        assert after(why, tries=3, waits=2) == RetryAt(due_at_ms=4_000, tries=3)


@pytest.mark.parametrize(
    ("waits", "age_s", "given_up"),
    [
        # limit 600 s; 14 waits take 63 + 8 * 60 = 543 s at least, 15 take 603 s
        (14, 10_000, False),
        (15, 599, False),  # waited enough by count, but the item is young
        (15, 600, True),
        (0, 10_000, False),  # it was queued for long, and fails for the first time
    ],
)
def test_capacity_limit(waits: int, age_s: int, given_up: bool) -> None:
    following = after(failure(CAPACITY), waits=waits, planned_at_ms=0, now_ms=age_s * 1000)
    assert isinstance(following, GiveUp) is given_up


@pytest.mark.parametrize(
    ("age_ms", "wait_ms"),
    [
        (0, 1_000),  # planned anew just now: the first wait, 2 s / 2
        (999, 1_000),
        (1_000, 2_000),  # the first wait fits
        (6_999, 4_000),  # 1 + 2 fit, 1 + 2 + 4 do not
        (7_000, 8_000),
        (10**9, 60_000),
    ],
)
def test_waits_before_an_item_was_planned_anew_do_not_count(age_ms: int, wait_ms: int) -> None:
    """E8: an outage ended in dead letters; a resumed item waits seconds for its first rate limit, not minutes."""
    following = after(failure(CAPACITY), waits=12, planned_at_ms=0, now_ms=age_ms)
    assert following == RetryAt(due_at_ms=age_ms + wait_ms, tries=0)


def test_account_failures_are_never_given_up() -> None:
    """E8: the pool stands still, items stay queued."""
    following = after(failure(ACCOUNT), waits=100_000, now_ms=10**12)
    assert following == RetryAt(due_at_ms=10**12 + 150_000, tries=0)


def test_calls_that_never_left_use_no_budget() -> None:
    why = failure(TRANSIENT, signal="connect_error", uses_retry_budget=False)
    assert not uses_budget(why)
    assert after(why, tries=2, waits=1) == RetryAt(due_at_ms=1_000, tries=2)


@given(
    st.sampled_from([TRANSIENT, CAPACITY, ACCOUNT, FailureClass.INTERNAL]),
    st.integers(0, 10),
    st.integers(0, 2_000),
    st.floats(0, 1, exclude_max=True),
    st.integers(0, 600_000) | st.none(),
)
def test_waits_are_bounded(which: FailureClass, tries: int, waits: int, jitter: float, retry_after: int | None) -> None:
    """E9: no wait is shorter than half its step, nor longer than the cap or the provider's wish; tries only grow."""
    following = after(failure(which, retry_after_ms=retry_after), tries=tries, waits=waits, jitter=jitter)
    if isinstance(following, RetryAt):
        cap_ms = RULES.get(which, RetryRule(base=1, cap=60)).cap * 1000
        assert max(500, retry_after or 0) <= following.due_at_ms <= max(cap_ms, retry_after or 0)
        assert tries <= following.tries <= min(tries + 1, 3 if which is TRANSIENT else tries + 1)
