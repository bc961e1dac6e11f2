"""prices.yaml as written and what it means: USD per million tokens, by day, for short and long calls, and batches.

Amounts are read as decimals and held as integers; a float takes part only where YAML read one, and then its shortest
decimal form counts, which is what was written. Days are UTC days and inclusive at both ends.
"""

from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from nightmill.kernel.domain.pipeline import Frozen
from nightmill.kernel.domain.pricing import BATCH, DAY_MS, STANDARD, Level, Period, Price, Rates, Tariff

#: type of the error of prices that overlap; its context names the later one by its place, as `entry`
OVERLAP = "overlapping_prices"
_EPOCH = date(1970, 1, 1)
_ATTO_PER_NANO_PER_MILLION = 1000
#: a mistyped price must not make sums that no message holds: ten times what the dearest model costs, and more
_MOST_NANO_PER_MILLION = 10_000 * 10**9
_WHOLE = 1000  # a discount is held in thousandths


def _nano_per_million(usd: object) -> object:
    """USD per million tokens as written → nano-USD per million tokens, exactly. Raises ValueError."""
    try:
        nano = Decimal(str(usd)) * 1_000_000_000
        exact = int(nano)
    except (ArithmeticError, ValueError) as error:
        raise ValueError("write USD per million tokens as a number, for example 0.15") from error
    if isinstance(usd, bool) or exact != nano:
        raise ValueError("write USD per million tokens as a number of at most nine decimals, for example 0.15")
    if exact > _MOST_NANO_PER_MILLION:
        raise ValueError("write USD per million tokens: more than 10,000 is no price of a model")
    return exact


def _thousandths(share: object) -> object:
    """A share as written → thousandths, exactly. Raises ValueError."""
    try:
        thousandths = Decimal(str(share)) * _WHOLE
        exact = int(thousandths)
    except (ArithmeticError, ValueError) as error:
        raise ValueError("write the discount as a share from 0 to 1, for example 0.5") from error
    if isinstance(share, bool) or exact != thousandths or not 0 <= exact <= _WHOLE:
        raise ValueError("write the discount as a share from 0 to 1 of at most three decimals, for example 0.5")
    return exact


def _day(value: object) -> object:
    """A day as YAML reads it, or as a text in quotes. Raises ValueError."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    try:
        return date.fromisoformat(value) if isinstance(value, str) else _no_day()
    except ValueError as error:
        raise ValueError("write a day, for example 2027-01-01") from error


def _no_day() -> date:
    raise ValueError("no day")


NanoUsdPerMillion = Annotated[int, BeforeValidator(_nano_per_million), Field(ge=0)]
Thousandths = Annotated[int, BeforeValidator(_thousandths)]
Day = Annotated[date, BeforeValidator(_day)]


class WrittenRates(Frozen):
    """USD per million tokens; written as numbers, held as integers. What is left out costs what it is a kind of."""

    input_usd_per_million: NanoUsdPerMillion
    cached_usd_per_million: NanoUsdPerMillion | None = None  #: as input when absent
    cache_write_usd_per_million: NanoUsdPerMillion | None = None  #: for five minutes; as input when absent
    cache_write_1h_usd_per_million: NanoUsdPerMillion | None = None  #: as cache_write when absent
    output_usd_per_million: NanoUsdPerMillion

    def rates(self, discount: int = 0) -> Rates:
        """In atto-USD a token, less a discount in thousandths; exact."""
        read, written = self.cached_usd_per_million, self.cache_write_usd_per_million
        hour = self.cache_write_1h_usd_per_million
        fresh = self.input_usd_per_million
        write = fresh if written is None else written
        kept = _ATTO_PER_NANO_PER_MILLION * (_WHOLE - discount) // _WHOLE
        return Rates(
            input=fresh * kept,
            cached=(fresh if read is None else read) * kept,
            cache_write=write * kept,
            cache_write_1h=(write if hour is None else hour) * kept,
            output=self.output_usd_per_million * kept,
        )


class WrittenLevel(WrittenRates):
    """What every token of a call costs whose input is longer than this."""

    input_tokens: int = Field(gt=0, strict=True)


class WrittenTariff(WrittenRates):
    """Rates of ordinary calls, and of longer ones."""

    above: tuple[WrittenLevel, ...] = ()

    @model_validator(mode="after")
    def _ascending(self) -> "WrittenTariff":
        lengths = [level.input_tokens for level in self.above]
        if any(later <= earlier for earlier, later in zip(lengths, lengths[1:], strict=False)):
            raise ValueError(f"above: input_tokens {lengths} do not rise; order them, each once")
        return self

    def tariff(self, discount: int = 0) -> Tariff:
        levels = (Level(above_input_tokens=level.input_tokens, rates=level.rates(discount)) for level in self.above)
        return Tariff(base=self.rates(discount), levels=tuple(levels))


class WrittenPrice(WrittenTariff):
    """A price of a model and the days on which it holds. Without a word on batches, batches have no price."""

    valid_from: Day | None = None  #: first day; None: always has
    valid_to: Day | None = None  #: last day; None: until further notice
    batch_discount: Thousandths | None = None  #: share that batches cost less, whatever the class and length
    batch: WrittenTariff | None = None  #: or their rates, one by one

    @model_validator(mode="after")
    def _sensible(self) -> "WrittenPrice":
        if self.batch is not None and self.batch_discount is not None:
            raise ValueError("states both batch and batch_discount; keep one")
        if self.valid_from is not None and self.valid_to is not None and self.valid_to < self.valid_from:
            raise ValueError(f"valid_to {self.valid_to} is before valid_from {self.valid_from}; swap or correct them")
        return self

    def period(self) -> Period:
        tariffs = {STANDARD: self.tariff()}
        if self.batch is not None:
            tariffs[BATCH] = self.batch.tariff()
        elif self.batch_discount is not None:
            tariffs[BATCH] = self.tariff(self.batch_discount)
        return Period(
            from_ms=0 if self.valid_from is None else day_ms(self.valid_from),
            until_ms=None if self.valid_to is None else day_ms(self.valid_to) + DAY_MS,
            price=Price(tariffs=tariffs),
        )


def day_ms(day: date) -> int:
    """When a UTC day begins; 0 for days before 1970."""
    return max(0, (day - _EPOCH).days) * DAY_MS


def _several(value: object) -> object:
    """One price stands for a list of it alone."""
    return [value] if isinstance(value, Mapping | WrittenPrice) else value


def _apart(prices: tuple[WrittenPrice, ...]) -> tuple[WrittenPrice, ...]:
    """In the order of their days. Raises `PydanticCustomError` where two hold on one day."""
    ordered = sorted(enumerate(prices), key=lambda entry: entry[1].valid_from or date.min)
    for (first, earlier), (second, later) in zip(ordered, ordered[1:], strict=False):
        if earlier.valid_to is None or later.valid_from is None or later.valid_from <= earlier.valid_to:
            raise PydanticCustomError(OVERLAP, "{reason}", _overlap(first, earlier, second, later))
    return tuple(price for _, price in ordered)


def _overlap(first: int, earlier: WrittenPrice, second: int, later: WrittenPrice) -> dict[str, Any]:
    if later.valid_from is None:
        remedy = "give each its days with valid_from and valid_to"
    else:
        remedy = f"end number {first + 1} with a valid_to before {later.valid_from}, or remove one"
    reason = f"price number {second + 1} ({_days(later)}) overlaps number {first + 1} ({_days(earlier)}); {remedy}"
    return {"reason": reason, "entry": second}


def _days(price: WrittenPrice) -> str:
    begin = "from the beginning" if price.valid_from is None else f"from {price.valid_from}"
    return f"{begin}, without end" if price.valid_to is None else f"{begin} to {price.valid_to}"


class PriceFile(Frozen):
    """prices.yaml: a model that is neither here nor on its provider's list has no price, and is refused (P4)."""

    version: str
    models: dict[
        str, Annotated[tuple[WrittenPrice, ...], BeforeValidator(_several), AfterValidator(_apart), Field(min_length=1)]
    ]
