"""When a provider's prompt cache is asked to keep the beginning that many prompts share (E12, P4). Pure.

Three manners, by model:
- *marked* (Anthropic): only what a call marks is written and read. A write costs 1.25 times the input for five minutes,
  twice for an hour; a read a tenth or less.
- *marked, or else written whole* (OpenAI from GPT-5.6 on): without a word each call writes all of its prompt, for 1.25
  times the input, up to a place that the next document does not have. So each call says where the shared part ends, or
  that nothing is to be written.
- *by itself* (older models of OpenAI): nothing is to be marked, and a write is free. A key keeps calls with an equal
  beginning together.
Servers of one's own find equal beginnings by themselves.

What is marked but shorter than the model's least length is not cached, and costs nothing more; so lengths are judged
generously. Sources, read 2026-11-30: Anthropic, "Prompt caching" and "Batch processing"; OpenAI, "Prompt caching"; the
types of both official SDKs.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from nightmill.kernel.domain.lifecycle import Lane
from nightmill.kernel.domain.pricing import Rates
from nightmill.kernel.domain.settings import Pool

#: of Claude models, the first name that fits; any other is taken for one of the least
_CLAUDE_LEAST_TOKENS: tuple[tuple[re.Pattern[str], int], ...] = (
    (re.compile(r"claude-(opus-4-[56]|haiku-4-5)\b"), 4_096),
    (re.compile(r"claude-opus-4-7\b|claude-sonnet-4-6\b|claude-3-5-haiku|claude-3-haiku"), 2_048),
    (re.compile(r"claude-(opus-4|sonnet-[45]|3)"), 1_024),
)
_CLAUDE_LEAST_OF_ALL = 512
_GPT = re.compile(r"^(?:ft:)?gpt-(\d+)(?:\.(\d+))?(?![\d.])")
#: the first version of which writes are charged, and breakpoints are taken
_GPT_WITH_BREAKPOINTS = (5, 6)

#: no tokenizer makes more tokens of a text than a third of its bytes, as a rule
_BYTES_PER_TOKEN = 3
#: Anthropic says that 30 to 98 of 100 requests of a batch hit the cache; the middle is what we reckon with
_BULK_HITS_PERCENT = 64


class Lifetime(StrEnum):
    """How long what is written is kept, at least; each use begins it anew."""

    SHORT = "5m"  #: or the provider's only one
    HOUR = "1h"


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheTerms:
    """How a model's cache is asked."""

    least_tokens: int  #: a shorter beginning is not cached
    lifetime: Lifetime  #: what to ask for

    def may_reach(self, text_bytes: int) -> bool:
        """Whether so many bytes may be as many tokens as are needed."""
        return text_bytes >= self.least_tokens * _BYTES_PER_TOKEN


#: of every model of OpenAI that has a cache
OPENAI_CACHE = CacheTerms(least_tokens=1_024, lifetime=Lifetime.SHORT)


def cache_terms(pool: Pool, lane: Lane) -> CacheTerms | None:
    """How calls to a pool mark what they share; None: they do not.

    Requests of a batch run over a longer time than five minutes, so Anthropic is asked for an hour there.
    """
    if not pool.prompt_cache:
        return None
    if pool.provider == "anthropic":
        lifetime = Lifetime.HOUR if lane is Lane.BULK else Lifetime.SHORT
        return CacheTerms(least_tokens=_claude_least_tokens(pool.model), lifetime=lifetime)
    return OPENAI_CACHE if writes_unasked(pool) else None


def writes_unasked(pool: Pool) -> bool:
    """Whether the pool's model writes whole prompts into its cache, and charges for it, unless it is told not to."""
    if pool.provider != "openai":
        return False
    version = _GPT.match(pool.model)
    return version is not None and (int(version[1]), int(version[2] or 0)) >= _GPT_WITH_BREAKPOINTS


def pays(rates: Rates, lifetime: Lifetime, lane: Lane, *, calls: int, at_once: int) -> bool:
    """Whether marking costs less than not marking, when `calls` share a beginning and `at_once` of them may run."""
    write = rates.cache_write_1h if lifetime is Lifetime.HOUR else rates.cache_write
    read_percent = reads_percent(lane, calls=calls, at_once=at_once)
    write_percent = calls * 100 - read_percent
    return write_percent * write + read_percent * rates.cached < calls * 100 * rates.input


def reads_percent(lane: Lane, *, calls: int, at_once: int) -> int:
    """How many of `calls` are expected to find what they share in the cache, times 100; the rest writes it.

    A call that begins before the first response does finds nothing. So of single calls as many write as may run at
    once, and the others read. Of a batch's requests nobody knows how many run at once: all but the first are taken to
    hit as often as Anthropic says.
    """
    if lane is Lane.BULK:
        return max(0, calls - 1) * _BULK_HITS_PERCENT
    return max(0, calls - at_once) * 100


def _claude_least_tokens(model: str) -> int:
    return next((least for name, least in _CLAUDE_LEAST_TOKENS if name.search(model)), _CLAUDE_LEAST_OF_ALL)
