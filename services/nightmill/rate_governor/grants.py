"""What a holder is granted: `grant(state, ask, now_ms, terms, waiting)`, pure.

A holder says what it `wants` to hold (in total, of what it has not started yet), how many calls it could have in
flight, and what it has used and reserved so far in its epoch. The answer is cumulative: everything granted in this
epoch, and slots. The newest (epoch, seq) wins; older and repeated asks change nothing, and a dead epoch gets no refund.

Acknowledgement: a holder that has the answer to ask n numbers its next ask n + 1; when it gives up waiting for it,
n + 2. So n + 1 alone tells that the grant of n arrived. A holder that was given fewer slots than it had may go on under
its old grant until then, and its slots stay occupied until then.

Corrections: what a holder started beyond its grant (an answer longer than its estimate) is charged as debt. What
settlement gives back is the holder's to start again, as long as it does not hold more than at its newest ask; what goes
beyond that returns to the pool. So does what was held when a holder says that it can start nothing more.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from nightmill.kernel.wire.messages import HolderLease, LeaseGranted, LeaseRequested, LeaseStateRow
from nightmill.rate_governor.levels import MILLI, Vector, amounts, burst, levels_of, limits_of, vector
from nightmill.rate_governor.pool import (
    ORPHANED_MS,
    Terms,
    advance,
    held,
    held_by_all,
    is_live,
    occupied,
    with_levels,
)
from nightmill.rate_governor.shares import divide

#: A holder that did not come back for its part for longer than this gains nothing by waiting more: it may be gone.
LONGEST_WAIT_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What a holder asked for last. It makes the division fair and nothing else, so a take-over may lose it."""

    wants: Vector
    wants_slots: int
    asked_at_ms: int  #: by the governor's clock
    turn_since_ms: int  #: when it got its first slot, or lost its last one
    given_at_ms: Vector  #: when it was given something last, by dimension


def grant(
    state: LeaseStateRow,
    ask: LeaseRequested,
    now_ms: int,
    terms: Terms,
    waiting: Mapping[str, Waiting],
) -> tuple[LeaseStateRow, LeaseGranted] | None:
    """The pool's next state and the answer; None for an ask that is older than what is known, or repeated."""
    state = advance(state, now_ms, terms)
    mine = [lease for lease in state.holders if lease.holder == ask.holder]
    if any((lease.epoch, lease.seq) >= (ask.epoch, ask.seq) for lease in mine):
        return None
    state, lease = _settled(_superseded(state, ask, terms), lease_of(state, ask), ask, terms)
    slots = _slots(state, lease, ask, now_ms, terms, waiting)
    lease = replace(lease, slots=slots, remaining_ms=terms.ttl_ms + terms.guard_ms)
    state = _with(state, lease, terms)
    if slots > 0:
        state, lease = _enriched(state, lease, ask, now_ms, terms, waiting)
    return state, LeaseGranted(
        pool=ask.pool,
        holder=ask.holder,
        holder_partition=ask.holder_partition,
        epoch=ask.epoch,
        seq=ask.seq,
        granted=lease.granted,
        slots=slots,
        ttl_ms=terms.ttl_ms,
        granted_at_ms=now_ms,
    )


def remembered(
    before: Waiting | None, ask: LeaseRequested, old: HolderLease | None, new: HolderLease, now_ms: int
) -> Waiting:
    """What to keep of an ask that turned the holder's lease from `old` into `new`."""
    turn_since_ms = now_ms if before is None else before.turn_since_ms
    given_at_ms = (now_ms, now_ms, now_ms) if before is None else before.given_at_ms
    had_slots = old is not None and old.slots > 0
    old_granted = (0, 0, 0) if old is None else vector(old.granted)
    requests, input_tokens, output_tokens = (
        now_ms if after > was else at_ms
        for was, after, at_ms in zip(old_granted, vector(new.granted), given_at_ms, strict=True)
    )
    return Waiting(
        wants=vector(ask.wants),
        wants_slots=ask.wants_slots,
        asked_at_ms=now_ms,
        turn_since_ms=turn_since_ms if had_slots == (new.slots > 0) else now_ms,
        given_at_ms=(requests, input_tokens, output_tokens),
    )


def lease_of(state: LeaseStateRow, ask: LeaseRequested) -> HolderLease | None:
    """The lease of the asking holder's epoch."""
    return next((lease for lease in state.holders if (lease.holder, lease.epoch) == (ask.holder, ask.epoch)), None)


# -- settlement


def _started(ask: LeaseRequested) -> Vector:
    used, reserved = vector(ask.used), vector(ask.reserved)
    return used[0] + reserved[0], used[1] + reserved[1], used[2] + reserved[2]


def _noted(known: HolderLease | None, ask: LeaseRequested) -> HolderLease:
    """The holder's lease with the ask noted; a holder that nobody knows holds nothing beyond what it started."""
    if known is None:
        return HolderLease(
            holder=ask.holder,
            holder_partition=ask.holder_partition,
            epoch=ask.epoch,
            seq=ask.seq,
            granted=amounts(_started(ask)),
            used=amounts(_started(ask)),
            slots=0,
            slots_in_use=ask.slots_in_use,
            remaining_ms=0,
        )
    in_flight = max(known.slots if _acknowledges(ask, known) else occupied(known), ask.slots_in_use)
    return replace(
        known,
        seq=ask.seq,
        holder_partition=ask.holder_partition,
        slots_in_use=0 if _gives_up(ask) else in_flight,
    )


def _acknowledges(ask: LeaseRequested, known: HolderLease) -> bool:
    return ask.seq == known.seq + 1


def _gives_up(ask: LeaseRequested) -> bool:
    """The holder dropped its lease as it sent this ask: nothing is in flight, and nothing starts before an answer."""
    return ask.wants_slots == 0 and ask.slots_in_use == 0


def _has_stopped(ask: LeaseRequested, known: HolderLease | None) -> bool:
    """Nothing starts before an answer, because the lease was given up or, as the holder knows, has no slots."""
    if known is None:
        return True
    return _gives_up(ask) or (known.slots == 0 and _acknowledges(ask, known) and ask.slots_in_use == 0)


def _superseded(state: LeaseStateRow, ask: LeaseRequested, terms: Terms) -> LeaseStateRow:
    """Older epochs of the asking holder lapse: that process is gone, and its calls end soon."""
    left_ms = min(ORPHANED_MS, terms.call_deadline_ms) - terms.call_deadline_ms
    return replace(
        state,
        holders=tuple(
            replace(lease, remaining_ms=min(lease.remaining_ms, left_ms))
            if lease.holder == ask.holder and lease.epoch < ask.epoch
            else lease
            for lease in state.holders
        ),
    )


def _settled(
    state: LeaseStateRow, known: HolderLease | None, ask: LeaseRequested, terms: Terms
) -> tuple[LeaseStateRow, HolderLease]:
    """The holder's cumulative use taken in: debt is charged, unused grants of an ended lease come back."""
    lease, started = _noted(known, ask), _started(ask)
    stopped = _has_stopped(ask, known)
    levels: list[int] = []
    granted: list[int] = []
    for level, had, was, now in zip(levels_of(state), vector(lease.granted), vector(lease.used), started, strict=True):
        fallen = max(0, was - now)
        kept = had - fallen
        debt = max(0, now - kept)
        back = fallen + (max(0, kept - now) if stopped and is_live(lease) else 0)
        levels.append(max(0, level + (debt - back) * MILLI))
        granted.append(max(kept, now) if is_live(lease) and not stopped else now)
    lease = replace(lease, granted=amounts(_three(granted)), used=amounts(started))
    return with_levels(_with(state, lease, terms), _three(levels), terms), lease


# -- slots


def _slots(
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
    order = _slot_order(capacity, wants, has, now_ms, terms, waiting)
    share = divide(capacity, wants, order)[ask.holder]
    free = terms.limits.slots - sum(occupied(other) for other in others)
    return max(0, min(share, free))


def _slot_order(
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


# -- requests and tokens


def _enriched(
    state: LeaseStateRow,
    lease: HolderLease,
    ask: LeaseRequested,
    now_ms: int,
    terms: Terms,
    waiting: Mapping[str, Waiting],
) -> tuple[LeaseStateRow, HolderLease]:
    """The holder's fair share of the room under the burst, granted and charged."""
    levels, all_held, own, wants = levels_of(state), held_by_all(state), held(lease), vector(ask.wants)
    parties = _parties(state, ask, now_ms, waiting)
    given: list[int] = []
    for dimension, limit in enumerate(limits_of(terms.limits)):
        missing = max(0, wants[dimension] - own[dimension])
        if limit is None or missing == 0:
            given.append(missing)
            continue
        level, most = levels[dimension], burst(limit)
        room = max(0, most - level) // MILLI
        share = _share(parties, ask.holder, dimension, room)
        if not _is_stuck(ask):
            given.append(min(share, max(0, _fair_hold(parties, ask.holder, dimension, most) - own[dimension])))
            continue
        only_held = level - all_held[dimension] * MILLI < MILLI and level <= most
        too_large = own[dimension] > 0 or missing * MILLI > most
        given.append(missing if too_large and share == room and only_held else share)
    granted = [had + more for had, more in zip(vector(lease.granted), given, strict=True)]
    charged = [level + more * MILLI for level, more in zip(levels, given, strict=True)]
    lease = replace(lease, granted=amounts(_three(granted)))
    return with_levels(_with(state, lease, terms), _three(charged), terms), lease


def _is_stuck(ask: LeaseRequested) -> bool:
    """Nothing is in flight and all it asks for is one call: a call that is larger than what the holder was given.

    When leases alone prop the level up, so that waiting does not help, that call is let through. It is debt: the
    level is over the burst then, and nobody is granted anything before it has drained.
    """
    return ask.slots_in_use == 0 and ask.wants.requests == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Party:
    """A holder that has slots, in the division of a dimension."""

    wants: Vector
    held: Vector
    weight: int
    given_at_ms: Vector


def _parties(
    state: LeaseStateRow, ask: LeaseRequested, now_ms: int, waiting: Mapping[str, Waiting]
) -> dict[str, _Party]:
    """Everybody who may take part, with the asking holder. Weights are the time since a holder was answered: who has
    just had its part leaves the rest to the others.
    """
    parties: dict[str, _Party] = {}
    for lease in state.holders:
        known = waiting.get(lease.holder)
        asking = (lease.holder, lease.epoch) == (ask.holder, ask.epoch)
        if not is_live(lease) or lease.slots == 0 or not (asking or known):
            continue
        waited_ms = LONGEST_WAIT_MS if known is None else now_ms - known.asked_at_ms
        parties[lease.holder] = _Party(
            wants=vector(ask.wants) if asking or known is None else known.wants,
            held=held(lease),
            weight=min(LONGEST_WAIT_MS, max(1, waited_ms)),
            given_at_ms=(0, 0, 0) if known is None else known.given_at_ms,
        )
    return parties


def _share(parties: Mapping[str, _Party], holder: str, dimension: int, room: int) -> int:
    """The holder's part of the room, next to all that miss something."""
    misses = {name: max(0, party.wants[dimension] - party.held[dimension]) for name, party in parties.items()}
    weights = {name: party.weight for name, party in parties.items()}
    return divide(room, misses, _longest_without(parties, dimension), weights)[holder]


def _fair_hold(parties: Mapping[str, _Party], holder: str, dimension: int, burst_level: int) -> int:
    """The most that the holder is given to hold; what one holder hoards props the level up for all."""
    wants = {name: party.wants[dimension] for name, party in parties.items()}
    return divide(burst_level // MILLI, wants, _longest_without(parties, dimension))[holder]


def _longest_without(parties: Mapping[str, _Party], dimension: int) -> list[str]:
    return sorted(parties, key=lambda name: (parties[name].given_at_ms[dimension], name))


# -- the row


def _with(state: LeaseStateRow, lease: HolderLease, terms: Terms) -> LeaseStateRow:
    """The state with this lease in the place of its earlier self; levels stay propped up."""
    others = tuple(h for h in state.holders if (h.holder, h.epoch) != (lease.holder, lease.epoch))
    return with_levels(replace(state, holders=(*others, lease)), levels_of(state), terms)


def _three(values: list[int]) -> Vector:
    return values[0], values[1], values[2]
