"""Why jobs do not go on: what services report of their stalls, as it concerns one job (pure)."""

from collections.abc import Collection, Iterable

from nightmill.api.models import Waiting
from nightmill.kernel.wire.messages import StallReported


def waiting_for(
    stalls: Iterable[StallReported], pools: Collection[str] | None, now_ms: int, *, fresh_ms: int
) -> list[Waiting]:
    """What a job with these pools (None: not known) waits for, the longest wait first.

    A report is repeated while its stall lasts: one older than `fresh_ms` is of a process that is gone.
    """
    concerning = [
        Waiting(service=each.service, reason=each.reason, since_ms=each.since_ms, until_ms=each.until_ms)
        for each in stalls
        if each.reason is not None
        and abs(now_ms - each.reported_at_ms) <= fresh_ms
        and (each.pool is None or pools is None or each.pool in pools)
    ]
    return sorted(concerning, key=lambda each: (each.since_ms, each.service, each.reason))
