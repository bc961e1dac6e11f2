"""The provider's prompt cache: the beginnings of prompts that it has, from when on, and until when (E12).

An entry can be read once the response of the call that wrote it has begun: calls that run at once all miss, and each is
charged for writing. A use begins the entry's life anew. Below a model's least length nothing is cached, without a word.
Sources, read 2026-11-30: Anthropic and OpenAI, "Prompt caching". Not modelled: that Anthropic also looks for entries at
up to 20 blocks before a mark, and that OpenAI's calls may reach a machine without the entry.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

MAX_PREFIXES = 100_000
LEAST_TOKENS = 512  # no model caches less
_BYTES_PER_TOKEN = 4


class Prefix(NamedTuple):
    """A beginning of the prompt that may be read from the cache, and is written into it otherwise."""

    digest: bytes
    tokens: int
    ttl_s: int
    charged: bool = True  # writing it costs more than reading it afresh, and is reported


class Cached(NamedTuple):
    """Tokens of a prompt by what the cache did with them."""

    read: int = 0
    written: int = 0
    written_1h: int = 0


class _Entry(NamedTuple):
    from_ms: int
    until_ms: int
    ttl_ms: int


NOTHING = Cached()
HOUR_S = 3_600


def prefixes_of(
    model: str, prompt: str, ends: Iterable[tuple[int, int]], *, least_tokens: int, charged: bool = True
) -> tuple[Prefix, ...]:
    """Beginnings of `prompt` that end after so many bytes and live so many seconds, shortest first.

    Those below `least_tokens` are left out. A model has a cache of its own.
    """
    found: list[Prefix] = []
    text, at, sha = prompt.encode("utf-8", "surrogatepass"), 0, hashlib.sha256(f"{model}\0".encode())
    for end, ttl_s in sorted(ends):
        sha.update(text[at:end])
        at = end
        tokens = -(-end // _BYTES_PER_TOKEN)
        if tokens >= least_tokens:
            found.append(Prefix(sha.copy().digest()[:16], tokens, ttl_s, charged))
    return tuple(found)


class PromptCache:
    """Prefixes by digest; the one that was not used for longest makes room for new ones."""

    def __init__(self) -> None:
        self._entries: dict[bytes, _Entry] = {}

    def use(self, prefixes: tuple[Prefix, ...], *, now_ms: int, begins_ms: int, found: bool = True) -> Cached:
        """Read the longest that is there, if it is `found`, and write the longer ones, from `begins_ms` on."""
        read = written = written_1h = 0
        for prefix in reversed(prefixes):
            if found and self._is_there(prefix, now_ms):
                read = prefix.tokens
                break
        reached = read
        for prefix in prefixes:
            if prefix.tokens <= read:
                self._keep(prefix, now_ms, now_ms)
                continue
            if prefix.charged and prefix.ttl_s >= HOUR_S:
                written_1h += prefix.tokens - reached
            elif prefix.charged:
                written += prefix.tokens - reached
            reached = prefix.tokens
            self._keep(prefix, now_ms, begins_ms)
        return Cached(read, written, written_1h)

    def _is_there(self, prefix: Prefix, now_ms: int) -> bool:
        entry = self._entries.get(prefix.digest)
        return entry is not None and entry.from_ms <= now_ms < entry.until_ms

    def _keep(self, prefix: Prefix, now_ms: int, from_ms: int) -> None:
        known = self._entries.pop(prefix.digest, None)
        ttl_ms = prefix.ttl_s * 1000
        if known is not None and now_ms < known.until_ms:
            from_ms, ttl_ms = min(from_ms, known.from_ms), max(ttl_ms, known.ttl_ms)
        self._entries[prefix.digest] = _Entry(from_ms, max(from_ms, now_ms) + ttl_ms, ttl_ms)
        if len(self._entries) > MAX_PREFIXES:
            del self._entries[next(iter(self._entries))]
