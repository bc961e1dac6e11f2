"""The health of a pool as this instance sees it: pauses, stops, and what repeated failures turn into (E8, E9).

One failed call pauses its pool where the failure is the pool's and not the item's: a rate limit until the provider's
own time, a refused key or empty account for a growing time, an unreachable or loading server for a short one. After a
pause one call goes first; the others follow when it succeeds. In memory only: after a restart the first call finds out.
"""

import dataclasses
from dataclasses import dataclass

from nightmill.kernel.domain.failures import FailureClass
from nightmill.kernel.wire.messages import Failure
from nightmill.kernel.wire.values import replace
from nightmill.provider_gateway.failures import Signal, failure

#: web pages in a row that are no accident any more
HTML_LIMIT = 3
#: connection failures leave the retry budget alone for so long
FREE_OUTAGE_MS = 180_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolHealth:
    """What recent calls of a pool taught."""

    paused_until_ms: int = 0
    strikes: int = 0  #: pauses in a row without a success between them
    unreachable_since_ms: int | None = None
    html_in_a_row: int = 0


HEALTHY = PoolHealth()

#: first and longest pause of a signal without a time of the provider's own
_PAUSES_MS: dict[Signal, tuple[int, int]] = {
    Signal.RATE_LIMITED: (5_000, 60_000),
    Signal.SLOW_DOWN: (5_000, 300_000),
    Signal.TIER_UNAVAILABLE: (30_000, 600_000),
    Signal.UNKNOWN_429: (60_000, 3_600_000),
    Signal.MODEL_LOADING: (1_000, 10_000),
    Signal.NOT_CONNECTED: (1_000, 30_000),
    Signal.PROXY_AUTHENTICATION: (1_000, 30_000),
    Signal.NO_DESCRIPTORS: (1_000, 10_000),
}
_ACCOUNT_PAUSE_MS = (30_000, 600_000)


def judged(health: PoolHealth, seen: Failure | None, *, now_ms: int) -> Failure | None:
    """The failure as the pool's history makes it: a third web page is the account's fault, an outage costs no retry."""
    if seen is None:
        return None
    if seen.signal == Signal.HTML_BODY and health.html_in_a_row >= HTML_LIMIT - 1:
        return failure(Signal.HTML_PROXY)
    if seen.signal in (Signal.NOT_CONNECTED, Signal.PROXY_AUTHENTICATION):
        since_ms = now_ms if health.unreachable_since_ms is None else health.unreachable_since_ms
        return replace(seen, uses_retry_budget=now_ms - since_ms >= FREE_OUTAGE_MS)
    return seen


def after(health: PoolHealth, seen: Failure | None, *, started_at_ms: int, now_ms: int) -> PoolHealth:
    """Health after a call that was started at `started_at_ms` and ended with `seen` (None: it succeeded).

    Of many calls that fail together only the first adds a strike: the others were under way before its pause.
    """
    if health is HEALTHY and seen is None:
        return health
    pause = _pause_ms(health, seen)
    if pause is None:
        cleared = started_at_ms >= health.paused_until_ms and not _is_html(seen)
        return HEALTHY if cleared else dataclasses.replace(health, html_in_a_row=_html(health, seen))
    fresh = started_at_ms >= health.paused_until_ms
    return PoolHealth(
        paused_until_ms=max(health.paused_until_ms, now_ms + pause)
        if fresh or _hinted(seen)
        else health.paused_until_ms,
        strikes=health.strikes + 1 if fresh else health.strikes,
        unreachable_since_ms=_unreachable(health, seen, now_ms),
        html_in_a_row=_html(health, seen),
    )


def slots_allowed(health: PoolHealth, slots: int, *, now_ms: int) -> int:
    """How many of `slots` a pool may use: none while it is paused, one to try it out afterwards."""
    if now_ms < health.paused_until_ms:
        return 0
    return min(slots, 1) if health.strikes else slots


def _pause_ms(health: PoolHealth, seen: Failure | None) -> int | None:
    if seen is None:
        return None
    if _hinted(seen):
        return seen.retry_after_ms
    if seen.failure_class is FailureClass.ACCOUNT:
        base, cap = _ACCOUNT_PAUSE_MS
    elif Signal(seen.signal) in _PAUSES_MS:
        base, cap = _PAUSES_MS[Signal(seen.signal)]
    else:
        return None
    return min(base << min(health.strikes, 16), cap)


def _hinted(seen: Failure | None) -> bool:
    """The provider itself said when to come back, and not for the sake of this one item."""
    pool_wide = (FailureClass.CAPACITY, FailureClass.TRANSIENT)
    return seen is not None and seen.retry_after_ms is not None and seen.failure_class in pool_wide


def _unreachable(health: PoolHealth, seen: Failure | None, now_ms: int) -> int | None:
    if seen is None or seen.signal not in (Signal.NOT_CONNECTED, Signal.PROXY_AUTHENTICATION):
        return None
    return now_ms if health.unreachable_since_ms is None else health.unreachable_since_ms


def _is_html(seen: Failure | None) -> bool:
    return seen is not None and seen.signal in (Signal.HTML_BODY, Signal.HTML_PROXY)


def _html(health: PoolHealth, seen: Failure | None) -> int:
    return health.html_in_a_row + 1 if _is_html(seen) else 0
