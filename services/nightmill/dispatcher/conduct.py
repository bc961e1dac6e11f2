"""How tenants' prompts fare with the policies of providers, and how slowly a tenant goes on that fares badly (E8).

A provider may close the account of whoever sends it forbidden prompts again and again, and with it the work of all
tenants. So 20 filtered ones among a tenant's last 100 answers in a partition slow the tenant down there: to 10 items a
minute for a quarter of an hour, which tell whether it goes on; if it does for twice as long, up to four hours. Every
filtered prompt goes to a person in any case. In memory only: after a restart the next answers tell.
"""

from collections import deque
from dataclasses import dataclass, field

from nightmill.kernel.wire.messages import Failure

#: answers that are remembered, and so many filtered among them slow a tenant down
ANSWERS, MOST_FILTERED = 100, 20
SLOW_ITEMS, _SLOW_MS = 10, 60_000
_FIRST_MS, _LONGEST_MS = 900_000, 14_400_000
#: how the gateway calls a prompt, and an answer, that a provider's policy filtered; a model's own refusal is none
_FILTERED = frozenset({"prompt_filtered", "content_filter"})
#: told to people while it lasts
SLOWED = (
    f"providers' policies filtered {MOST_FILTERED} of the last {ANSWERS} or fewer prompts of tenant {{tenant}}; its "
    f"items go on at {SLOW_ITEMS} a minute, so that no account is closed: take such documents out"
)


@dataclass(slots=True)
class _Fare:
    """One tenant's."""

    answers: deque[bool] = field(default_factory=lambda: deque(maxlen=ANSWERS))  #: whether each was filtered
    times: int = 0  #: slowed in a row
    since_ms: int = 0
    until_ms: int = 0
    taken: int = 0  #: items since `taken_from_ms`, while it is slow
    taken_from_ms: int = 0


class Conduct:
    """Of all tenants in one partition."""

    def __init__(self) -> None:
        self._fares: dict[str, _Fare] = {}
        self._now_ms = 0

    def turn(self, now_ms: int) -> None:
        """A tick begins."""
        self._now_ms = now_ms

    def answered(self, dataset_id: str, failure: Failure | None, *, minted_at_ms: int) -> bool:
        """A call came back with an answer or with `failure`; whether that slows the tenant down from now on.

        Calls that were on their way when it was slowed down say nothing new.
        """
        filtered = failure is not None and failure.signal in _FILTERED
        if not filtered and (failure is not None or not self._fares):
            return False
        tenant = tenant_of(dataset_id)
        fare = self._fares.get(tenant)
        if fare is None:
            if not filtered:
                return False
            fare = self._fares[tenant] = _Fare()
        if minted_at_ms < fare.since_ms:
            return False
        fare.answers.append(filtered)
        if sum(fare.answers) < MOST_FILTERED:
            if len(fare.answers) == ANSWERS:
                fare.times = 0
            return False
        fare.answers.clear()
        fare.since_ms = self._now_ms
        fare.until_ms = self._now_ms + min(_FIRST_MS << min(fare.times, 16), _LONGEST_MS)
        fare.times += 1
        return True

    def most(self, batch_id: str, wanted: int) -> int:
        """How many items of a batch may be dispatched now, of so many that the pool has room for."""
        fare = self._fares.get(tenant_of(batch_id)) if self._fares else None
        if fare is None or self._now_ms >= fare.until_ms:
            return wanted
        if self._now_ms >= fare.taken_from_ms + _SLOW_MS:
            fare.taken, fare.taken_from_ms = 0, self._now_ms
        return min(wanted, SLOW_ITEMS - fare.taken)

    def took(self, batch_id: str, items: int) -> None:
        """So many are dispatched."""
        fare = self._fares.get(tenant_of(batch_id)) if self._fares else None
        if fare is not None:
            fare.taken += items

    def slowed(self) -> dict[str, int]:
        """Tenants that are slow now, and until when."""
        return {tenant: fare.until_ms for tenant, fare in self._fares.items() if self._now_ms < fare.until_ms}


def tenant_of(name: str) -> str:
    """The tenant of a dataset, job or batch: what its id begins with."""
    return name.partition(".")[0]
