"""When a shared beginning is marked for a provider's prompt cache: models, lengths, and the point where it pays."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.kernel.domain.lifecycle import Lane
from nightmill.kernel.domain.pricing import Rates
from nightmill.kernel.domain.prompt_cache import Lifetime, cache_terms, pays, reads_percent, writes_unasked
from nightmill.kernel.domain.settings import Pool

#: of claude-sonnet-5-5, nano-USD a token
SONNET = Rates(input=2_000, cached=100, cache_write=2_500, cache_write_1h=4_000, output=10_000)
#: a cache that costs nothing to write, as it was before GPT-5.6
FREE = Rates(input=100, cached=50, cache_write=100, cache_write_1h=100, output=1)
DEAR = Rates(input=100, cached=100, cache_write=125, cache_write_1h=200, output=1)


def pool(provider: str, model: str, **fields: Any) -> Pool:
    base = {"base_url": "https://host/v1", "limits": {"slots": 4}, "context_tokens": 8_000}
    return Pool.model_validate({**base, "provider": provider, "model": model, **fields})


@pytest.mark.parametrize(
    ("model", "least"),
    [
        ("claude-haiku-4-5-20251001", 4_096),
        ("claude-opus-4-6", 4_096),
        ("claude-opus-4-7", 2_048),
        ("claude-3-5-haiku-latest", 2_048),
        ("claude-opus-4-20250514", 1_024),
        ("claude-opus-4-8", 1_024),
        ("claude-sonnet-5-5", 1_024),
        ("claude-opus-5-5", 512),
        ("claude-fable-5-2", 512),
        ("claude-of-tomorrow", 512),
    ],
)
def test_the_least_length_is_the_models(model: str, least: int) -> None:
    terms = cache_terms(pool("anthropic", model), Lane.REALTIME)
    assert terms is not None
    assert terms.least_tokens == least
    # a third of the bytes is the most tokens that they can be
    assert (terms.may_reach(3 * least), terms.may_reach(3 * least - 1)) == (True, False)


@pytest.mark.parametrize(
    ("provider", "model", "fields", "lane", "lifetime"),
    [
        ("anthropic", "claude-sonnet-5-5", {}, Lane.REALTIME, Lifetime.SHORT),
        ("anthropic", "claude-sonnet-5-5", {}, Lane.BULK, Lifetime.HOUR),
        ("anthropic", "claude-sonnet-5-5", {"prompt_cache": False}, Lane.BULK, None),
        ("openai", "gpt-6-luna", {}, Lane.REALTIME, Lifetime.SHORT),
        ("openai", "gpt-6-luna", {}, Lane.BULK, Lifetime.SHORT),
        ("openai", "gpt-6-luna", {"prompt_cache": False}, Lane.REALTIME, None),
        ("openai", "gpt-5.4-mini", {}, Lane.REALTIME, None),
        ("openai_compatible", "gpt-6-luna", {}, Lane.REALTIME, None),
    ],
)
def test_who_is_asked_to_cache_and_for_how_long(
    provider: str, model: str, fields: dict[str, Any], lane: Lane, lifetime: Lifetime | None
) -> None:
    """E12: an hour for batches at Anthropic, whose requests run over more than five minutes."""
    terms = cache_terms(pool(provider, model, **fields), lane)
    assert (None if terms is None else terms.lifetime) == lifetime


@pytest.mark.parametrize(
    ("model", "unasked"),
    [
        ("gpt-5.6", True),
        ("gpt-5.6-luna", True),
        ("gpt-6-luna", True),
        ("gpt-6.1-sol-2026-10-01", True),
        ("ft:gpt-6-luna:acme::1", True),
        ("gpt-10", True),
        ("gpt-5.5-pro", False),
        ("gpt-5", False),
        ("gpt-4o-mini", False),
        ("gpt-4.1-mini", False),
        ("o4-mini", False),
        ("my-gpt-6", False),
    ],
)
def test_which_models_write_whole_prompts_unasked(model: str, unasked: bool) -> None:
    assert writes_unasked(pool("openai", model)) is unasked
    assert not writes_unasked(pool("openai_compatible", model))


@pytest.mark.parametrize(
    ("rates", "lane", "calls", "at_once", "pays_"),
    [
        # one write at 1.25 and one read at 0.05 cost 1.3 inputs instead of 2
        (SONNET, Lane.REALTIME, 2, 1, True),
        (SONNET, Lane.REALTIME, 1, 1, False),
        # as many calls as run at once all write
        (SONNET, Lane.REALTIME, 8, 8, False),
        # 8 writes, n - 8 reads: 10 + 0.05 (n - 8) < n from n = 10.1 on
        (SONNET, Lane.REALTIME, 10, 8, False),
        (SONNET, Lane.REALTIME, 11, 8, True),
        (SONNET, Lane.REALTIME, 5, 100, False),
        # 64 of 100 of the other n - 1 read at 0.05, the rest writes at 2: 2 n - 1.248 (n - 1) < n from n = 5.03 on
        (SONNET, Lane.BULK, 5, 1, False),
        (SONNET, Lane.BULK, 6, 1, True),
        (SONNET, Lane.BULK, 50_000, 1, True),
        # a write that costs no more pays as soon as anything is read
        (FREE, Lane.REALTIME, 9, 8, True),
        (FREE, Lane.REALTIME, 8, 8, False),
        # a read that costs no less never does
        (DEAR, Lane.REALTIME, 1_000_000, 1, False),
        (DEAR, Lane.BULK, 1_000_000, 1, False),
    ],
)
def test_where_marking_pays(rates: Rates, lane: Lane, calls: int, at_once: int, pays_: bool) -> None:
    """E12, P4: five minutes for single calls, an hour in batches, at the prices of the book."""
    lifetime = Lifetime.HOUR if lane is Lane.BULK else Lifetime.SHORT
    assert pays(rates, lifetime, lane, calls=calls, at_once=at_once) is pays_


@given(st.sampled_from(list(Lane)), st.integers(1, 10_000), st.integers(1, 500), st.integers(0, 300))
def test_more_calls_never_make_it_dearer(lane: Lane, calls: int, at_once: int, more: int) -> None:
    lifetime = Lifetime.HOUR if lane is Lane.BULK else Lifetime.SHORT
    assert 0 <= reads_percent(lane, calls=calls, at_once=at_once) < calls * 100
    if pays(SONNET, lifetime, lane, calls=calls, at_once=at_once):
        assert pays(SONNET, lifetime, lane, calls=calls + more, at_once=at_once)
