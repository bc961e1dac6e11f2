"""Guards of leases, as in `simulation.guards`.

Some matter for a part of a second only, so their faults meet there: time goes in small steps, and a gateway is stopped
before a send until shortly before its lease ends, while its loop sleeps on and nobody renews it (`pause_to_end`).
"""

from simulation import removals
from simulation.guards import ONE_SLOT, Guard
from simulation.mix import Focus

#: a rate that is reached before the slots are, and work enough that it is used up all the time
_BUSY = {
    "slots": 12,
    "items": 60,
    "jobs": 3,
    "equal_jobs": False,
    "requests_per_minute": 60,
    "input_tokens_per_minute": None,
    "tight_budget": False,
    "tempo_ms": 10,
    "turns": 1200,
    "idle_ms": (50, 250),
    "leaps": 0.0,
}
#: time that passes in small steps, so that somebody comes in the part of a second in which a lease ends
_CLOSELY = {**ONE_SLOT, "jobs": 2, "attempts": 4, "tempo_ms": 5, "turns": 3600, "idle_ms": (20, 50), "leaps": 0.0}

LEASE_GUARDS: tuple[Guard, ...] = (
    Guard(
        name="lease-end-before-send",
        where="provider_gateway.slots.Slots.let_go: until_ms",
        protects="a call that a stopped process was about to make is not made after its lease: others have its slot",
        off=removals.lease_end_before_send,
        focus=Focus((), {**ONE_SLOT, "tempo_ms": 25, "idle_ms": (50, 250)}, {"pause_in_call": 0.05, "hang": 0.6}),
        invariants=("leases never above capacity",),
        seeds=(2,),
    ),
    Guard(
        name="held-until-sent",
        where="provider_gateway.slots.Slots.unsent",
        protects="a level does not drain of calls that wait for a slot: they would arrive beside what is granted then",
        off=removals.held_until_sent,
        focus=Focus((), _BUSY, {"slow_disk": 0.3}),
        invariants=("leases never above capacity",),
        seeds=(10,),
    ),
    Guard(
        name="slots-until-call-deadline",
        where="rate_governor.pool.Terms: call_deadline_ms",
        protects="slots of a lapsed lease stay taken as long as its calls may last",
        off=removals.slots_until_call_deadline,
        focus=Focus((), _CLOSELY, {"pause_to_end": 0.3, "hang": 0.5}),
        invariants=("leases never above capacity",),
        seeds=(3,),
    ),
    Guard(
        name="lease-time-to-live",
        where="rate_governor.grants.grant: ttl_ms",
        protects="what a holder may still start is not granted to others",
        off=removals.lease_time_to_live,
        focus=Focus((), _CLOSELY, {"pause_to_end": 0.3, "hang": 0.5}),
        invariants=("leases never above capacity",),
        seeds=(1,),
    ),
    Guard(
        name="lease-guard-time",
        where="rate_governor.pool.GUARD_MS",
        protects="a holder whose clock is slow, and whose requests leave late, starts nothing beside its successor",
        off=removals.lease_guard_time,
        focus=Focus((), _CLOSELY, {"pause_to_end": 0.15, "hang": 0.7, "slew": 1.0, "slow_send": 0.5, "lost_ask": 0.3}),
        invariants=("leases never above capacity",),
        seeds=(3,),
    ),
    Guard(
        name="no-time-at-take-over",
        where="rate_governor.pool.take_over",
        protects="a governor whose clock is ahead of its predecessor's neither drains a level nor ends a lease early",
        off=removals.no_time_at_take_over,
        focus=Focus((), {**_BUSY, "turns": 2400, "movable": ("rate_governor",)}, {"move": 0.003, "skew": 1.0}),
        invariants=("leases never above capacity",),
        seeds=(2,),
    ),
)
