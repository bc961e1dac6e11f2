"""The provider's hidden rate limits: one bucket per dimension, refilled evenly, with a settable depth.

OpenAI: a call takes one request and `max(max_tokens, estimated prompt tokens)` tokens
(platform.openai.com/docs/guides/rate-limits, read 2026-10-04). Anthropic: one request and its input without cache
reads at admission; its output is taken as it is produced and may leave the bucket in debt
(platform.claude.com/docs/en/api/rate-limits, read 2026-10-04). A refused call takes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from nightmill.provider_simulator.scenario import RateLimit

Dimension = Literal["requests", "tokens", "input_tokens", "output_tokens"]

_ANTHROPIC_ROUNDING = 1000  # remaining tokens are told in thousands


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


def go_duration(ms: int) -> str:
    """`12ms`, `1.5s`, `6m0s`, `1h0m0s`: as Go prints a duration."""
    if ms < 1000:
        return f"{ms}ms" if ms else "0s"
    minutes, rest_ms = divmod(ms, 60_000)
    seconds = f"{rest_ms / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    if minutes == 0:
        return seconds
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{seconds}" if hours else f"{minutes}m{seconds}"


class Buckets:
    """The levels of one account; a new object is full."""

    def __init__(self, limit: RateLimit, *, now_ms: int) -> None:
        stated: dict[Dimension, tuple[int | None, int | None]] = {
            "requests": (limit.requests_per_min, limit.burst_requests),
            "tokens": (limit.tokens_per_min, limit.burst_tokens),
            "input_tokens": (limit.input_tokens_per_min, limit.burst_input_tokens),
            "output_tokens": (limit.output_tokens_per_min, limit.burst_output_tokens),
        }
        self._buckets: dict[Dimension, _Bucket] = {
            dimension: _Bucket(per_min, burst or max(1, per_min // 10), now_ms)
            for dimension, (per_min, burst) in stated.items()
            if per_min is not None
        }

    def take(self, *, tokens: int, now_ms: int, input_tokens: int = 0) -> Refused | None:
        """Take one call from every bucket, or from none and say which one is too low."""
        if not self._buckets:
            return None
        amounts: dict[Dimension, int] = {"requests": 1, "tokens": tokens, "input_tokens": input_tokens}
        for dimension, bucket in self._buckets.items():
            bucket.refill(now_ms)
            amount = amounts.get(dimension, 1)  # of output at least something must be left
            if amount > bucket.level:
                fits = amount <= bucket.burst
                wait_ms = bucket.wait_ms(amount) if fits else None
                return Refused(dimension=dimension, limit_per_min=bucket.per_min, retry_after_ms=wait_ms)
        for dimension, bucket in self._buckets.items():
            bucket.level -= amounts.get(dimension, 0)
        return None

    def produced(self, output_tokens: int) -> None:
        """The model wrote this much."""
        bucket = self._buckets.get("output_tokens")
        if bucket is not None:
            bucket.level -= output_tokens

    def headers(self) -> dict[str, str]:
        """OpenAI's `x-ratelimit-*` as of the last `take`; the resets are Go durations."""
        headers: dict[str, str] = {}
        for dimension in ("requests", "tokens"):
            bucket = self._buckets.get(dimension)
            if bucket is not None:
                headers[f"x-ratelimit-limit-{dimension}"] = str(bucket.per_min)
                headers[f"x-ratelimit-remaining-{dimension}"] = str(int(bucket.level))
                headers[f"x-ratelimit-reset-{dimension}"] = go_duration(bucket.wait_ms(bucket.burst))
        return headers

    def anthropic_headers(self, *, now_ms: int) -> dict[str, str]:
        """Anthropic's `anthropic-ratelimit-*`; the resets are times, remaining tokens are rounded to thousands."""
        headers: dict[str, str] = {}
        for dimension, bucket in self._buckets.items():
            name = f"anthropic-ratelimit-{dimension.replace('_', '-')}"
            left = max(0, int(bucket.level))
            if dimension != "requests":
                left = round(left / _ANTHROPIC_ROUNDING) * _ANTHROPIC_ROUNDING
            reset_at_s = (now_ms + bucket.wait_ms(bucket.burst)) / 1000
            headers[f"{name}-limit"] = str(bucket.per_min)
            headers[f"{name}-remaining"] = str(left)
            headers[f"{name}-reset"] = datetime.fromtimestamp(reset_at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return headers
