"""The health of a pool as this instance sees it: pauses, stops, and what repeated failures turn into (E8, E9).

One failed call pauses its pool where the failure is the pool's and not the item's: a rate limit until the provider's
own time, a refused key or empty account for a growing time, an unreachable or loading server for a short one. After a
pause one call goes first; the others follow when it succeeds. Whoever was asked to slow down has half as many calls in
flight from then on, and half as many again each quarter of an hour, as OpenAI's rate-limit guide asks for (2026-10-04).
In memory only: after a restart the first call finds out.
"""

import dataclasses
from dataclasses import dataclass

from nightmill.kernel.domain.failures import FailureClass
from nightmill.kernel.wire.messages import Failure
from nightmill.kernel.wire.values import replace
from nightmill.provider_gateway.failures import ROWS, Signal, failure

#: web pages, and 429 without a reason, in a row that are no accident any more
HTML_LIMIT = 3
UNEXPLAINED_LIMIT = 3
#: connection failures leave the retry budget alone for so long
FREE_OUTAGE_MS = 180_000
_RAMP_MS = 900_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolHealth:
    """What recent calls of a pool taught."""

    paused_until_ms: int = 0
    strikes: int = 0  #: pauses in a row without a success between them
    unreachable_since_ms: int | None = None
    html_in_a_row: int = 0
    failed_in_a_row: int = 0  #: of signals that pause a pool only when they come one after another
    eased_percent: int = 100  #: of its slots, at `eased_at_ms`
    eased_at_ms: int = 0


HEALTHY = PoolHealth()


def judged(health: PoolHealth, seen: Failure | None, *, now_ms: int) -> Failure | None:
    """The failure as the pool's history makes it.

    A third web page, or a third 429 that nothing explains, is the account's fault; an outage costs no retry at first.
    """
    if seen is None:
        return None
    if seen.signal == Signal.UNKNOWN_429 and health.strikes >= UNEXPLAINED_LIMIT - 1:
        return failure(Signal.UNEXPLAINED_429)
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
    html, failed = _html(health, seen), _failed(health, seen)
    pause = _pause_ms(health, seen, failed)
    if pause is None:
        cleared = started_at_ms >= health.paused_until_ms and not _is_html(seen)
        rested = _rested(health, now_ms)
        if cleared and not failed:
            return rested
        return dataclasses.replace(rested if cleared else health, html_in_a_row=html, failed_in_a_row=failed)
    fresh = started_at_ms >= health.paused_until_ms
    until_ms = health.paused_until_ms
    if fresh or _hinted(seen):
        until_ms = max(until_ms, now_ms + pause)
    slower = fresh and seen is not None and seen.signal == Signal.SLOW_DOWN
    return PoolHealth(
        paused_until_ms=until_ms,
        strikes=health.strikes + 1 if fresh else health.strikes,
        unreachable_since_ms=_unreachable(health, seen, now_ms),
        html_in_a_row=html,
        failed_in_a_row=failed,
        eased_percent=max(1, _share_percent(health, now_ms) // 2) if slower else health.eased_percent,
        eased_at_ms=until_ms if slower else health.eased_at_ms,
    )


def slots_allowed(health: PoolHealth, slots: int, *, now_ms: int) -> int:
    """How many of `slots` a pool may use: none while it is paused, one to try it out afterwards, fewer than all for a
    while when it was asked to slow down.
    """
    if now_ms < health.paused_until_ms:
        return 0
    if health.strikes:
        return min(slots, 1)
    return slots if health is HEALTHY else min(slots, max(1, slots * _share_percent(health, now_ms) // 100))


def _share_percent(health: PoolHealth, now_ms: int) -> int:
    """How much of its slots an eased pool may use by now."""
    share = health.eased_percent
    for _ in range(max(0, now_ms - health.eased_at_ms) // _RAMP_MS):
        if share >= 100:
            break
        share += -(-share // 2)
    return min(share, 100)


def _rested(health: PoolHealth, now_ms: int) -> PoolHealth:
    """A pool that works again, at the pace it was asked for."""
    if _share_percent(health, now_ms) == 100:
        return HEALTHY
    return PoolHealth(eased_percent=health.eased_percent, eased_at_ms=health.eased_at_ms)


def _pause_ms(health: PoolHealth, seen: Failure | None, failed: int) -> int | None:
    if seen is None:
        return None
    if _hinted(seen):
        return seen.retry_after_ms
    pause = ROWS[Signal(seen.signal)].pause
    if pause is None or 0 < failed < pause.failures:
        return None
    return min(pause.first_ms << min(health.strikes, 16), pause.longest_ms)


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


def _failed(health: PoolHealth, seen: Failure | None) -> int:
    pause = None if seen is None else ROWS[Signal(seen.signal)].pause
    return health.failed_in_a_row + 1 if pause is not None and pause.failures > 1 else 0
