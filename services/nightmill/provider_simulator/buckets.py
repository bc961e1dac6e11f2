"""The provider's hidden rate limits: one bucket per dimension, refilled evenly, with a settable depth.

A call takes one request and `max(max_tokens, estimated prompt tokens)` tokens, which is how OpenAI counts at admission
(platform.openai.com/docs/guides/rate-limits, read 2026-10-04). A refused call takes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from nightmill.provider_simulator.scenario import RateLimit

Dimension = Literal["requests", "tokens"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The limit that was hit and when the same call would fit; `None`: it never will, it exceeds the bucket."""

    dimension: Dimension
    limit_per_min: int
    retry_after_ms: int | None


@dataclass(slots=True)
class _Bucket:
    per_min: int
    burst: int
    level: float = field(init=False)
    at_ms: int

    def __post_init__(self) -> None:
        self.level = float(self.burst)

    def refill(self, now_ms: int) -> None:
        gained = max(0, now_ms - self.at_ms) * self.per_min / 60_000
        self.level = min(float(self.burst), self.level + gained)
        self.at_ms = max(self.at_ms, now_ms)

    def wait_ms(self, amount: float) -> int:
        return math.ceil(max(0.0, amount - self.level) * 60_000 / self.per_min)


class Buckets:
    """The levels of one account; a new object is full."""

    def __init__(self, limit: RateLimit, *, now_ms: int) -> None:
        self._buckets: dict[Dimension, _Bucket] = {}
        if limit.requests_per_min is not None:
            burst = limit.burst_requests or max(1, limit.requests_per_min // 10)
            self._buckets["requests"] = _Bucket(limit.requests_per_min, burst, now_ms)
        if limit.tokens_per_min is not None:
            burst = limit.burst_tokens or max(1, limit.tokens_per_min // 10)
            self._buckets["tokens"] = _Bucket(limit.tokens_per_min, burst, now_ms)

    def take(self, *, tokens: int, now_ms: int) -> Refused | None:
        """Take one call from every bucket, or from none and say which one is too low."""
        amounts: dict[Dimension, int] = {"requests": 1, "tokens": tokens}
        for dimension, bucket in self._buckets.items():
            bucket.refill(now_ms)
            if amounts[dimension] > bucket.level:
                fits = amounts[dimension] <= bucket.burst
                wait_ms = bucket.wait_ms(amounts[dimension]) if fits else None
                return Refused(dimension=dimension, limit_per_min=bucket.per_min, retry_after_ms=wait_ms)
        for dimension, bucket in self._buckets.items():
            bucket.level -= amounts[dimension]
        return None

    def headers(self) -> dict[str, str]:
        """`x-ratelimit-*` as of the last `take`; the resets are Go durations."""
        headers: dict[str, str] = {}
        for dimension, bucket in self._buckets.items():
            headers[f"x-ratelimit-limit-{dimension}"] = str(bucket.per_min)
            headers[f"x-ratelimit-remaining-{dimension}"] = str(int(bucket.level))
            headers[f"x-ratelimit-reset-{dimension}"] = f"{bucket.wait_ms(bucket.burst)}ms"
        return headers
