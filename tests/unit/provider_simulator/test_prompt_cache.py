"""The simulated prompt caches: what a request may find, what it writes, from when on and until when."""

from __future__ import annotations

from typing import Any

import pytest

from nightmill.provider_simulator.anthropic.read import read_body as read_message
from nightmill.provider_simulator.asks import Ask
from nightmill.provider_simulator.errors import ApiError
from nightmill.provider_simulator.generate import Work, work
from nightmill.provider_simulator.openai.read import read_body
from nightmill.provider_simulator.operations import Operation
from nightmill.provider_simulator.prices import Usage
from nightmill.provider_simulator.prompt_cache import Cached, Prefix, PromptCache, prefixes_of
from nightmill.provider_simulator.scenario import Dialect, Scenario

OPENAI = Scenario(dialect=Dialect.OPENAI)
FIVE_MINUTES_MS = 300_000
LONG = "x" * 4 * 1_500  # 1,500 tokens
BREAKPOINT = {"prompt_cache_breakpoint": {"mode": "explicit"}}


def prefix(name: str, tokens: int, ttl_s: int = 300, *, charged: bool = True) -> Prefix:
    return Prefix(name.encode(), tokens, ttl_s, charged)


SHORT, WHOLE = prefix("a", 1_024), prefix("b", 1_500)


def use(cache: PromptCache, *prefixes: Prefix, at_ms: int = 0, begins_ms: int | None = None) -> Cached:
    return cache.use(prefixes, now_ms=at_ms, begins_ms=at_ms if begins_ms is None else begins_ms)


def test_what_was_written_is_read_until_its_time_is_over() -> None:
    """E12: each use begins the five minutes anew."""
    cache = PromptCache()
    assert use(cache, SHORT) == Cached(written=1_024)
    assert use(cache, SHORT, at_ms=FIVE_MINUTES_MS - 1) == Cached(read=1_024)
    assert use(cache, SHORT, at_ms=2 * FIVE_MINUTES_MS - 2) == Cached(read=1_024)
    assert use(cache, SHORT, at_ms=3 * FIVE_MINUTES_MS - 2) == Cached(written=1_024)


def test_an_hour_is_an_hour() -> None:
    cache, hour = PromptCache(), prefix("a", 2_000, 3_600)
    assert use(cache, hour) == Cached(written_1h=2_000)
    assert use(cache, hour, at_ms=3_599_999) == Cached(read=2_000)


def test_calls_at_once_all_write() -> None:
    """E12: an entry is there once the first response has begun."""
    cache = PromptCache()
    for at_ms in (0, 100, 199):
        assert use(cache, SHORT, at_ms=at_ms, begins_ms=at_ms + 200) == Cached(written=1_024)
    assert use(cache, SHORT, at_ms=200, begins_ms=400) == Cached(read=1_024)


def test_the_longest_is_read_and_the_rest_is_written() -> None:
    cache = PromptCache()
    use(cache, SHORT)
    assert use(cache, SHORT, WHOLE) == Cached(read=1_024, written=476)
    assert use(cache, SHORT, WHOLE) == Cached(read=1_500)
    assert cache.use((SHORT,), now_ms=0, begins_ms=0, found=False) == Cached(written=1_024)


def test_a_free_write_is_not_told() -> None:
    cache, free = PromptCache(), prefix("a", 1_024, charged=False)
    assert [use(cache, free), use(cache, free)] == [Cached(), Cached(read=1_024)]


def test_a_prefix_is_its_models_and_its_texts_own() -> None:
    ends = [(4_096, 300), (6_000, 300)]
    one = prefixes_of("m", LONG, ends, least_tokens=1_024)
    assert [(each.tokens, each.ttl_s) for each in one] == [(1_024, 300), (1_500, 300)]
    assert one[0] == prefixes_of("m", LONG[:4_096] + "y", ends[:1], least_tokens=1)[0]
    assert one[1] != prefixes_of("m", LONG[:-1] + "y", ends, least_tokens=1)[1]
    assert one[0] != prefixes_of("n", LONG, ends, least_tokens=1)[0]
    assert prefixes_of("m", LONG, ends, least_tokens=1_025) == one[1:]


def chat(model: str, *parts: tuple[str, bool], **fields: Any) -> Ask:
    content = [{"type": "text", "text": text, **(BREAKPOINT if marked else {})} for text, marked in parts]
    data = {"model": model, "messages": [{"role": "user", "content": content}], **fields}
    ask = read_body(Operation.CHAT, data, OPENAI)
    assert isinstance(ask, Ask)
    return ask


EXPLICIT = {"prompt_cache_options": {"mode": "explicit"}}


@pytest.mark.parametrize(
    ("model", "parts", "fields", "tokens"),
    [
        # by itself, in steps of 128 tokens from 1,024 on
        ("gpt-5.4-mini", [(LONG, False)], {}, [1_024, 1_152, 1_280, 1_408]),
        ("gpt-5.4-mini", [(LONG[:4_095], False)], {}, []),
        # at breakpoints: its own at the end of the newest message, unless there are to be none but the request's
        ("gpt-6-luna", [(LONG, False)], {}, [1_500]),
        ("gpt-6-luna", [(LONG, False)], EXPLICIT, []),
        ("gpt-6-luna", [(LONG, True), ("yyy", False)], EXPLICIT, [1_500]),
        ("gpt-6-luna", [(LONG, True), ("yyy", False)], {}, [1_500, 1_501]),
        ("gpt-6-luna", [("short", True), ("yyy", False)], EXPLICIT, []),
        # the latest four
        ("gpt-6-luna", [(LONG, True)] * 6, EXPLICIT, [4_501, 6_001, 7_501, 9_002]),
    ],
)
def test_what_openai_may_cache(
    model: str, parts: list[tuple[str, bool]], fields: dict[str, Any], tokens: list[int]
) -> None:
    assert [each.tokens for each in chat(model, *parts, **fields).prefixes] == tokens


def message(*blocks: tuple[str, str | None], model: str = "claude-sonnet-5-5", **fields: Any) -> Ask | ApiError:
    content = [
        {"type": "text", "text": text, **({"cache_control": {"type": "ephemeral", "ttl": ttl}} if ttl else {})}
        for text, ttl in blocks
    ]
    data = {"model": model, "max_tokens": 9, "messages": [{"role": "user", "content": content}], **fields}
    return read_message(Operation.MESSAGES, data, OPENAI, "2026-10-21")


@pytest.mark.parametrize(
    ("model", "tokens", "cached"),
    [
        ("claude-haiku-4-5", 4_095, False),
        ("claude-haiku-4-5", 4_096, True),
        ("claude-opus-4-7", 2_047, False),
        ("claude-opus-4-7", 2_048, True),
        ("claude-sonnet-5-5", 1_023, False),
        ("claude-sonnet-5-5", 1_024, True),
        ("claude-opus-5-5", 511, False),
        ("claude-opus-5-5", 512, True),
    ],
)
def test_anthropic_caches_what_is_marked_and_long_enough(model: str, tokens: int, cached: bool) -> None:
    """E12: a shorter beginning is not cached, and nobody says so."""
    ask = message(("x" * 4 * tokens, "1h"), ("end", None), model=model)
    assert isinstance(ask, Ask)
    assert [(each.tokens, each.ttl_s) for each in ask.prefixes] == ([(tokens, 3_600)] if cached else [])


def test_anthropics_marks() -> None:
    """One on the request is one on its last block; there may be four."""
    ask = message((LONG, None), cache_control={"type": "ephemeral"})
    assert isinstance(ask, Ask)
    assert [(each.tokens, each.ttl_s) for each in ask.prefixes] == [(1_500, 300)]
    unmarked = message((LONG, None))
    assert isinstance(unmarked, Ask)
    assert unmarked.prefixes == ()
    refused = message(*[("x", "5m")] * 5)
    assert isinstance(refused, ApiError)
    assert (refused.status, refused.message) == (
        400,
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    )


def usages(scenario: Scenario, count: int = 40) -> list[Usage]:
    """Of calls one after another that share a marked beginning."""
    ask, cache = chat("gpt-6-luna", (LONG, True), ("end", False), **EXPLICIT), PromptCache()
    found = []
    for number in range(count):
        job = Work(Operation.CHAT, ask, number.to_bytes(16, "big"), 1, None)
        reply = work(job, scenario, cache, now_ms=number * 1_000)
        assert reply.usage is not None
        found.append(reply.usage)
    return found


def test_a_share_of_the_calls_finds_what_is_there() -> None:
    """As batches do at Anthropic: 30 to 98 of 100, whichever they are."""
    always = usages(OPENAI)
    assert [(use.cached_tokens, use.cache_write_tokens) for use in always] == [(0, 1_500)] + [(1_500, 0)] * 39
    some = usages(OPENAI.model_copy(update={"prompt_cache_hits": 0.5}))
    assert 10 < sum(use.cached_tokens > 0 for use in some) < 30
    assert {use.cached_tokens + use.cache_write_tokens for use in some} == {1_500}
    off = usages(OPENAI.model_copy(update={"prompt_cache": False}))
    assert {use.cached_tokens + use.cache_write_tokens for use in off} == {0}


def test_a_servers_own_cache_is_not_told() -> None:
    assert {use.cached_tokens for use in usages(Scenario(dialect=Dialect.VLLM))} == {0}
