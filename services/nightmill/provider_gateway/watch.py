"""What calls teach about pools: keeps each pool's health, and tells people when one is paused, stopped or mistaken."""

import logging

from nightmill.kernel.domain.failures import FailureClass
from nightmill.kernel.runtime.service import Stall
from nightmill.kernel.wire.messages import AttemptAnswered, Failure
from nightmill.kernel.wire.values import replace
from nightmill.provider_gateway.health import HEALTHY, PoolHealth, after, judged

log = logging.getLogger(__name__)


class PoolWatch:
    """Health by pool, of all partitions together."""

    def __init__(self) -> None:
        self._health: dict[str, PoolHealth] = {}
        self._struck: dict[str, Failure] = {}  #: the failure behind a pool's last pause
        self._served: set[tuple[str, str]] = set()

    def health(self, pool: str) -> PoolHealth:
        return self._health.get(pool, HEALTHY)

    def stalls(self) -> list[Stall]:
        """Pools that are paused or stopped, or on trial after that."""
        return [
            Stall(subject=f"pool {pool}", pool=pool, reason=_words(pool, seen), until_ms=health.paused_until_ms)
            for pool, seen in self._struck.items()
            if (health := self.health(pool)).strikes
        ]

    def learn(self, answered: AttemptAnswered, served_model: str | None, now_ms: int) -> AttemptAnswered:
        """Take a finished call in; returns its message with the failure seen in the light of the pool's history."""
        pool, before = answered.pool, self.health(answered.pool)
        seen = judged(before, answered.failure, now_ms=now_ms)
        started_at_ms = answered.ended_at_ms if answered.started_at_ms is None else answered.started_at_ms
        health = after(before, seen, started_at_ms=started_at_ms, now_ms=now_ms)
        if health is not before:
            self._health[pool] = health
            if health.strikes > before.strikes and seen is not None:
                self._struck[pool] = seen
                _report_pause(pool, seen, health, now_ms)
        if served_model is not None and served_model != answered.model:
            self._report_model(answered, served_model)
        return answered if seen is answered.failure else replace(answered, failure=seen)

    def _report_model(self, answered: AttemptAnswered, served: str) -> None:
        """Once per pool and name: some servers take any model's name and answer with the one they have."""
        if (answered.pool, served) in self._served:
            return
        self._served.add((answered.pool, served))
        extra = {"action": "other_model_served", "pool": answered.pool, "asked": answered.model, "served": served}
        log.warning("the provider names another model than was asked for", extra=extra)


def _words(pool: str, seen: Failure) -> str:
    state = "stopped" if seen.failure_class is FailureClass.ACCOUNT else "paused"
    return f"pool {pool} is {state}: {seen.message}"


def _report_pause(pool: str, seen: Failure, health: PoolHealth, now_ms: int) -> None:
    account = seen.failure_class is FailureClass.ACCOUNT
    log.log(
        logging.ERROR if account else logging.WARNING,
        "pool stopped" if account else "pool paused",
        extra={
            "action": "pool_stopped" if account else "pool_paused",
            "pool": pool,
            "signal": seen.signal,
            "reason": seen.message,
            "for_ms": health.paused_until_ms - now_ms,
            "strikes": health.strikes,
        },
    )
