"""What work of the dispatcher waits for, told to people while nothing goes on (O1)."""

from collections import Counter
from collections.abc import Collection, Iterator

from nightmill.dispatcher.backlog import Backlog
from nightmill.dispatcher.conduct import SLOWED
from nightmill.kernel.runtime.service import Stall


def stalls(backlogs: Collection[Backlog]) -> list[Stall]:
    """Of all open partitions together."""
    return [*_slowed(backlogs), *_waiting(backlogs)]


def _slowed(backlogs: Collection[Backlog]) -> Iterator[Stall]:
    """Tenants that are slow because providers filter what they send."""
    slowed: dict[str, int] = {}
    for backlog in backlogs:
        for tenant, until_ms in backlog.conduct.slowed().items():
            slowed[tenant] = max(until_ms, slowed.get(tenant, 0))
    for tenant, until_ms in slowed.items():
        yield Stall(subject=f"tenant {tenant}", reason=SLOWED.format(tenant=tenant), until_ms=until_ms)


def _waiting(backlogs: Collection[Backlog]) -> Iterator[Stall]:
    """Pools of which all items that are left wait for another try."""
    waiting = sum((backlog.waiting for backlog in backlogs), Counter[str]())
    at_work = {pool for backlog in backlogs for pool in backlog.at_work()}
    for pool, count in waiting.items():
        if pool not in at_work:
            due_ms = min(backlog.next_due_ms for backlog in backlogs if backlog.waiting[pool])
            items = "1 item waits" if count == 1 else f"{count} items wait"
            reason = f"pool {pool}: {items} for another try after a failure"
            yield Stall(subject=f"retries of {pool}", pool=pool, reason=reason, until_ms=due_ms)
