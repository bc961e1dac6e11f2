"""What keeps a service from going on, told to people as `stall-reported`; the api shows it beside the job that waits.

A stall is told when it has lasted a moment, again when its words change and every few seconds while it lasts, so that a
reader can tell one of a dead process; and once when it is over. Losing or repeating a report does no harm, so they
leave outside the transactions, which may be just what does not go on.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from nightmill.kernel.runtime.service import Stall
from nightmill.kernel.wire.messages import StallReported

_TELL_AFTER_MS = 1_000  #: short waits are part of the work
_OVER_AFTER_MS = 2_000  #: not met for so long
_REPEAT_MS = 10_000
_APART_MS = 1_000
REST_MS = 1_000  #: between two tries of what was found away
#: a report is believed for so long
FRESH_MS = 3 * _REPEAT_MS


@dataclass(slots=True, kw_only=True)
class _Lasting:
    stall: Stall
    since_ms: int
    seen_ms: int
    told_ms: int | None = None
    told: Stall | None = None


class Waits:
    """What ticks of a service wait for, by (partition, subject). Each is tried again after a moment, not every tick."""

    def __init__(self) -> None:
        self._met: dict[tuple[int, str], tuple[str, int]] = {}

    def met(self, partition: int, subject: str, error: Exception, now_ms: int) -> None:
        self._met[partition, subject] = (str(error), now_ms)

    def rests(self, partition: int, subject: str, now_ms: int) -> bool:
        """Whether it was met less than a moment ago."""
        met = self._met.get((partition, subject))
        return met is not None and abs(now_ms - met[1]) < REST_MS

    def over(self, partition: int, subject: str | None = None) -> None:
        """It went well, or the partition was closed (`subject` None: all of it)."""
        for key in [key for key in self._met if key[0] == partition and subject in (None, key[1])]:
            del self._met[key]

    def stalls(self) -> list[Stall]:
        return [Stall(subject=subject, reason=reason) for (_, subject), (reason, _) in self._met.items()]


class Stalls:
    """The stalls of one instance. Times may jump: a clock that is set back only delays a report."""

    def __init__(self, service: str, instance: str) -> None:
        self._service, self._instance = service, instance
        self._lasting: dict[str, _Lasting] = {}

    def note(self, stall: Stall, now_ms: int) -> None:
        """It was met just now."""
        lasting = self._lasting.get(stall.subject)
        if lasting is None:
            self._lasting[stall.subject] = _Lasting(stall=stall, since_ms=now_ms, seen_ms=now_ms)
        else:
            lasting.stall, lasting.seen_ms = stall, now_ms

    def due(self, met: Iterable[Stall], now_ms: int) -> list[StallReported]:
        """Take in what the service itself knows of, and return what is to be told now."""
        for stall in met:
            self.note(stall, now_ms)
        reports = []
        for subject, lasting in list(self._lasting.items()):
            if abs(now_ms - lasting.seen_ms) > _OVER_AFTER_MS:
                del self._lasting[subject]
                if lasting.told is not None:
                    reports.append(self._report(subject, lasting, None, now_ms))
            elif _is_due(lasting, now_ms):
                lasting.told, lasting.told_ms = lasting.stall, now_ms
                reports.append(self._report(subject, lasting, lasting.stall, now_ms))
        return reports

    def _report(self, subject: str, lasting: _Lasting, stall: Stall | None, now_ms: int) -> StallReported:
        return StallReported(
            stall_id=f"{self._service}@{self._instance}/{subject}",
            service=self._service,
            instance=self._instance,
            pool=lasting.stall.pool,
            reason=None if stall is None else stall.reason,
            since_ms=lasting.since_ms,
            until_ms=None if stall is None else stall.until_ms,
            reported_at_ms=now_ms,
        )


def _is_due(lasting: _Lasting, now_ms: int) -> bool:
    if lasting.told_ms is None:
        return abs(lasting.seen_ms - lasting.since_ms) >= _TELL_AFTER_MS
    age_ms = abs(now_ms - lasting.told_ms)
    return age_ms >= _REPEAT_MS or (lasting.told != lasting.stall and age_ms >= _APART_MS)
