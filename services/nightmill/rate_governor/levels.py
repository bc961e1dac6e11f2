"""Rate levels of a pool: GCRA with debt, in integers.

A level is what was granted and has not drained yet. It drains at the pool's rate, all the time, so there is no window
whose edge lets two bursts meet. Levels are kept in thousandths of a request or token, because a limit per minute
drains less than one unit per millisecond.
"""

from nightmill.kernel.domain.settings import PoolLimits
from nightmill.kernel.wire.messages import LeaseAmounts, LeaseStateRow

#: Requests, input tokens and output tokens, in this order.
Vector = tuple[int, int, int]

#: The governor's burst: this much time of the pool's rate. Providers refill their buckets over a minute
#: (reference: rate limits of OpenAI and Anthropic), so five seconds stay well inside a provider's own burst.
BURST_MS = 5_000
MILLI = 1_000


def vector(amounts: LeaseAmounts) -> Vector:
    return amounts.requests, amounts.input_tokens, amounts.output_tokens


def amounts(values: Vector) -> LeaseAmounts:
    return LeaseAmounts(requests=values[0], input_tokens=values[1], output_tokens=values[2])


def limits_of(limits: PoolLimits) -> tuple[int | None, int | None, int | None]:
    """Units per minute by dimension; None is no limit."""
    return limits.requests_per_minute, limits.input_tokens_per_minute, limits.output_tokens_per_minute


def levels_of(state: LeaseStateRow) -> Vector:
    return state.requests_level, state.input_tokens_level, state.output_tokens_level


def burst(limit_per_minute: int) -> int:
    """The most a level may reach by ordinary grants, in thousandths; one unit always fits."""
    return max(MILLI, limit_per_minute * BURST_MS // 60)


def drained(level: int, limit_per_minute: int, since_ms: int, until_ms: int) -> int:
    """The level after the time from `since_ms` to `until_ms`.

    A limit per minute drains limit / 60 thousandths in a millisecond. Both ends are rounded on the absolute time, so
    many short steps drain exactly as much as one long step.
    """
    return max(0, level - (limit_per_minute * until_ms // 60 - limit_per_minute * since_ms // 60))
