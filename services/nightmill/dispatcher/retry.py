"""What to do after a failed call (E8, E9): wait and call again, or give up. One layer retries: this one.

Classes and consequences: reference table of provider signals. A wait is exponential from the class's base to its cap,
with full jitter on its upper half:

    wait(n) = min(cap, base * 2^n) * (1/2 + jitter/2)        0 <= jitter < 1

and never shorter than the provider's own Retry-After. For failures that use the retry budget, n is the budget used so
far; for the others, the calls so far that used none, as far as their waits fit into the time since the item was
planned: one that is planned anew begins anew, whatever it went through before. Those end when their shortest waits
add up to the capacity limit and the item is that old, so that neither a long queue nor a busy provider kills an item
early.
"""

from dataclasses import dataclass

from nightmill.kernel.domain.failures import FailureClass
from nightmill.kernel.domain.settings import Retry, RetryRule
from nightmill.kernel.wire.messages import Failure

_DEFAULT_RULE = RetryRule(base=1.0, cap=60.0)
_DEFAULT_RULES = {
    FailureClass.CAPACITY: RetryRule(base=2.0, cap=120.0),
    FailureClass.ACCOUNT: RetryRule(base=30.0, cap=300.0),
}
_MOST_DOUBLINGS = 32

#: Classes that a further call may cure.
RETRIED = frozenset({FailureClass.TRANSIENT, FailureClass.INTERNAL, FailureClass.CAPACITY, FailureClass.ACCOUNT})


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryAt:
    """Call again at `due_at_ms`; `tries` is the retry budget used by then."""

    due_at_ms: int
    tries: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No further call."""


def after_failure(
    failure: Failure,
    *,
    tries: int,
    waits: int,
    planned_at_ms: int,
    attempts: int,
    policy: Retry,
    now_ms: int,
    jitter: float,
) -> RetryAt | GiveUp:
    """Whether and when to call again after a failure of a class in `RETRIED`.

    `tries` and `attempts` are the retry budget used before this failure and its size; `waits` counts earlier calls of
    the item that used none. Account failures are never given up: the pool stands still until a person mends it.
    """
    rule = policy.classes.get(failure.failure_class) or _DEFAULT_RULES.get(failure.failure_class, _DEFAULT_RULE)
    if uses_budget(failure):
        if tries + 1 >= attempts:
            return GiveUp()
        return RetryAt(due_at_ms=_due(failure, rule, tries, now_ms, jitter), tries=tries + 1)
    if failure.failure_class is not FailureClass.ACCOUNT:
        limit_ms = int(policy.capacity_limit * 1000)
        if waited_ms(rule, waits) >= limit_ms and now_ms - planned_at_ms >= limit_ms:
            return GiveUp()
    doublings = _waits_within(rule, waits, now_ms - planned_at_ms)
    return RetryAt(due_at_ms=_due(failure, rule, doublings, now_ms, jitter), tries=tries)


def uses_budget(failure: Failure) -> bool:
    """Whether a failed call counts against the item's retry budget."""
    exempt = failure.failure_class in (FailureClass.CAPACITY, FailureClass.ACCOUNT)
    return failure.uses_retry_budget and not exempt


def backoff_ms(rule: RetryRule, doublings: int, jitter: float) -> int:
    """Wait after `doublings` earlier ones, in milliseconds; `jitter` is in [0, 1)."""
    wait_s = min(rule.cap, rule.base * 2 ** min(doublings, _MOST_DOUBLINGS))
    return int(wait_s * 500 * (1 + jitter))


def waited_ms(rule: RetryRule, waits: int) -> int:
    """The least that `waits` waits of a rule take together, in milliseconds."""
    total_s, wait_s, left = 0.0, rule.base, waits
    while left > 0 and wait_s < rule.cap:
        total_s, wait_s, left = total_s + wait_s, wait_s * 2, left - 1
    return int((total_s + left * rule.cap) * 500)


def _waits_within(rule: RetryRule, waits: int, age_ms: int) -> int:
    """The most of `waits` waits whose shortest times fit into an age; past the cap one more makes no difference."""
    most = 0
    while most < min(waits, _MOST_DOUBLINGS) and waited_ms(rule, most + 1) <= age_ms:
        most += 1
    return most


def _due(failure: Failure, rule: RetryRule, doublings: int, now_ms: int, jitter: float) -> int:
    return now_ms + max(backoff_ms(rule, doublings, jitter), failure.retry_after_ms or 0)
