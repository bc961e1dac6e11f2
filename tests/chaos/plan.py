"""What happens in which run, and when: the same for the same seed, whatever else is run (pure).

A run is one job and one fault. Its moment is a share of the job's items that have an outcome, or a time after the
submission, which is where planning is still under way.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from random import Random

SERVICES = ("planner", "dispatcher", "provider_gateway", "validator", "publisher", "rate_governor", "ledger", "api")
BROKER = "broker"
SUPERVISOR = "supervisor"
GATEWAY = "provider_gateway"


class Kind(StrEnum):
    """What is done to the processes."""

    KILL = "kill"  # SIGKILL, of one or of two at once; the supervisor starts them again
    POWER_CUT = "power cut"  # SIGKILL of everything, the supervisor and the broker too; then `up` on the same home
    PAUSE = "pause"  # SIGSTOP, and SIGCONT long after the session ran out: nobody took over meanwhile
    ZOMBIE = "zombie"  # the same, and a second instance took over


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What befalls whom."""

    kind: Kind
    victims: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As the report has it."""
        return " ".join([self.kind.value, " + ".join(self.victims)]).strip()

    @property
    def group(self) -> str:
        """The line of the summary: all pairs are one kind."""
        return "kill two at once" if len(self.victims) > 1 else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When: `share` of the items settled, or, where it is None, `after_s` after the submission."""

    share: float | None = None
    after_s: float = 0.0

    def __str__(self) -> str:
        return f"{self.after_s:.2f} s after submission" if self.share is None else f"{self.share:.0%} settled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run."""

    number: int
    fault: Fault
    moment: Moment


_PAIR = Fault(kind=Kind.KILL, victims=("", ""))
#: one after the other; who is killed together is drawn for each run
CYCLE = (
    *(Fault(kind=Kind.KILL, victims=(name,)) for name in SERVICES),
    _PAIR,
    Fault(kind=Kind.KILL, victims=(BROKER,)),
    Fault(kind=Kind.POWER_CUT),
    Fault(kind=Kind.ZOMBIE, victims=(GATEWAY,)),
    Fault(kind=Kind.ZOMBIE, victims=("dispatcher",)),
    Fault(kind=Kind.ZOMBIE, victims=("rate_governor",)),
    _PAIR,
    Fault(kind=Kind.PAUSE, victims=(GATEWAY,)),
    Fault(kind=Kind.PAUSE, victims=("dispatcher",)),
    Fault(kind=Kind.PAUSE, victims=("rate_governor",)),
)
#: what the test suite has time for
SHORT_CYCLE = (
    Fault(kind=Kind.KILL, victims=(GATEWAY,)),
    Fault(kind=Kind.KILL, victims=("publisher",)),
    _PAIR,
    Fault(kind=Kind.KILL, victims=(BROKER,)),
    Fault(kind=Kind.ZOMBIE, victims=("dispatcher",)),
    Fault(kind=Kind.POWER_CUT),
)

_EARLY = 0.15
_EARLIEST_S, _LATEST_S = 0.0, 1.2
_SHARES = (0.03, 0.97)
#: whoever stands still for half a minute should have something to miss
_SHARES_OF_PAUSES = (0.03, 0.5)


def plans(runs: int, seed: int, cycle: tuple[Fault, ...] = CYCLE) -> Iterator[Plan]:
    """`runs` plans, numbered from 1; number and seed decide everything of a plan."""
    for number in range(1, runs + 1):
        draw = Random(f"{seed}/{number}")
        fault = cycle[(number - 1) % len(cycle)]
        if fault is _PAIR:
            fault = Fault(kind=Kind.KILL, victims=tuple(draw.sample(SERVICES, 2)))
        yield Plan(number=number, fault=fault, moment=_moment(fault, draw))


def _moment(fault: Fault, draw: Random) -> Moment:
    if fault.kind in (Kind.PAUSE, Kind.ZOMBIE):
        return Moment(share=draw.uniform(*_SHARES_OF_PAUSES))
    # a planner has done its part long before half of the items are settled
    if fault.victims == ("planner",) or draw.random() < _EARLY:
        return Moment(after_s=draw.uniform(_EARLIEST_S, _LATEST_S))
    return Moment(share=draw.uniform(*_SHARES))
