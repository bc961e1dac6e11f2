"""Pauses and stops of pools."""

import pytest

from nightmill.kernel.wire.messages import Failure
from nightmill.provider_gateway.failures import Signal, failure
from nightmill.provider_gateway.health import FREE_OUTAGE_MS, HEALTHY, PoolHealth, after, judged, slots_allowed

T = 1_000_000


def fails(health: PoolHealth, signal: Signal, *, at_ms: int, started_ms: int, wait_ms: int | None = None) -> PoolHealth:
    return after(health, failure(signal, retry_after_ms=wait_ms), started_at_ms=started_ms, now_ms=at_ms)


def pauses(signal: Signal, times: int) -> list[int]:
    """Lengths of successive pauses, each call starting when the last pause is over."""
    health, now_ms, lengths = HEALTHY, T, []
    for _ in range(times):
        health = fails(health, signal, at_ms=now_ms, started_ms=now_ms)
        lengths.append(health.paused_until_ms - now_ms)
        now_ms = health.paused_until_ms
    return lengths


def test_account_failures_stop_the_pool_for_a_growing_time() -> None:
    """E8: 30 s, doubled each time, at most 10 min."""
    assert pauses(Signal.KEY_REFUSED, 7) == [30_000, 60_000, 120_000, 240_000, 480_000, 600_000, 600_000]


def test_an_unexplained_429_pauses_from_a_minute_to_an_hour() -> None:
    """Row 6."""
    assert pauses(Signal.UNKNOWN_429, 8) == [
        60_000, 120_000, 240_000, 480_000, 960_000, 1_920_000, 3_600_000, 3_600_000,
    ]  # fmt: skip


def test_who_is_asked_to_slow_down_comes_back_with_half_and_grows_by_half() -> None:
    """Row 3: 64 slots become 32; after each quarter of an hour half as many more, until all are back."""
    paused = fails(HEALTHY, Signal.SLOW_DOWN, at_ms=T, started_ms=T, wait_ms=1_000)
    back = T + 1_000
    assert [slots_allowed(paused, 64, now_ms=at) for at in (T, back)] == [0, 1]
    eased = after(paused, None, started_at_ms=back, now_ms=back + 50)
    # 50 %, 75 %, 75 + 38 = 100 %
    assert [slots_allowed(eased, 64, now_ms=back + quarter * 900_000) for quarter in range(3)] == [32, 48, 64]
    again = fails(eased, Signal.SLOW_DOWN, at_ms=back + 100, started_ms=back + 60, wait_ms=0)
    assert slots_allowed(after(again, None, started_at_ms=back + 100, now_ms=back + 150), 64, now_ms=back + 150) == 16
    assert after(eased, None, started_at_ms=back, now_ms=back + 1_800_000) == HEALTHY


def test_the_providers_own_time_counts() -> None:
    """E9."""
    health = fails(HEALTHY, Signal.RATE_LIMITED, at_ms=T, started_ms=T - 100, wait_ms=7_000)
    assert slots_allowed(health, 8, now_ms=T + 6_999) == 0
    assert slots_allowed(health, 8, now_ms=T + 7_000) == 1  # one goes first


def test_calls_that_fail_together_are_one_strike() -> None:
    first = fails(HEALTHY, Signal.KEY_REFUSED, at_ms=T, started_ms=T - 200)
    second = fails(first, Signal.KEY_REFUSED, at_ms=T + 1, started_ms=T - 199)
    assert (second.strikes, second.paused_until_ms) == (1, T + 30_000)


def test_a_success_after_the_pause_ends_it_and_one_before_it_does_not() -> None:
    paused = fails(HEALTHY, Signal.RATE_LIMITED, at_ms=T, started_ms=T, wait_ms=1_000)
    assert after(paused, None, started_at_ms=T - 50, now_ms=T + 10).strikes == 1
    assert after(paused, None, started_at_ms=T + 1_000, now_ms=T + 1_200) == HEALTHY


def test_an_items_own_failure_leaves_the_pool_alone() -> None:
    for signal in (Signal.BAD_REQUEST, Signal.REFUSAL, Signal.SERVER_ERROR, Signal.EMPTY_CONTENT):
        assert slots_allowed(fails(HEALTHY, signal, at_ms=T, started_ms=T), 8, now_ms=T) == 8


def test_the_third_web_page_in_a_row_is_the_accounts_fault() -> None:
    """Row 28."""
    health, seen = HEALTHY, []
    for _ in range(3):
        found = judged(health, failure(Signal.HTML_BODY), now_ms=T)
        assert found is not None
        seen.append(found.signal)
        health = after(health, found, started_at_ms=T, now_ms=T)
    assert seen == [Signal.HTML_BODY, Signal.HTML_BODY, Signal.HTML_PROXY]
    assert slots_allowed(health, 8, now_ms=T) == 0


def test_an_answer_between_web_pages_starts_the_count_again() -> None:
    health = fails(HEALTHY, Signal.HTML_BODY, at_ms=T, started_ms=T)
    health = after(fails(health, Signal.HTML_BODY, at_ms=T, started_ms=T), None, started_at_ms=T, now_ms=T)
    assert health.html_in_a_row == 0


def test_an_outage_costs_no_retries_for_the_first_minutes() -> None:
    """Row 21."""
    health = fails(HEALTHY, Signal.NOT_CONNECTED, at_ms=T, started_ms=T)

    def found(at_ms: int) -> Failure | None:
        return judged(health, failure(Signal.NOT_CONNECTED), now_ms=at_ms)

    early, late = found(T + FREE_OUTAGE_MS - 1), found(T + FREE_OUTAGE_MS)
    assert early is not None
    assert late is not None
    assert (early.uses_retry_budget, late.uses_retry_budget) == (False, True)


def test_a_third_unexplained_429_in_a_row_is_the_accounts_fault() -> None:
    """Row 6: it is told as a stopped pool from then on, and still tried out now and then."""
    health, now_ms, seen = HEALTHY, T, []
    for _ in range(4):
        found = judged(health, failure(Signal.UNKNOWN_429), now_ms=now_ms)
        assert found is not None
        seen.append(found.signal)
        health = after(health, found, started_at_ms=now_ms, now_ms=now_ms)
        now_ms = health.paused_until_ms
    assert seen == [*[Signal.UNKNOWN_429] * 2, *[Signal.UNEXPLAINED_429] * 2]
    assert health.paused_until_ms - T == 60_000 + 120_000 + 240_000 + 480_000


@pytest.mark.parametrize("signal", [Signal.OVERLOADED, Signal.GATEWAY_HTML])
def test_a_server_that_keeps_failing_gets_a_pause(signal: Signal) -> None:
    """Rows 8 and 30: eight in a row open the breaker for a second, and each failed trial doubles it."""
    health = HEALTHY
    for _ in range(7):
        health = fails(health, signal, at_ms=T, started_ms=T)
        assert slots_allowed(health, 8, now_ms=T) == 8
    health = fails(health, signal, at_ms=T, started_ms=T)
    assert health.paused_until_ms - T == 1_000
    again = fails(health, signal, at_ms=T + 1_000, started_ms=T + 1_000)
    assert again.paused_until_ms - T == 1_000 + 2_000
    assert slots_allowed(again, 8, now_ms=T + 3_000) == 1
    assert after(again, None, started_at_ms=T + 3_000, now_ms=T + 3_100) == HEALTHY


def test_an_answer_between_failures_starts_the_breakers_count_again() -> None:
    health = HEALTHY
    for _ in range(7):
        health = fails(health, Signal.OVERLOADED, at_ms=T, started_ms=T)
    health = after(health, None, started_at_ms=T, now_ms=T)
    assert fails(health, Signal.OVERLOADED, at_ms=T, started_ms=T).paused_until_ms == 0


def test_an_account_failure_keeps_its_own_pauses_whatever_a_header_says() -> None:
    assert fails(HEALTHY, Signal.KEY_REFUSED, at_ms=T, started_ms=T, wait_ms=1).paused_until_ms - T == 30_000


def test_a_healthy_pool_uses_all_its_slots() -> None:
    assert after(HEALTHY, None, started_at_ms=T, now_ms=T) is HEALTHY
    assert slots_allowed(HEALTHY, 8, now_ms=T) == 8
