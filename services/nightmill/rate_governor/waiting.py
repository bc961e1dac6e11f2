"""What the governor remembers of asks, beyond the leases: who waits for how much, and since when."""

from dataclasses import dataclass

from nightmill.kernel.wire.messages import HolderLease, LeaseRequested
from nightmill.rate_governor.levels import Vector, vector


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What a holder asked for last. It makes the division fair and nothing else, so a take-over may lose it."""

    wants: Vector
    wants_slots: int
    asked_at_ms: int  #: by the governor's clock
    turn_since_ms: int  #: when it got its first slot, or lost its last one
    given_at_ms: Vector  #: when it was given something last, by dimension


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
