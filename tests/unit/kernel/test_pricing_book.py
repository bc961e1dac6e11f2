"""prices.yaml: what is written, what it means, and what is refused with its place, value and remedy (P4)."""

from datetime import UTC, date, datetime
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from nightmill.kernel.domain.lifecycle import Lane
from nightmill.kernel.domain.prices import PriceFile, WrittenPrice, day_ms
from nightmill.kernel.domain.pricing import Price, Rates, Tariff, price_at
from nightmill.kernel.domain.settings import Pool, Prices
from nightmill.kernel.runtime.settings import SettingsError, load_yaml

POOL = Pool.model_validate(
    {"provider": "openai_compatible", "base_url": "http://h/v1", "model": "m", "limits": {"slots": 1},
     "context_tokens": 10}
)  # fmt: skip
FULL = """\
version: "7"
models:
  m:
    - input_usd_per_million: 2
      cached_usd_per_million: 0.2
      cache_write_usd_per_million: 2.5
      cache_write_1h_usd_per_million: 4
      output_usd_per_million: 10
      valid_to: 2026-12-31
      batch_discount: 0.5
      above:
        - {input_tokens: 200000, input_usd_per_million: 4, output_usd_per_million: 15}
    - {valid_from: 2027-01-01, input_usd_per_million: 1, output_usd_per_million: 5}
"""
MICRO = 10**12


def file(folder: Path, text: str) -> PriceFile:
    path = folder / "prices.yaml"
    path.write_text(text, encoding="utf-8")
    return load_yaml(path, PriceFile)


def price(at: datetime, text: str = FULL) -> Price | None:
    book = Prices.model_validate(yaml.safe_load(text))
    return price_at(book.periods(POOL), int(at.timestamp() * 1000))


def tariff(text: str, lane: Lane = Lane.REALTIME) -> Tariff | None:
    found = price(datetime(2026, 12, 1, tzinfo=UTC), text)
    assert found is not None
    return found.tariff(lane)


def in_usd(rates: Rates) -> tuple[float, ...]:
    """Per million tokens, for comparison by eye."""
    of = (rates.input, rates.cached, rates.cache_write, rates.cache_write_1h, rates.output)
    return tuple(atto / MICRO for atto in of)


def test_all_that_can_be_written_is_read(tmp_path: Path) -> None:
    file(tmp_path, FULL)
    standard, batch = tariff(FULL), tariff(FULL, Lane.BULK)
    assert standard is not None
    assert batch is not None
    assert in_usd(standard.base) == (2, 0.2, 2.5, 4, 10)
    assert in_usd(batch.base) == (1, 0.1, 1.25, 2, 5)
    # what a longer call leaves out costs what it is a kind of
    assert [(level.above_input_tokens, in_usd(level.rates)) for level in standard.levels] == [
        (200_000, (4, 4, 4, 4, 15))
    ]
    assert [in_usd(level.rates) for level in batch.levels] == [(2, 2, 2, 2, 7.5)]


@pytest.mark.parametrize(
    ("written", "classes"),
    [
        ("{input_usd_per_million: 1, output_usd_per_million: 2}", (1, 1, 1, 1, 2)),
        ("{input_usd_per_million: 1, cached_usd_per_million: 0, output_usd_per_million: 2}", (1, 0, 1, 1, 2)),
        ("{input_usd_per_million: 1, cache_write_usd_per_million: 1.25, output_usd_per_million: 2}",
         (1, 1, 1.25, 1.25, 2)),
        ("{input_usd_per_million: '0.000000001', output_usd_per_million: 0}", (1e-9, 1e-9, 1e-9, 1e-9, 0)),
    ],
)  # fmt: skip
def test_one_price_without_days_holds_always(written: str, classes: tuple[float, ...]) -> None:
    text = f"version: a\nmodels:\n  m: {written}\n"
    for year in (1970, 2026, 2100):
        found = price(datetime(year, 1, 1, tzinfo=UTC), text)
        assert found is not None
        standard = found.tariff(Lane.REALTIME)
        assert standard is not None
        assert in_usd(standard.base) == classes
        assert found.tariff(Lane.BULK) is None  # nobody said what a batch costs


def test_days_are_whole_days_in_utc() -> None:
    cheaper = price(datetime(2027, 1, 1, tzinfo=UTC))
    assert price(datetime(2026, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)) == price(datetime(2026, 1, 1, tzinfo=UTC))
    assert cheaper == price(datetime(2028, 1, 1, tzinfo=UTC)) != price(datetime(2026, 12, 31, tzinfo=UTC))


def test_between_two_prices_there_is_none() -> None:
    """P4: a gap is no price, not the last one's."""
    text = FULL.replace("valid_from: 2027-01-01", "valid_from: 2027-01-02")
    assert price(datetime(2027, 1, 1, 12, tzinfo=UTC), text) is None


def test_batches_can_be_priced_one_by_one() -> None:
    """As gpt-4.1-mini: half, but what is cached costs as much as in a single call."""
    text = (
        "{version: a, models: {m: {input_usd_per_million: 0.4, cached_usd_per_million: 0.1, "
        "output_usd_per_million: 1.6, batch: {input_usd_per_million: 0.2, cached_usd_per_million: 0.1, "
        "output_usd_per_million: 0.8}}}}"
    )
    batch = tariff(text, Lane.BULK)
    assert batch is not None
    assert in_usd(batch.base) == (0.2, 0.1, 0.2, 0.2, 0.8)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("valid_from: 2027-01-01", "valid_from: 2026-12-31",
         "line 13: models.m.1 = { … ...: "
         "price number 2 (from 2026-12-31, without end) overlaps number 1 (from the beginning to 2026-12-31); "
         "end number 1 with a valid_to before 2026-12-31, or remove one"),
        ("valid_from: 2027-01-01, ", "",
         "line 13: models.m.1 = { … }: "
         "price number 2 (from the beginning, without end) overlaps number 1 (from the beginning to 2026-12-31); "
         "give each its days with valid_from and valid_to"),
        ("valid_to: 2026-12-31", "valid_to: 2026-13-31", "line 9: not YAML: month must be in 1..12"),
        ("valid_to: 2026-12-31", "valid_to: '2026-13-31'", "line 9: models.m.0.valid_to = '2026-13-31': Value error, "
         "write a day, for example 2027-01-01"),
        ("valid_to: 2026-12-31", "valid_to: 20261231", "line 9: models.m.0.valid_to = 20261231: Value error, write a"),
        ("valid_to: 2026-12-31", "valid_to: 2026-12-31T10:00:00", "Value error, write a day, for example 2027-01-01"),
        ("valid_from: 2027-01-01", "valid_from: 2027-01-02, valid_to: 2027-01-01",
         "valid_to 2027-01-01 is before valid_from 2027-01-02; swap or correct them"),
        ("batch_discount: 0.5", "batch_discount: 50", "line 10: models.m.0.batch_discount = 50: Value error, write the "
         "discount as a share from 0 to 1 of at most three decimals, for example 0.5"),
        ("batch_discount: 0.5", "batch_discount: half", "write the discount as a share from 0 to 1, for example 0.5"),
        ("valid_to: 2026-12-31", "batch: {input_usd_per_million: 1, output_usd_per_million: 1}",
         "states both batch and batch_discount; keep one"),
        ("input_tokens: 200000", "input_tokens: 0", "line 12: models.m.0.above.0.input_tokens = 0: Input should be gr"),
        ("        - {input_tokens: 200000", "        - {input_tokens: 200000, input_usd_per_million: 4, "
         "output_usd_per_million: 15}\n        - {input_tokens: 200000", "above: input_tokens [200000, 200000] do not "
         "rise; order them, each once"),
        ("cached_usd_per_million: 0.2", "cached_usd_per_million: -0.2", "line 5: models.m.0.cached_usd_per_million = "
         "-0.2: Input should be greater"),
        ("cached_usd_per_million: 0.2", "cached_usd_per_million: 1e12", "line 5: models.m.0.cached_usd_per_million = "
         "'1e12': Value error, write USD per million tokens: more than 10,000 is no price of a model"),
        ("cached_usd_per_million: 0.2", "cached_usd_per_milion: 0.2", "line 5: unknown field models.m.0.cached_usd_"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(tmp_path: Path, before: str, after: str, message: str) -> None:
    """P4: file, place, value and remedy."""
    assert before in FULL
    with pytest.raises(SettingsError) as refused:
        file(tmp_path, FULL.replace(before, after, 1))
    text = str(refused.value)
    assert text.startswith(str(tmp_path / "prices.yaml"))
    assert all(part in text for part in message.split(" … "))


def test_an_empty_list_of_prices_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"line 2: models\.m = \[\]: .*at least 1 item"):
        file(tmp_path, "version: a\nmodels: {m: []}\n")


@pytest.mark.parametrize(
    ("usd", "nano"),
    [(0, 0), (0.15, 150_000_000), ("0.15", 150_000_000), (2.5, 2_500_000_000), (0.1, 100_000_000), (1e-9, 1)],
)
def test_usd_per_million_is_held_exactly(usd: object, nano: int) -> None:
    written = WrittenPrice.model_validate({"input_usd_per_million": usd, "output_usd_per_million": 0})
    assert written.input_usd_per_million == nano
    assert written.rates().input == nano * 1000


@pytest.mark.parametrize("usd", [-1, "cheap", None, float("nan"), float("inf"), True, 1e-10])
def test_what_is_no_price_is_refused(usd: object) -> None:
    """P4."""
    with pytest.raises(ValidationError):
        WrittenPrice.model_validate({"input_usd_per_million": usd, "output_usd_per_million": 0})


def test_a_day_begins_at_midnight_utc() -> None:
    assert day_ms(date(1970, 1, 1)) == day_ms(date(1, 1, 1)) == 0
    assert day_ms(date(2027, 1, 1)) == int(datetime(2027, 1, 1, tzinfo=UTC).timestamp()) * 1000
