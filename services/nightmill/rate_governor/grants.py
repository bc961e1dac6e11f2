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

from nightmill.kernel.wire.messages import HolderLease, LeaseGranted, LeaseRequested, LeaseStateRow
from nightmill.kernel.wire.values import replace
from nightmill.rate_governor.levels import MILLI, Vector, amounts, levels_of, vector
from nightmill.rate_governor.pool import ORPHANED_MS, Terms, advance, is_live, occupied, with_levels
from nightmill.rate_governor.rooms import amounts_for
from nightmill.rate_governor.slots import slots_for
from nightmill.rate_governor.waiting import Waiting


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
    slots = slots_for(state, lease, ask, now_ms, terms, waiting)
    lease = replace(lease, slots=slots, remaining_ms=terms.ttl_ms + terms.guard_ms)
    state = _with(state, lease, terms)
    if slots > 0:
        state, lease = _charged(state, lease, amounts_for(state, lease, ask, now_ms, terms, waiting), terms)
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


def _charged(
    state: LeaseStateRow, lease: HolderLease, given: Vector, terms: Terms
) -> tuple[LeaseStateRow, HolderLease]:
    """The grant made: added to what the holder was granted, and to the levels."""
    granted = [had + more for had, more in zip(vector(lease.granted), given, strict=True)]
    levels = [level + more * MILLI for level, more in zip(levels_of(state), given, strict=True)]
    lease = replace(lease, granted=amounts(_three(granted)))
    return with_levels(_with(state, lease, terms), _three(levels), terms), lease


# -- the row


def _with(state: LeaseStateRow, lease: HolderLease, terms: Terms) -> LeaseStateRow:
    """The state with this lease in the place of its earlier self; levels stay propped up."""
    others = tuple(h for h in state.holders if (h.holder, h.epoch) != (lease.holder, lease.epoch))
    return with_levels(replace(state, holders=(*others, lease)), levels_of(state), terms)


def _three(values: list[int]) -> Vector:
    return values[0], values[1], values[2]
