"""The shared part of the failure table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.kernel.domain.failures import Billed, FailureClass
from nightmill.provider_gateway.failures import ROWS, Signal, failure, outcome_unknown
from nightmill.provider_gateway.waits import (
    MAX_RETRY_AFTER_MS,
    go_duration_ms,
    retry_after_ms,
    timestamp_ms,
)
from unit.provider_gateway.makers import NOW_MS


def test_every_signal_has_a_row() -> None:
    """E8: there is no failure without a class."""
    assert set(ROWS) == set(Signal)


def test_capacity_and_account_never_use_the_retry_budget() -> None:
    """E8, E9."""
    for row in ROWS.values():
        if row.failure_class in (FailureClass.CAPACITY, FailureClass.ACCOUNT):
            assert not row.uses_retry_budget


def test_a_call_of_unknown_outcome_is_never_called_free() -> None:
    """E2: what may have been made may have been billed."""
    assert {signal for signal, row in ROWS.items() if row.outcome_unknown} == {
        Signal.CONNECTION_LOST,
        Signal.DEADLINE_PASSED,
        Signal.CRASHED,
        Signal.MOVED,
        Signal.RESULT_MISSING,
    }
    assert all(row.billed is Billed.UNKNOWN for row in ROWS.values() if row.outcome_unknown)
    assert outcome_unknown(failure(Signal.CONNECTION_LOST))


@pytest.mark.parametrize(
    ("headers", "wait_ms"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2_000),
        ({"retry-after": "0.5"}, 500),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "2", "retry-after-ms": "150"}, 150),  # the finer one wins
        ({"retry-after-ms": "x", "retry-after": "3"}, 3_000),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, MAX_RETRY_AFTER_MS),
        ({"retry-after": "86400"}, MAX_RETRY_AFTER_MS),  # clamped to one hour
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        # 1,796,000,000 s is 30 November 2026, 00:53:20 GMT
        ({"retry-after": "Mon, 30 Nov 2026 00:53:30 GMT"}, 10_000),
        ({"retry-after": "Mon, 30 Nov 2026 00:53:10 GMT"}, 0),  # past
        ({"retry-after": "Mon, 99 Nov 2026 00:53:10 GMT"}, None),
    ],
)
def test_retry_after(headers: dict[str, str], wait_ms: int | None) -> None:
    """E9: seconds, milliseconds or an HTTP date; garbage counts as absent."""
    assert retry_after_ms(headers, now_ms=NOW_MS) == wait_ms


@given(st.dictionaries(st.sampled_from(["retry-after", "retry-after-ms"]), st.text(max_size=40)))
def test_retry_after_is_absent_or_within_an_hour(headers: dict[str, str]) -> None:
    wait = retry_after_ms(headers, now_ms=NOW_MS)
    assert wait is None or 0 <= wait <= MAX_RETRY_AFTER_MS


@pytest.mark.parametrize(
    ("text", "ms"),
    [("1s", 1_000), ("6m0s", 360_000), ("12ms", 12), ("1h2m3.5s", MAX_RETRY_AFTER_MS), ("1.5s", 1_500),
     ("", None), (None, None), ("5", None), ("1s later", None)],
)  # fmt: skip
def test_go_durations(text: str | None, ms: int | None) -> None:
    assert go_duration_ms(text) == ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [("2026-11-30T00:53:30Z", 10_000), ("2026-11-30T01:53:30+01:00", 10_000), ("2026-11-30T00:53:30", 10_000),
     ("2026-11-30T00:00:00Z", 0), ("2027-11-30T00:00:00Z", MAX_RETRY_AFTER_MS), ("soon", None), ("", None),
     (None, None), ("9999-12-31T23:59:59.999999-23:59", MAX_RETRY_AFTER_MS)],
)  # fmt: skip
def test_timestamps(text: str | None, ms: int | None) -> None:
    """The form of anthropic-ratelimit-*-reset."""
    assert timestamp_ms(text, now_ms=NOW_MS) == ms
