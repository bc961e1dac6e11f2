"""Leases never let more in flight, or start more in any window, than a pool takes."""

from typing import TYPE_CHECKING

from nightmill.rate_governor.levels import BURST_MS
from simulation.violation import Violation

if TYPE_CHECKING:
    from simulation.world import World

_INVARIANT = "leases never above capacity"


class Capacity:
    """Looks at every request that arrived at the provider."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._seen = 0
        self._levels: dict[tuple[str, str], tuple[float, int]] = {}

    def look(self) -> None:
        """Requests that arrived since the last look."""
        arrivals = self._world.provider.arrivals
        while self._seen < len(arrivals):
            call, at_ms, running = arrivals[self._seen]
            self._seen += 1
            pool, attempt = call.order.shard.pool, call.order.attempt
            limits = self._world.config.pools[pool].limits
            if running > limits.slots:
                raise Violation(_INVARIANT, f"{running} calls in flight, pool {pool}: {limits.slots}", attempt.item_key)
            self._count(pool, "requests", limits.requests_per_minute, at_ms, 1)
            self._count(pool, "input tokens", limits.input_tokens_per_minute, at_ms, attempt.input_tokens)

    def _count(self, pool: str, what: str, per_minute: int | None, at_ms: int, units: int) -> None:
        """What is started in any window is at most burst + rate x window: a bucket that leaks at the rate holds it.

        One call that does not fit may be let through when nothing else goes on.
        """
        if per_minute is None:
            return
        per_ms = per_minute / 60_000
        level, since_ms = self._levels.get((pool, what), (0.0, at_ms))
        level = max(0.0, level - (at_ms - since_ms) * per_ms) + units
        self._levels[pool, what] = (level, at_ms)
        most = max(1.0, per_ms * BURST_MS)
        if level > most + units:
            raise Violation(_INVARIANT, f"{level:.1f} {what} at once, pool {pool}: {most:.1f}")
