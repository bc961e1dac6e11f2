"""The ledger's arithmetic and the hidden buckets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.provider_simulator.bill import Ledger, call_of_row
from nightmill.provider_simulator.buckets import Buckets, Refused, go_duration
from nightmill.provider_simulator.prices import Usage
from nightmill.provider_simulator.scenario import RateLimit

A, B = b"a" * 16, b"b" * 16


def test_totals_and_rows() -> None:
    """E12"""
    ledger = Ledger()
    first = ledger.open(attempt_id="x-1", body_digest=A, now_ms=10)
    second = ledger.open(attempt_id="x-2", body_digest=A, now_ms=11)
    third = ledger.open(attempt_id=None, body_digest=B, now_ms=12)
    first.accepted, first.prompt_tokens = True, 7
    first.billed, first.delivered = Usage(prompt_tokens=7, completion_tokens=3), True
    first.billed_nano_usd = 1000
    second.accepted, second.prompt_tokens = True, 7
    second.billed, second.fault = Usage(prompt_tokens=7, completion_tokens=5), "reset_after_billing"
    third.code = "invalid_api_key"
    for call in (first, second, third):
        ledger.close(call, now_ms=20)
    assert ledger.totals() == {
        "received": {"calls": 3},
        "accepted": {"calls": 2, "prompt_tokens": 14},
        "billed": {"calls": 2, "prompt_tokens": 14, "completion_tokens": 8},
        "delivered": {"calls": 1, "prompt_tokens": 7, "completion_tokens": 3},
        "lost": {"calls": 1, "prompt_tokens": 7, "completion_tokens": 5},
        "refused": {"calls": 1, "by_code": {"invalid_api_key": 1}},
        "by_fault": {"reset_after_billing": 1},
        "distinct_bodies": 2,
        "in_flight": 0,
        "max_concurrency": 3,
        "money": {"billed_nano_usd": 1000, "delivered_nano_usd": 1000, "lost_nano_usd": 0, "unpriced_calls": 1},
    }
    assert [call.as_row()["attempt_id"] for call in ledger.calls()] == ["x-1", "x-2"]
    assert [call.occurrence for call in ledger.calls(refused=True)] == [1, 2, 1]
    assert second.as_row() == {
        "attempt_id": "x-2",
        "body_digest": A.hex(),
        "occurrence": 2,
        "model": None,
        "accepted": True,
        "billed": True,
        "billed_prompt_tokens": 7,
        "billed_completion_tokens": 5,
        "billed_cached_tokens": 0,
        "billed_cache_write_tokens": 0,
        "billed_cache_write_1h_tokens": 0,
        "billed_nano_usd": None,
        "tier": "default",
        "delivered": False,
        "usage_delivered": False,
        "status": None,
        "code": None,
        "fault": "reset_after_billing",
        "started_at_ms": 11,
        "ended_at_ms": 20,
        "prompt_tokens": 7,
        "batch_id": None,
    }
    assert call_of_row(second.as_row()) == second


def test_requests_bucket() -> None:
    buckets = Buckets(RateLimit(requests_per_min=60, burst_requests=2), now_ms=0)
    assert buckets.take(tokens=5, now_ms=0) is None
    assert buckets.take(tokens=5, now_ms=0) is None
    refused = buckets.take(tokens=5, now_ms=400)  # 0.4 of a request is back, 0.6 is missing: 600 ms at one a second
    assert refused == Refused(dimension="requests", limit_per_min=60, retry_after_ms=600)
    assert buckets.take(tokens=5, now_ms=1000) is None
    assert buckets.headers()["x-ratelimit-remaining-requests"] == "0"
    assert buckets.headers()["x-ratelimit-reset-requests"] == "2s"


def test_tokens_bucket_and_a_call_that_never_fits() -> None:
    buckets = Buckets(RateLimit(tokens_per_min=600, burst_tokens=100), now_ms=0)
    assert buckets.take(tokens=101, now_ms=0) == Refused(dimension="tokens", limit_per_min=600, retry_after_ms=None)
    assert buckets.take(tokens=100, now_ms=0) is None
    assert buckets.take(tokens=10, now_ms=0) == Refused(dimension="tokens", limit_per_min=600, retry_after_ms=1000)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0s"),
        (12, "12ms"),
        (1000, "1s"),
        (1500, "1.5s"),
        (360_000, "6m0s"),
        (61_250, "1m1.25s"),
        (3_600_000, "1h0m0s"),
    ],
)
def test_resets_are_go_durations(ms: int, text: str) -> None:
    assert go_duration(ms) == text


def test_output_tokens_are_taken_as_they_are_produced() -> None:
    """Anthropic: what the model writes may leave the bucket in debt, and only then are calls refused."""
    buckets = Buckets(RateLimit(output_tokens_per_min=600, burst_output_tokens=100), now_ms=0)
    assert buckets.take(tokens=10**6, now_ms=0) is None
    buckets.produced(150)
    refused = buckets.take(tokens=1, now_ms=0)  # 50 in debt, one is wanted: 51 at 10 a second
    assert refused == Refused(dimension="output_tokens", limit_per_min=600, retry_after_ms=5100)
    headers = buckets.anthropic_headers(now_ms=0)
    assert headers["anthropic-ratelimit-output-tokens-remaining"] == "0"
    assert headers["anthropic-ratelimit-output-tokens-reset"] == "1970-01-01T00:00:15Z"


def test_no_limit_refuses_nothing() -> None:
    buckets = Buckets(RateLimit(), now_ms=0)
    assert all(buckets.take(tokens=10**9, now_ms=0) is None for _ in range(100))
    assert buckets.headers() == {}


@given(per_min=st.integers(1, 1000), burst=st.integers(1, 50), gaps_ms=st.lists(st.integers(0, 5000), max_size=60))
def test_never_more_than_burst_plus_rate(per_min: int, burst: int, gaps_ms: list[int]) -> None:
    """E9"""
    buckets = Buckets(RateLimit(requests_per_min=per_min, burst_requests=burst), now_ms=0)
    now_ms = taken = 0
    for gap_ms in gaps_ms:
        now_ms += gap_ms
        taken += buckets.take(tokens=1, now_ms=now_ms) is None
    assert taken <= burst + now_ms * per_min / 60_000 + 1e-6
