"""How the bulk lane stands with a pool: what a submission may hold, and whether the provider wants to be left alone."""

import logging

from nightmill.kernel.domain.failures import FailureClass
from nightmill.kernel.domain.settings import BulkLimits
from nightmill.kernel.runtime.service import Stall
from nightmill.kernel.wire.messages import Failure
from nightmill.provider_gateway.bulk.errands import Blocked, Ended, Refused, Unsure
from nightmill.provider_gateway.bulk.limits import Size, configured, grown, shrunk
from nightmill.provider_gateway.failures import ROWS, Pause, Signal
from nightmill.provider_gateway.health import HEALTHY, PoolHealth, after

log = logging.getLogger(__name__)

_STOP = Pause(30_000, 600_000)


class Standing:
    """Of one pool, in all partitions of this process. In memory: a restart finds out again."""

    def __init__(self, pool: str, limits: BulkLimits) -> None:
        self.pool = pool
        self._limit = configured(limits)
        self.most = self._limit
        self.refusals = 0  #: batches that were refused as a whole, in a row
        self._health: PoolHealth = HEALTHY
        self._seen: Failure | None = None
        self._stopped_until_ms = 0  #: no batch is made, for every one would be refused
        self._why: Failure | None = None

    def is_paused(self, now_ms: int) -> bool:
        """Whether to ask nothing of the provider now."""
        return now_ms < self._health.paused_until_ms

    def is_stopped(self, now_ms: int) -> bool:
        """Whether to make no further batch now; those that were made go on."""
        return now_ms < self._stopped_until_ms

    def learn(self, seen: Failure | None, *, started_at_ms: int, now_ms: int) -> None:
        """Take in how a request ended; None: well."""
        before = self._health
        self._health = after(before, seen, started_at_ms=started_at_ms, now_ms=now_ms)
        if seen is not None and self._health.strikes > before.strikes:
            self._seen = seen
            log.log(
                logging.ERROR if seen.failure_class is FailureClass.ACCOUNT else logging.WARNING,
                "bulk lane of a pool waits",
                extra={
                    "action": "bulk_lane_waits",
                    "pool": self.pool,
                    "signal": seen.signal,
                    "reason": seen.message,
                    "for_ms": self._health.paused_until_ms - now_ms,
                },
            )

    def learn_from(self, ended: Ended, now_ms: int) -> None:
        """Take in how an errand ended. What is away on this machine says nothing of the provider."""
        match ended.outcome:
            case Refused(failure=found) | Unsure(failure=found):
                self.learn(found, started_at_ms=ended.started_at_ms, now_ms=now_ms)
            case Blocked():
                pass
            case _:
                self.learn(None, started_at_ms=ended.started_at_ms, now_ms=now_ms)

    def stop(self, why: Failure, now_ms: int) -> None:
        """Batches are refused for what no other batch would mend: one tries it out now and then."""
        pause = ROWS[Signal(why.signal)].pause or _STOP
        wait_ms = min(pause.first_ms << min(max(self.refusals - 1, 0), 16), pause.longest_ms)
        self._stopped_until_ms, self._why = now_ms + wait_ms, why
        extra = {"action": "bulk_lane_stopped", "pool": self.pool, "signal": why.signal, "reason": why.message}
        log.error("bulk lane of a pool stopped", extra=extra | {"for_ms": wait_ms})

    def taken(self) -> None:
        """A submission was taken: as much as before, and more, may go out."""
        self.refusals, self._why = 0, None
        self.most = grown(self.most, self._limit)

    def too_much(self, refused: Size, *, in_tokens: bool) -> None:
        """A submission was refused for its size."""
        self.most = shrunk(self.most, refused, in_tokens=in_tokens)
        log.warning(
            "submissions get smaller",
            extra={
                "action": "submissions_shrunk",
                "pool": self.pool,
                "requests": self.most.requests,
                "bytes": self.most.bytes,
                "tokens": self.most.tokens,
            },
        )

    def stall(self) -> Stall | None:
        """Why nothing goes out, where the provider is the reason."""
        if self._why is not None:
            return self._stall(f"bulk lane is stopped: {self._why.message}", self._stopped_until_ms)
        if self._health.strikes and self._seen is not None:
            return self._stall(f"bulk lane: {self._seen.message}", self._health.paused_until_ms)
        return None

    def _stall(self, reason: str, until_ms: int) -> Stall:
        subject = f"bulk lane of {self.pool}"
        return Stall(subject=subject, pool=self.pool, reason=f"pool {self.pool}, {reason}", until_ms=until_ms)
