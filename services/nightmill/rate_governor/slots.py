"""How the slots of a pool are divided over its holders."""

from collections.abc import Mapping

from nightmill.kernel.wire.messages import HolderLease, LeaseRequested, LeaseStateRow
from nightmill.rate_governor.pool import Terms, is_live, occupied
from nightmill.rate_governor.shares import divide
from nightmill.rate_governor.waiting import Waiting


def slots_for(
    state: LeaseStateRow,
    lease: HolderLease,
    ask: LeaseRequested,
    now_ms: int,
    terms: Terms,
    waiting: Mapping[str, Waiting],
) -> int:
    """The holder's fair share of the slots, as far as the others' leases and calls leave them free."""
    others = [other for other in state.holders if (other.holder, other.epoch) != (lease.holder, lease.epoch)]
    live = {other.holder: other for other in others if is_live(other)}
    gone = sum(occupied(other) for other in others if not is_live(other))
    wants = {name: waiting[name].wants_slots if name in waiting else other.slots for name, other in live.items()} | {
        ask.holder: ask.wants_slots
    }
    has = {name: other.slots for name, other in live.items()} | {ask.holder: lease.slots}
    capacity = terms.limits.slots - gone
    order = _order(capacity, wants, has, now_ms, terms, waiting)
    share = divide(capacity, wants, order)[ask.holder]
    free = terms.limits.slots - sum(occupied(other) for other in others)
    return max(0, min(share, free))


def _order(
    capacity: int,
    wants: Mapping[str, int],
    has: Mapping[str, int],
    now_ms: int,
    terms: Terms,
    waiting: Mapping[str, Waiting],
) -> list[str]:
    """Who comes first when slots do not divide evenly.

    Enough for everybody: who has more keeps more, so nothing flaps. Fewer slots than holders: they take turns of one
    ttl, and the longest without a slot is next.
    """
    if capacity >= sum(1 for want in wants.values() if want > 0):
        return sorted(wants, key=lambda name: (-has[name], name))

    def turn(name: str) -> tuple[int, int, str]:
        since_ms = waiting[name].turn_since_ms if name in waiting else now_ms
        if has[name] == 0:
            return 1, since_ms, name
        return (0 if now_ms - since_ms < terms.ttl_ms else 2), since_ms, name

    return sorted(wants, key=turn)
