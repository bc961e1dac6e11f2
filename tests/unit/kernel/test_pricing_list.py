"""The price list that travels with the code says what genai-prices says, and never more (P4)."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from genai_prices.data import providers
from genai_prices.types import ModelInfo, Provider, Usage

from nightmill.kernel.domain.lifecycle import Lane
from nightmill.kernel.domain.pricing import Price, Tokens, cost_atto_usd, price_at
from nightmill.kernel.domain.settings import Pool, Prices
from nightmill.kernel.resources import resource
from nightmill.kernel.runtime.price_list import price_list, price_list_file
from nightmill.kernel.runtime.price_list_update import text
from nightmill.kernel.runtime.settings import load_config

LISTED: dict[str, Any] = json.loads(price_list_file().read_text(encoding="utf-8"))["providers"]
ADDRESS = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "mistral": "https://api.mistral.ai/v1",
    "google": "https://generativelanguage.googleapis.com/v1beta/openai",
}
MOMENTS = [datetime(2026, 10, 1, 12, tzinfo=UTC), datetime(2026, 11, 30, 12, tzinfo=UTC),
           datetime(2027, 1, 2, 12, tzinfo=UTC)]  # fmt: skip
CALLS = [
    Tokens(fresh_input=1_000, cached=400, cache_write=300, cache_write_1h=200, output=77),
    Tokens(fresh_input=150_000, cached=100_000, cache_write=20_000, cache_write_1h=1_999, output=1_001),
    Tokens(fresh_input=272_001, output=3),
    Tokens(fresh_input=7, output=0),
]


def pool(model: str, base_url: str = ADDRESS["openai"], provider: str = "openai_compatible") -> Pool:
    settings = {"provider": provider, "base_url": base_url, "model": model, "limits": {"slots": 1}}
    return Pool.model_validate(settings | {"context_tokens": 1})


def price(of: Pool, at: datetime = MOMENTS[1]) -> Price | None:
    return price_at(price_list().periods(of), int(at.timestamp() * 1000))


def of_genai(provider: Provider, model: ModelInfo, tokens: Tokens, at: datetime, context: dict[str, str]) -> Decimal:
    """What the package itself makes of a call."""
    usage = Usage(
        input_tokens=tokens.input,
        cache_read_tokens=tokens.cached,
        cache_write_tokens=tokens.cache_write + tokens.cache_write_1h,
        cache_write_1h_tokens=tokens.cache_write_1h,
        output_tokens=tokens.output,
    )
    told = model.calc_price(usage, provider, genai_request_timestamp=at, price_context=context)
    return told.total_price


@pytest.mark.parametrize("name", sorted(ADDRESS))
def test_every_listed_model_costs_what_genai_prices_says(name: str) -> None:
    """O1: by token class, by length, by day, in batches and tiers."""
    (provider,) = (each for each in providers if each.id == name)
    models = {model.id: model for model in provider.models}
    compared = 0
    for entry in LISTED[name]["models"]:
        model = models[entry["id"]]
        for at in MOMENTS:
            found = next(
                (each for each in reversed(entry["periods"]) if (each["from"] or "") <= at.date().isoformat()), None
            )
            listed = price_at(_periods(entry), int(at.timestamp() * 1000))
            assert (found is None or not found["prices"]) == (listed is None or not listed.tariffs)
            for kind, tariff in ({} if listed is None else listed.tariffs).items():
                context = {"processing": kind} if kind == "batch" else {"service_tier": kind}
                for tokens in CALLS:
                    asked = {} if kind == "standard" else context
                    expected = Fraction(of_genai(provider, model, tokens, at, asked))
                    assert Fraction(cost_atto_usd(tariff.rates(tokens.input), tokens), 10**18) == expected, entry["id"]
                    compared += 1
    assert compared > 100


def _periods(entry: dict[str, Any]) -> Any:
    from nightmill.kernel.runtime.price_list import periods_of

    return periods_of(entry["periods"])


def test_the_file_is_what_the_package_gives() -> None:
    assert price_list_file().read_text(encoding="utf-8") == text(), "run price_list_update"


@pytest.mark.parametrize(
    ("of", "usd"),
    [
        # reference prices in USD per million, read by hand on 2026-11-29: input, output, batch input, batch output
        (pool("gpt-6-astra"), (10, 50, 5, 25)),
        (pool("gpt-6-luna"), ("0.10", "0.50", "0.05", "0.25")),
        (pool("gpt-4.1-mini"), ("0.4", "1.6", "0.2", "0.8")),
        (pool("gpt-4o-mini"), ("0.15", "0.60", "0.075", "0.30")),
        (pool("claude-opus-5-5", ADDRESS["anthropic"], "anthropic"), (4, 20, 2, 10)),
        (pool("claude-haiku-4-5", ADDRESS["anthropic"], "anthropic"), (1, 5, "0.5", "2.5")),
        (pool("mistral-medium-latest", ADDRESS["mistral"]), ("1.5", "7.5", "0.75", "3.75")),
    ],
    ids=lambda value: value.model if isinstance(value, Pool) else "",
)
def test_prices_as_they_were_read_by_hand(of: Pool, usd: tuple[Any, ...]) -> None:
    found = price(of)
    assert found is not None
    standard, batch = found.tariff(Lane.REALTIME), found.tariff(Lane.BULK)
    assert standard is not None
    assert batch is not None
    assert [standard.base.input, standard.base.output, batch.base.input, batch.base.output] == [
        int(Decimal(each) * 10**12) for each in usd
    ]


def test_a_price_that_changes_on_a_day() -> None:
    """gemini-3.8-flash doubles on 2027-01-01, its batches too."""
    of = pool("gemini-3.8-flash", ADDRESS["google"])
    for lane in Lane:
        before, after = (found.tariff(lane) if (found := price(of, at)) else None for at in MOMENTS[1:])
        assert before is not None
        assert after is not None
        assert after.base.output == 2 * before.base.output > 0


@pytest.mark.parametrize(
    "of",
    [
        pool("gpt-6.2-astra"),  # SDKs name it, no list does
        pool("gpt-4.1-mini", "http://127.0.0.1:8399/v1"),  # a server of one's own, whatever its model is called
        pool("gpt-4.1-mini", "https://eu.api.openai.com/v1"),  # another host of the provider may cost more
        pool("gpt-4.1-mini", "https://eu.api.openai.com/v1", "openai"),
        pool("gpt-4.1-mini", "https://api.openai.com.evil.example/v1"),
        pool("smollm2-135m-instruct", "local-model"),
        pool("whisper-1"),  # by the minute
    ],
    ids=lambda of: f"{of.model} {of.base_url}",
)
def test_what_is_on_no_list_has_no_price(of: Pool) -> None:
    """P4: no price is unknown, never 0 and never somebody else's."""
    assert price_list().periods(of) == ()


def test_an_adapter_of_one_provider_finds_its_list_behind_another_address() -> None:
    """The simulator, or a proxy: the model is OpenAI's all the same."""
    assert price(pool("gpt-4.1-mini", "http://127.0.0.1:8399/v1", "openai")) == price(pool("gpt-4.1-mini"))
    assert price(pool("GPT-4.1-Mini")) == price(pool("gpt-4.1-mini-2025-04-14")) == price(pool("gpt-4.1-mini"))


def test_prices_yaml_goes_before_the_list_and_the_list_fills_its_gaps() -> None:
    """Each attempt's row says which book told its cost."""
    of = pool("gpt-4.1-mini", provider="openai")
    config = load_config(resource("deploy", "config"))
    assert config.prices.book_version.startswith(f"{config.prices.version} + genai-prices ")
    own = {"gpt-4.1-mini": {"valid_from": "2027-01-01", "input_usd_per_million": 3, "output_usd_per_million": 3}}
    book = Prices.model_validate({"version": "7", "models": own})
    assert (book.book_version, price_at(book.periods(of), int(MOMENTS[1].timestamp() * 1000))) == ("7", None)
    both = book.model_copy(update={"listed": config.prices.listed, "list_version": "list"})
    assert both.book_version == "7 + list"
    at = [price_at(both.periods(of), int(moment.timestamp() * 1000)) for moment in MOMENTS[1:]]
    assert at[0] == price(of)
    tariff = None if at[1] is None else at[1].tariff(Lane.REALTIME)
    assert tariff is not None
    assert tariff.base.input == tariff.base.output == 3 * 10**12


def test_nothing_that_runs_needs_the_package() -> None:
    """It would bring an HTTP client and a hundred megabytes into every process that asks for a price."""
    code = (
        "import sys\n"
        "from nightmill.kernel.resources import resource\n"
        "from nightmill.kernel.runtime.settings import load_config\n"
        "load_config(resource('deploy', 'config'))\n"
        "import nightmill.provider_gateway.run, nightmill.planner.run\n"
        "assert not {'genai_prices', 'httpx2'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
