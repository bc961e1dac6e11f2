"""What a seed is made of: swarm testing, where each seed has a random subset of all faults, so that rare ones meet.

Probabilities are per opportunity (a commit, a call, a scheduler's turn) while faults last; afterwards all are zero.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from random import Random
from typing import Any

from simulation.bulk.mix import BulkDraw, BulkFocus

MOVABLE = ("provider_gateway", "rate_governor", "publisher", "dispatcher", "planner", "ledger")


@dataclass(slots=True)
class Mix:
    """Faults of one seed; 0 is off."""

    # processes
    crash: float = 0.0  #: a process is killed between two events
    crash_in_handler: float = 0.0
    crash_before_commit: float = 0.0
    crash_in_commit: float = 0.0  #: its transaction stays open at the broker
    crash_after_commit: float = 0.0
    crash_in_publish: float = 0.0  #: between stage, manifest, pointer and result
    power_cut: float = 0.0  #: all processes at once, unsynced writes lost
    restart: float = 0.0  #: an orderly one
    pause: float = 0.0  #: SIGSTOP
    skew: float = 0.0  #: clocks of hosts differ by seconds
    slew: float = 0.0  #: clocks of gateways' hosts run too fast or too slow
    pause_in_step: float = 0.0  #: SIGSTOP between a decision and its commit
    pause_in_call: float = 0.0  #: SIGSTOP between two of a call's steps
    pause_to_end: float = 0.0  #: SIGSTOP before a send, until shortly before its permit ends; its loop sleeps on
    slow_disk: float = 0.0  #: a write of the outbox takes seconds, and the loop goes on
    slow_send: float = 0.0  #: a request leaves up to half a second after its last look at the clock
    stuck: float = 0.0  #: a loop stands still for a while, its other threads go on
    move: float = 0.0  #: to another host: a new instance, an empty disk; the old one may come back as a zombie
    # log
    broker_away: float = 0.0  #: it answers nobody for a while; commits that it was about to answer among them
    late_view: float = 0.0  #: a process sees nothing new of others' topics for a while
    backlog: float = 0.0  #: others' items lie before the dispatcher, the planner releases nothing for a while
    unknown_commit: float = 0.0
    repeat_record: float = 0.0  #: a committed record stands in the log twice
    rewind: float = 0.0  #: an input position is set back
    lost_ask: float = 0.0  #: send_now is fire and forget
    # surroundings
    state_disk_full: float = 0.0
    staging_away: float = 0.0
    blobs_away: float = 0.0
    clickhouse_away: float = 0.0
    stranger: float = 0.0  #: another installation publishes into the same folder
    # the provider
    wrong: float = 0.0
    fenced: float = 0.0
    cut: float = 0.0
    refusal: float = 0.0
    rejected: float = 0.0  #: a valid answer that a rule refuses or sends to review
    rate_limit: float = 0.0
    server_error: float = 0.0
    broken: float = 0.0  #: billed, then the connection breaks
    hang: float = 0.0  #: billed, no answer within the deadline
    not_connected: float = 0.0
    account: float = 0.0
    spoilt_body: float = 0.0
    # people
    command: float = 0.0  #: cancel, resume and approve at odd moments


_STRONG: dict[str, float] = {
    "crash": 0.004,
    "crash_in_handler": 0.004,
    "crash_before_commit": 0.03,
    "crash_in_commit": 0.03,
    "crash_after_commit": 0.03,
    "crash_in_publish": 0.2,
    "power_cut": 0.0015,
    "restart": 0.003,
    "pause": 0.003,
    "skew": 1.0,
    "slew": 1.0,
    "pause_in_step": 0.01,
    "pause_in_call": 0.005,
    "pause_to_end": 0.005,
    "slow_disk": 0.05,
    "slow_send": 0.25,
    "stuck": 0.003,
    "move": 0.002,
    "broker_away": 0.001,
    "late_view": 0.004,
    "backlog": 0.003,
    "unknown_commit": 0.03,
    "repeat_record": 0.05,
    "rewind": 0.003,
    "lost_ask": 0.2,
    "state_disk_full": 0.001,
    "staging_away": 0.002,
    "blobs_away": 0.02,
    "clickhouse_away": 0.003,
    "stranger": 0.2,
    "command": 0.004,
}
_LATE = frozenset({"pause_to_end", "slow_disk"})
_PROVIDER = 0.25  #: the most that one kind of provider's fault takes of all calls


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the line and its jobs look like in one seed."""

    jobs: int
    items: int
    slots: int
    requests_per_minute: int | None
    input_tokens_per_minute: int | None
    tempo_ms: int  #: mean time between two events
    commit_every_ms: int
    attempts: int
    repairs: int
    partial: bool
    completion: float
    tight_budget: bool
    equal_jobs: bool
    lag_mark: int
    turns: int  #: scheduler's turns with faults
    idle_ms: tuple[int, ...] = (50, 250, 1_000, 3_000)  #: how long a turn takes in which nobody has anything to do
    movable: tuple[str, ...] = MOVABLE  #: of what an instance may move to another host
    leaps: float = 0.005  #: how often seconds pass between two events
    columns: tuple[str, ...] = field(default=())


def draw_mix(random: Random, late: Random) -> Mix:
    """A random subset of the faults, each somewhere below its strongest.

    `late` draws faults that were thought of later, so that seeds stay what they were but for those.
    """
    mix = Mix()
    density = random.choice((0.15, 0.3, 0.5, 0.8))
    for each in fields(Mix):
        source = late if each.name in _LATE else random
        if source.random() < density:
            setattr(mix, each.name, _STRONG.get(each.name, _PROVIDER) * source.choice((0.3, 1.0)))
    return mix


@dataclass(frozen=True, slots=True)
class Focus:
    """These faults alone, and often, on a line of this shape: for showing that one guard is what survives them."""

    faults: tuple[str, ...]
    shape: Mapping[str, Any] = field(default_factory=dict)  #: fields of `Shape` in place of the seed's
    weights: Mapping[str, float] = field(default_factory=dict)  #: of faults that take another one than the usual
    bulk: BulkFocus | None = None  #: with bulk jobs, and these faults of theirs

    def mix(self) -> Mix:
        usual = {name: min(1.0, 4 * _STRONG.get(name, _PROVIDER / 2)) for name in self.faults}
        return Mix(**{**usual, **self.weights})

    def draw_bulk(self, seed: int) -> BulkDraw | None:
        return None if self.bulk is None else self.bulk.draw(seed)


def draw_shape(random: Random) -> Shape:
    return Shape(
        jobs=random.choice((1, 1, 2, 2, 3)),
        items=random.randint(3, 20),
        slots=random.randint(1, 6),
        requests_per_minute=random.choice((None, None, 60, 240, 1200)),
        input_tokens_per_minute=random.choice((None, None, 2_400, 12_000)),
        tempo_ms=random.choice((4, 10, 25, 60)),
        commit_every_ms=random.choice((0, 50, 300)),
        attempts=random.randint(1, 4),
        repairs=random.randint(0, 1),
        partial=random.random() < 0.5,
        completion=random.choice((0.5, 0.9, 1.0)),
        tight_budget=random.random() < 0.25,
        equal_jobs=random.random() < 0.6,
        lag_mark=random.choice((5, 1000)),
        turns=random.choice((300, 600, 1200)),
        columns=random.choice(((), ("text",))),
    )
