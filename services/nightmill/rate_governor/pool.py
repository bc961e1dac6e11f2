"""The state of a pool as time goes by: levels drain, leases end, their slots come back.

A `LeaseStateRow` holds levels and the time left, never a moment: after a take-over no time has passed. What a field of
`HolderLease` means here:

- `granted`: cumulative, charged to the levels. `used`: what the holder has started, that is its `used` + `reserved` at
  its newest ask. `granted - used` is *held*: it may be started at any moment while the lease lives.
- `slots`: what the newest grant allows. `slots_in_use`: calls that may be in flight all the same, because the holder
  may not know that grant yet. The greater of the two is *occupied*.
- `remaining_ms`: above 0 the lease lives (ttl and guard). At 0 it has lapsed: nothing more starts, what was held is
  gone without a refund, but calls may be in flight for the call deadline; then the entry goes and its slots are free.

A level never drains below what is held. So whatever is started in any interval, and whenever the holders choose to
start what they hold, is at most burst + rate × interval.
"""

from dataclasses import dataclass

from nightmill.kernel.domain.settings import Pool, PoolLimits
from nightmill.kernel.wire.messages import HolderLease, LeaseStateRow
from nightmill.kernel.wire.values import replace
from nightmill.rate_governor.levels import MILLI, Vector, drained, levels_of, limits_of, vector

TTL_MS = 4_000
#: Added to the ttl by the governor alone: clocks of two machines do not run equally fast.
GUARD_MS = 1_000
#: A holder that came back under a newer epoch is a new process: the connections of the old one are closed, and its
#: calls are taken to be in flight for this long at most.
ORPHANED_MS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """On what terms a pool is leased."""

    limits: PoolLimits
    call_deadline_ms: int
    ttl_ms: int = TTL_MS
    guard_ms: int = GUARD_MS

    @classmethod
    def of(cls, pool: Pool) -> "Terms":
        return cls(limits=pool.limits, call_deadline_ms=int(pool.call_deadline * 1000))


def fresh(pool: str, now_ms: int) -> LeaseStateRow:
    """A pool that nobody has used."""
    return LeaseStateRow(
        pool=pool,
        requests_level=0,
        input_tokens_level=0,
        output_tokens_level=0,
        holders=(),
        paused_ms=0,
        updated_at_ms=now_ms,
    )


def take_over(state: LeaseStateRow, now_ms: int) -> LeaseStateRow:
    """The row of another owner, by this one's clock: no time has passed since it was written.

    Some has, so levels are rather too high and leases end rather too late, never the other way round. A lease needs
    no more than the row gives it: a grant that its holder sees stands there with the whole of its ttl and guard.
    """
    return replace(state, updated_at_ms=now_ms)


def advance(state: LeaseStateRow, now_ms: int, terms: Terms) -> LeaseStateRow:
    """The state at `now_ms`, which the same owner's clock shows as the state's `updated_at_ms`.

    A clock that was set back lets no time pass.
    """
    while state.updated_at_ms < now_ms:
        # What a lease holds props the levels up until the very moment it lapses, so time goes from lapse to lapse.
        lapse_ms = min((h.remaining_ms for h in state.holders if is_live(h)), default=now_ms)
        until_ms = min(now_ms, state.updated_at_ms + lapse_ms)
        state = _elapsed(state, until_ms, terms)
    return replace(state, updated_at_ms=now_ms)


def is_live(lease: HolderLease) -> bool:
    return lease.remaining_ms > 0


def held(lease: HolderLease) -> Vector:
    """What the holder may still start, by dimension."""
    if not is_live(lease):
        return 0, 0, 0
    granted, used = vector(lease.granted), vector(lease.used)
    return (
        max(0, granted[0] - used[0]),
        max(0, granted[1] - used[1]),
        max(0, granted[2] - used[2]),
    )


def occupied(lease: HolderLease) -> int:
    """The most calls that this lease may have in flight."""
    return max(lease.slots, lease.slots_in_use)


def held_by_all(state: LeaseStateRow) -> Vector:
    each = [held(lease) for lease in state.holders]
    return sum(h[0] for h in each), sum(h[1] for h in each), sum(h[2] for h in each)


def with_levels(state: LeaseStateRow, levels: Vector, terms: Terms) -> LeaseStateRow:
    """The state with these levels, but none below what is held; a dimension without a limit has no level."""
    floors = held_by_all(state)
    requests, input_tokens, output_tokens = (
        0 if limit is None else max(level, floor * MILLI)
        for level, floor, limit in zip(levels, floors, limits_of(terms.limits), strict=True)
    )
    return replace(state, requests_level=requests, input_tokens_level=input_tokens, output_tokens_level=output_tokens)


def _elapsed(state: LeaseStateRow, until_ms: int, terms: Terms) -> LeaseStateRow:
    """One step in which no live lease lapses but at its end."""
    since_ms = state.updated_at_ms
    requests, input_tokens, output_tokens = (
        0 if limit is None else drained(level, limit, since_ms, until_ms)
        for level, limit in zip(levels_of(state), limits_of(terms.limits), strict=True)
    )
    propped = with_levels(state, (requests, input_tokens, output_tokens), terms)
    aged = (replace(h, remaining_ms=h.remaining_ms - (until_ms - since_ms)) for h in state.holders)
    return replace(
        propped,
        holders=tuple(h for h in aged if h.remaining_ms > -terms.call_deadline_ms),
        updated_at_ms=until_ms,
    )
