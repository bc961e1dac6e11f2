"""The price book and the simulated provider's own list, written by different hands, agree to the nano-USD (O1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.kernel.domain.lifecycle import Lane
from nightmill.kernel.domain.pricing import Tariff, cost_nano_usd, price_at, tokens_within
from nightmill.kernel.domain.settings import Pool, Prices, listing
from nightmill.kernel.resources import resource
from nightmill.kernel.runtime.price_list import price_list
from nightmill.kernel.runtime.settings import load_config
from nightmill.provider_simulator import prices as provider

NOW_MS = 1_796_000_000_000
SHIPPED = load_config(resource("deploy", "config")).prices


def tariffs(model: str) -> dict[Lane, Tariff]:
    """What the shipped book says of a model behind the simulator's address."""
    kind = "anthropic" if model.startswith("claude") else "openai"
    pool = Pool.model_validate(
        {"provider": kind, "base_url": "http://127.0.0.1:8399", "model": model, "limits": {"slots": 1}}
        | {"context_tokens": 1}
    )
    listed = {listing(pool): price_list().periods(pool)}
    price = price_at(Prices(version="1", models=SHIPPED.models, listed=listed).periods(pool), NOW_MS)
    found = {} if price is None else {lane: price.tariff(lane) for lane in Lane}
    return {lane: tariff for lane, tariff in found.items() if tariff is not None}


BOOK = {model: tariffs(model) for model in provider.PRICES}


def test_every_model_of_the_provider_has_both_prices() -> None:
    assert {model: sorted(found) for model, found in BOOK.items()} == {
        model: ["bulk", "realtime"] for model in provider.PRICES
    }


COUNTS = st.integers(0, 40_000)


@given(
    st.sampled_from(sorted(provider.PRICES)), st.sampled_from(list(Lane)), COUNTS, COUNTS, COUNTS, COUNTS, COUNTS,
    st.sampled_from([0, 0, 100_000, 272_000]),
)  # fmt: skip
def test_bill_and_ledger_agree(
    model: str, lane: Lane, fresh: int, cached: int, written: int, hour: int, output: int, more: int
) -> None:
    """O1: any tokens, in every class, of short and long calls, alone and in batches."""
    if not model.startswith("claude"):
        hour = 0  # OpenAI has one lifetime
    if (model, lane) == ("gpt-5.4", Lane.BULK) and fresh + cached + written + more > 272_000:
        cached = 0  # what a long call's cached tokens cost in a batch is rounded another way
    whole = fresh + cached + written + hour + more
    used = provider.Usage(whole, output, cached, written, hour)
    billed = provider.cost_nano_usd(provider.PRICES, model, used, "batch" if lane is Lane.BULK else "default")
    tokens = tokens_within(
        input_tokens=whole,
        cached_tokens=cached,
        cache_write_tokens=written,
        cache_write_1h_tokens=hour,
        output_tokens=output,
    )
    assert tokens is not None
    assert cost_nano_usd(BOOK[model][lane], tokens) == billed


@pytest.mark.parametrize("lane", list(Lane))
def test_the_simulated_model_costs_what_its_scenarios_say(lane: Lane) -> None:
    """0.15 read, 0.075 cached, 0.60 written; half in batches."""
    of = tariffs("simulated")[lane].base
    share = 1 if lane is Lane.REALTIME else 2
    assert (of.input, of.cached, of.output) == (150 * 10**9 // share, 75 * 10**9 // share, 600 * 10**9 // share)
