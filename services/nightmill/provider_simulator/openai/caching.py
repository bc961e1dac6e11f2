"""Which beginnings of a prompt OpenAI's cache knows: by itself, or at breakpoints from GPT-5.6 on.

Before GPT-5.6 every prompt of 1,024 tokens is cached in steps of 128, for nothing. From then on it is cached exactly at
breakpoints: those of its parts, and at the end of the newest message unless the request says that there are none but
its own; each write is charged. SDK 3.57 and "Prompt caching", read 2026-11-30.
"""

from __future__ import annotations

import re

from pydantic import JsonValue

from nightmill.provider_simulator.asks import Object
from nightmill.provider_simulator.prompt_cache import Prefix, prefixes_of

LEAST_TOKENS = 1024
_STEP_TOKENS = 128
_BYTES_PER_TOKEN = 4
_TTL_S = 1800
_MOST_WRITTEN = 4
_GPT = re.compile(r"^(?:ft:)?gpt-(\d+)(?:\.(\d+))?(?![\d.])")


def cached_prefixes(data: Object, pieces: list[tuple[str, bool]], prompt: str) -> tuple[Prefix, ...]:
    """Beginnings of `prompt`, which is the texts of `pieces` line after line; each says whether it is marked."""
    total = len(prompt) if prompt.isascii() else len(prompt.encode("utf-8", "surrogatepass"))
    if total <= (LEAST_TOKENS - 1) * _BYTES_PER_TOKEN:
        return ()
    model = str(data.get("model"))
    if not has_breakpoints(model):
        first, step = LEAST_TOKENS * _BYTES_PER_TOKEN, _STEP_TOKENS * _BYTES_PER_TOKEN
        ends = [(end, _TTL_S) for end in range(first, total + 1, step)]
        return prefixes_of(model, prompt, ends, least_tokens=LEAST_TOKENS, charged=False)
    marked, total = _ends(pieces)
    options = data.get("prompt_cache_options")
    if not (isinstance(options, dict) and options.get("mode") == "explicit"):
        marked = [*marked[-(_MOST_WRITTEN - 1) :], total]
    ends = [(end, _TTL_S) for end in sorted(set(marked[-_MOST_WRITTEN:]))]
    return prefixes_of(model, prompt, ends, least_tokens=LEAST_TOKENS)


def has_breakpoints(model: str) -> bool:
    """Whether the model is GPT-5.6 or later."""
    version = _GPT.match(model)
    return version is not None and (int(version[1]), int(version[2] or 0)) >= (5, 6)


def is_breakpoint(part: JsonValue) -> bool:
    """Whether a part of a message is marked."""
    mark = part.get("prompt_cache_breakpoint") if isinstance(part, dict) else None
    return isinstance(mark, dict) and mark.get("mode") == "explicit"


def _ends(pieces: list[tuple[str, bool]]) -> tuple[list[int], int]:
    """Where marked pieces end in the bytes of the prompt, and where the last piece does."""
    marked, at = [], -1
    for text, is_marked in pieces:
        at += 1 + len(text.encode("utf-8", "surrogatepass"))
        if is_marked:
            marked.append(at)
    return marked, max(at, 0)
