"""How requests and tokens are given: each holder its fair share of the room between a level and the burst."""

from collections.abc import Mapping
from dataclasses import dataclass

from nightmill.kernel.wire.messages import HolderLease, LeaseRequested, LeaseStateRow
from nightmill.rate_governor.levels import MILLI, Vector, burst, levels_of, limits_of, vector
from nightmill.rate_governor.pool import Terms, held, held_by_all, is_live
from nightmill.rate_governor.shares import divide
from nightmill.rate_governor.waiting import Waiting

#: A holder that did not come back for its part for longer than this gains nothing by waiting more: it may be gone.
LONGEST_WAIT_MS = 1_000


def amounts_for(
    state: LeaseStateRow,
    lease: HolderLease,
    ask: LeaseRequested,
    now_ms: int,
    terms: Terms,
    waiting: Mapping[str, Waiting],
) -> Vector:
    """What the holder is given by dimension; the state already holds its lease as it is without that."""
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
    return given[0], given[1], given[2]


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
