"""When the gateway dies in which run: the same for the same seed, whatever else is run (pure).

Half of the moments are anywhere in the time that the job takes when nobody dies. The others are aimed at what is short:
a create that the provider has just carried out, from before its answer until some time after its row.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

_SHARES = (0.03, 0.97)
_DELAYS_S = (0.0, 3.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One of three: `share` of an undisturbed job's time after submission, `settled` share of the items, or `delay_s`
    after the provider's `create`-th batch.
    """

    share: float | None = None
    settled: float | None = None
    create: int = 0
    delay_s: float = 0.0

    def __str__(self) -> str:
        if self.share is not None:
            return f"{self.share:.0%} of the time"
        if self.settled is not None:
            return f"{self.settled:.0%} settled"
        return f"{self.delay_s:.2f} s after create {self.create}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkPlan:
    """One run; without a moment nobody dies."""

    number: int
    moments: tuple[Moment, ...] = ()

    @property
    def when(self) -> str:
        """As the report has it."""
        return ", ".join(map(str, self.moments)) or "nobody dies"


def bulk_plans(runs: int, seed: int, creates: int) -> Iterator[BulkPlan]:
    """Run 0, in which nobody dies, and `runs` others of a job that needs at least `creates` batches."""
    yield BulkPlan(number=0)
    for number in range(1, runs + 1):
        draw = Random(f"bulk/{seed}/{number}")
        if number % 2:
            moment = Moment(share=draw.uniform(*_SHARES))
        else:
            moment = Moment(create=draw.randint(1, creates), delay_s=draw.uniform(*_DELAYS_S))
        yield BulkPlan(number=number, moments=(moment,))
