"""What a batch may cost: its budget and what was outstanding when it was seen to be reached (E10).

A run of a batch (a generation) may spend its budget, or what it had spent before when that is more. The row in which
the publisher's sum passes that is the moment when it is reached; a dispatcher that must know of it starts nothing more.
So all that the batch's calls cost is at most the base and what was not accounted for just before that moment: calls
under way, and settlements under way to the publisher. A call whose cost nobody knows costs what is reserved for it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nightmill.kernel.domain.ids import attempt_id
from nightmill.kernel.wire.messages import PublicationRow, ShardAttempt
from simulation.looks import has_seen, looks_of_all
from simulation.violation import Violation

if TYPE_CHECKING:
    from simulation.world import World


@dataclass(slots=True)
class _Run:
    """One generation of a batch."""

    generation: int
    base: int  #: what may be spent, in nano-USD
    accounted: int  #: the publisher's newest sum that is not above it
    looks: dict[str, int] | None = None  #: of each process when it was reached


@dataclass(slots=True)
class _Spent:
    """The calls of one batch, in the order in which they were minted."""

    run: _Run
    calls: list[str] = field(default_factory=list)
    late: set[str] = field(default_factory=set)  #: minted by one that had to know


class Spending:
    """Follows every batch with a budget."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._batches: dict[str, _Spent] = {}

    def accounted(self, row: PublicationRow) -> None:
        """The publisher's row of a batch."""
        budget = None if row.sealed is None else row.sealed.budget_nano_usd
        if budget is None:
            return
        cost = row.totals.cost_nano_usd
        known = self._batches.get(row.batch_id)
        if known is None or known.run.generation != row.generation:
            run = _Run(generation=row.generation, base=max(budget, cost), accounted=cost)
            self._batches[row.batch_id] = _Spent(run, [] if known is None else known.calls)
        elif cost <= known.run.base:
            known.run.accounted = cost
        elif known.run.looks is None:
            known.run.looks = looks_of_all(self._world)

    def minted(self, actor: str, attempt: ShardAttempt) -> None:
        """A new attempt that a batch pays."""
        known = self._batches.get(attempt.batch_id)
        if known is None:
            return
        key = f"{attempt_id(attempt.item_key, attempt.ordinal)}-{attempt.minted_at_ms}"
        known.calls.append(key)
        if known.run.looks is not None and has_seen(self._world, actor, known.run.looks):
            known.late.add(key)

    def check(self, cost_of: Callable[[str], int]) -> None:
        """At the end. `cost_of`: what a call cost, or may have cost, by its key."""
        for batch_id, known in self._batches.items():
            run = known.run
            if run.looks is None:
                continue
            spent = sum(map(cost_of, known.calls))
            outstanding = sum(cost_of(key) for key in known.calls if key not in known.late) - run.accounted
            if spent > run.base + outstanding:
                text = f"{batch_id} spent {spent}, its budget is {run.base} and {outstanding} was outstanding"
                raise Violation("spend never above budget", text)
