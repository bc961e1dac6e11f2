"""What a seed draws of the bulk lane: whether at all, in which shape, and a random subset of its own faults.

All of it comes from a `Random` of its own: a seed that draws no bulk is what it was before there was any.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from random import Random
from typing import Any

_SHARE = 0.25  #: of all seeds


@dataclass(slots=True)
class BulkMix:
    """Faults of one seed, per opportunity; 0 is off. A request is one of those that an errand makes."""

    # processes
    crash_in_errand: float = 0.0  #: before or after one of its requests, or when it is carried out
    crash_in_request: float = 0.0  #: as it leaves: it arrives all the same, some seconds later
    pause_before_errand: float = 0.0  #: SIGSTOP
    sleep_in_request: float = 0.0  #: SIGSTOP after the last look at the clock
    # connections
    not_connected: float = 0.0
    lost_request: float = 0.0  #: the connection breaks, nothing arrives
    late_request: float = 0.0  #: the connection breaks, the request arrives some seconds later
    lost_answer: float = 0.0  #: carried out, then the connection breaks or nothing comes within the deadline
    server_error: float = 0.0  #: 500 or 503, nothing was done
    error_after: float = 0.0  #: 500, and it was done
    rate_limit: float = 0.0
    # files
    upload_damaged: float = 0.0
    too_large: float = 0.0  #: 413 to an upload or a create
    cut_download: float = 0.0
    # batches
    late_list: float = 0.0  #: missing from lists for a while
    token_limit: float = 0.0
    bare_refusal: float = 0.0  #: fails in validation, nobody says why
    faulty_line: float = 0.0  #: fails in validation for one of its lines
    expired: float = 0.0
    forgetful: float = 0.0  #: one that expires or is cancelled lists nothing of what did not run
    stuck: float = 0.0  #: does not end until it is cancelled
    late_cancel: float = 0.0  #: a cancel is taken and the batch completes all the same
    # lines
    line_missing: float = 0.0
    line_twice: float = 0.0
    line_unknown: float = 0.0  #: one of nobody
    line_failed: float = 0.0  #: no response


_STRONG: dict[str, float] = {
    "crash_in_errand": 0.05,
    "crash_in_request": 0.03,
    "pause_before_errand": 0.04,
    "sleep_in_request": 0.04,
    "error_after": 0.15,
    "late_list": 0.4,
    "token_limit": 0.25,
    "bare_refusal": 0.25,
    "faulty_line": 0.25,
    "expired": 0.25,
    "forgetful": 0.5,
    "stuck": 0.2,
    "late_cancel": 0.5,
    "line_missing": 0.1,
    "line_twice": 0.15,
    "line_unknown": 0.1,
    "line_failed": 0.1,
}
_USUAL = 0.15
FILES, INLINE = "files", "inline"


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkShape:
    """What the bulk jobs of one seed look like."""

    pools: tuple[str, ...]  #: of each job
    alone: bool  #: the seed's realtime jobs are left out
    items: int
    max_requests: int
    enqueued_tokens: int | None
    pace: int  #: how long the provider takes for a batch


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkDraw:
    """The bulk side of one seed."""

    random: Random
    mix: BulkMix
    shape: BulkShape


def draw_bulk(seed: int) -> BulkDraw | None:
    """Shape and faults, or None for a seed without bulk jobs."""
    random = Random(f"bulk lane {seed}")
    return _drawn(random) if random.random() < _SHARE else None


@dataclass(frozen=True, slots=True)
class BulkFocus:
    """These faults of the bulk lane alone, and often, on jobs of this shape."""

    faults: Mapping[str, float]
    shape: Mapping[str, Any] = field(default_factory=dict)

    def draw(self, seed: int) -> BulkDraw:
        random = Random(f"bulk lane {seed}")
        drawn = _drawn(random)
        return BulkDraw(random=random, mix=BulkMix(**self.faults), shape=replace(drawn.shape, **self.shape))


def _drawn(random: Random) -> BulkDraw:
    return BulkDraw(random=random, mix=_draw_mix(random), shape=_draw_shape(random))


def _draw_mix(random: Random) -> BulkMix:
    mix = BulkMix()
    density = random.choice((0.15, 0.3, 0.5))
    for each in fields(BulkMix):
        if random.random() < density:
            setattr(mix, each.name, _STRONG.get(each.name, _USUAL) * random.choice((0.3, 1.0)))
    return mix


def _draw_shape(random: Random) -> BulkShape:
    return BulkShape(
        pools=tuple(random.choice((FILES, INLINE)) for _ in range(random.choice((1, 1, 2)))),
        alone=random.random() < 0.5,
        items=random.randint(2, 16),
        max_requests=random.choice((3, 8, 50)),
        enqueued_tokens=random.choice((None, None, 400, 1_500)),
        pace=random.choice((1, 4, 15)),
    )
