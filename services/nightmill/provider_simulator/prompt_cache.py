"""The provider's prompt cache: which prefixes it has seen, and until when it remembers them."""

from __future__ import annotations

from nightmill.provider_simulator.asks import Prefix

MAX_PREFIXES = 100_000


class PromptCache:
    """Prefixes by digest; a use extends the life of an entry, and the oldest ones make room for new ones."""

    def __init__(self) -> None:
        self._until_ms: dict[bytes, int] = {}

    def seen(self, prefix: Prefix, *, now_ms: int) -> bool:
        """Whether the prefix is there; it is from now on."""
        until_ms = self._until_ms.pop(prefix.digest, 0)
        self._until_ms[prefix.digest] = now_ms + prefix.ttl_s * 1000
        if len(self._until_ms) > MAX_PREFIXES:
            del self._until_ms[next(iter(self._until_ms))]
        return until_ms > now_ms
