"""Rate limits that a provider tells in its headers, beside those of the pool (pure).

`x-ratelimit-*` of OpenAI and those that speak like it, and `anthropic-ratelimit-*` (both APIs' pages on rate limits,
read 2026-11-29). OpenAI counts a request's tokens as the greater of what is sent and what may come back; that limit is
compared with the pool's input tokens. A window whose end is more than a minute away is not one of a minute, and its
limit is left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from nightmill.kernel.domain.settings import PoolLimits
from nightmill.provider_gateway.waits import go_duration_ms, timestamp_ms

_MINUTE_MS = 60_000
_MAX_LIMIT = 10**12
#: field of `limits` → the headers that tell it, as (limit, reset); where several do, the smallest holds
_HEADERS: dict[str, tuple[tuple[str, str], ...]] = {
    "requests_per_minute": (
        ("x-ratelimit-limit-requests", "x-ratelimit-reset-requests"),
        ("anthropic-ratelimit-requests-limit", "anthropic-ratelimit-requests-reset"),
    ),
    "input_tokens_per_minute": (
        ("x-ratelimit-limit-tokens", "x-ratelimit-reset-tokens"),
        ("x-ratelimit-limit-project-tokens", "x-ratelimit-reset-project-tokens"),
        ("anthropic-ratelimit-input-tokens-limit", "anthropic-ratelimit-input-tokens-reset"),
    ),
    "output_tokens_per_minute": (
        ("anthropic-ratelimit-output-tokens-limit", "anthropic-ratelimit-output-tokens-reset"),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One limit of both sides."""

    field: str  #: of the pool's `limits`
    configured: int | None
    told: int

    @property
    def suggested(self) -> int | None:
        """What to write into the pool's `limits`; None: what stands there keeps within the provider's limit."""
        return self.told if self.configured is None or self.configured > self.told else None

    def line(self) -> str:
        """Both sides in words."""
        mine = "not set" if self.configured is None else f"{self.configured:,}"
        return f"{self.field}: {mine}, the provider allows {self.told:,}"


def told_limits(headers: Mapping[str, str], *, now_ms: int) -> dict[str, int]:
    """Limits per minute by the field of `PoolLimits`; header names are in lower case."""
    told: dict[str, int] = {}
    for field, sources in _HEADERS.items():
        limits = [_limit(headers.get(limit)) for limit, reset in sources if _is_minute(headers.get(reset), now_ms)]
        known = [limit for limit in limits if limit is not None]
        if known:
            told[field] = min(known)
    return told


def compared(limits: PoolLimits, told: Mapping[str, int]) -> list[Comparison]:
    """What the provider told beside what the pool says."""
    configured = limits.model_dump()
    return [Comparison(field=field, configured=configured[field], told=limit) for field, limit in told.items()]


def _limit(text: str | None) -> int | None:
    if text is None or not (text.isascii() and text.isdecimal()) or len(text) > len(str(_MAX_LIMIT)):
        return None
    return int(text) or None


def _is_minute(reset: str | None, now_ms: int) -> bool:
    """Whether the window may be one of a minute: it ends within one, or does not say when."""
    wait_ms = go_duration_ms(reset)
    if wait_ms is None:
        wait_ms = timestamp_ms(reset, now_ms=now_ms)
    return wait_ms is None or wait_ms <= _MINUTE_MS
