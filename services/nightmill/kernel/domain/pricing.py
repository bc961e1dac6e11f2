"""Cost of a call in integer nano-USD. An unknown cost is None, never 0.

Providers charge four classes of tokens apart: input read afresh, input read from a cache, input written into a cache
(for a short time or for an hour), and output. They report them in two ways: OpenAI's `prompt_tokens` hold the cached
and written ones, Anthropic's `input_tokens` do not; adapters turn both into `Tokens`, where no token is in two classes.

Rates are whole atto-USD (10^-18 USD) a token, which is the same number as pico-USD per million tokens. So a sum is
exact, and it is rounded once, half up, to nano-USD. No float takes part.

A long call can cost more: above a number of input tokens, whatever their class, the *whole* call is charged at another
level ("cliff"), as OpenAI (272,000), Anthropic (100,000 for Haiku 5.5) and Google (200,000) do as of 2026-11-29.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nightmill.kernel.domain.lifecycle import Lane

ATTO_PER_NANO = 1_000_000_000
DAY_MS = 86_400_000

#: kinds of processing that a price list tells apart; any other name is one of OpenAI's service tiers
STANDARD, BATCH = "standard", "batch"
#: what providers call the standard kind in a response's `service_tier`
_STANDARD_TIERS = frozenset({None, "", "auto", "default", STANDARD})


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Tokens of one call by class; each is counted once."""

    fresh_input: int
    cached: int = 0  #: read from a cache
    cache_write: int = 0  #: written into a cache, for five minutes or the provider's only lifetime
    cache_write_1h: int = 0
    output: int

    @property
    def input(self) -> int:
        return self.fresh_input + self.cached + self.cache_write + self.cache_write_1h


def tokens_within(
    *, input_tokens: int, cached_tokens: int, cache_write_tokens: int, cache_write_1h_tokens: int, output_tokens: int
) -> Tokens | None:
    """Tokens where those cached and written are part of `input_tokens`; None where the parts exceed the whole."""
    fresh = input_tokens - cached_tokens - cache_write_tokens - cache_write_1h_tokens
    if fresh < 0:
        return None
    return Tokens(
        fresh_input=fresh,
        cached=cached_tokens,
        cache_write=cache_write_tokens,
        cache_write_1h=cache_write_1h_tokens,
        output=output_tokens,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Atto-USD per token of each class."""

    input: int
    cached: int
    cache_write: int
    cache_write_1h: int
    output: int

    @property
    def dearest_input(self) -> int:
        return max(self.input, self.cached, self.cache_write, self.cache_write_1h)

    @property
    def dearest_unasked_input(self) -> int:
        """Of the classes that a provider chooses by itself: it writes for an hour only if it is asked to."""
        return max(self.input, self.cached, self.cache_write)


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """What every token of a call costs whose input is longer than `above_input_tokens`."""

    above_input_tokens: int
    rates: Rates


@dataclass(frozen=True, slots=True, kw_only=True)
class Tariff:
    """Rates of one kind of processing: of ordinary calls, and of longer ones, shortest first."""

    base: Rates
    levels: tuple[Level, ...] = ()

    def rates(self, input_tokens: int) -> Rates:
        """Those of a call with so many input tokens of all classes."""
        found = self.base
        for level in self.levels:
            if input_tokens > level.above_input_tokens:
                found = level.rates
        return found

    def dearest(self, input_tokens: int) -> Rates:
        """At least the rates of every call with at most so many input tokens, class by class."""
        reached = [level.rates for level in self.levels if input_tokens > level.above_input_tokens]
        return _dearest([self.base, *reached]) if reached else self.base


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a model costs at one time, by kind of processing. A kind that is not there has no price."""

    tariffs: Mapping[str, Tariff]

    def tariff(self, lane: Lane, service_tier: str | None = None) -> Tariff | None:
        """That of a call made in `lane` and, as its response says, carried out in `service_tier`; None: not known."""
        if lane is Lane.BULK:
            return self.tariffs.get(BATCH)
        return self.tariffs.get(STANDARD if service_tier in _STANDARD_TIERS else service_tier or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """A price and the time in which it holds."""

    from_ms: int = 0
    until_ms: int | None = None  #: the first moment at which it does not hold any more; None: without end
    price: Price

    def covers(self, at_ms: int) -> bool:
        return self.from_ms <= at_ms and (self.until_ms is None or at_ms < self.until_ms)


def price_at(periods: Iterable[Period], at_ms: int) -> Price | None:
    """The price at a moment: of periods that overlap, the first holds."""
    return next((period.price for period in periods if period.covers(at_ms)), None)


def prices_between(periods: Sequence[Period], from_ms: int, to_ms: int) -> list[Price | None]:
    """Every price that holds at some moment from `from_ms` to `to_ms`; None among them: at times there is none."""
    edges = {edge for period in periods for edge in (period.from_ms, period.until_ms) if edge is not None}
    moments = [from_ms, *sorted(edge for edge in edges if from_ms < edge <= to_ms)]
    return [price_at(periods, moment) for moment in moments]


def cost_atto_usd(rates: Rates, tokens: Tokens) -> int:
    """Cost at these rates, exactly."""
    return (
        tokens.fresh_input * rates.input
        + tokens.cached * rates.cached
        + tokens.cache_write * rates.cache_write
        + tokens.cache_write_1h * rates.cache_write_1h
        + tokens.output * rates.output
    )


def cost_nano_usd(tariff: Tariff, tokens: Tokens, *, percent: int = 100) -> int:
    """Cost of one call at so much of the listed price, rounded half up, once, on the sum."""
    return _rounded(cost_atto_usd(tariff.rates(tokens.input), tokens) * percent, ATTO_PER_NANO * 100)


def worst_cost_nano_usd(tariff: Tariff, *, input_tokens: int, max_output_tokens: int) -> int:
    """Upper bound of the cost of every call of at most so many tokens: what is reserved before it is made."""
    dearest = tariff.dearest(input_tokens)
    return to_nano_usd(input_tokens * dearest.dearest_input + max_output_tokens * dearest.output)


def to_nano_usd(atto_usd: int) -> int:
    """Rounded half up."""
    return _rounded(atto_usd, ATTO_PER_NANO)


def _rounded(parts: int, unit: int) -> int:
    return (parts + unit // 2) // unit


def _dearest(rates: Sequence[Rates]) -> Rates:
    return Rates(
        input=max(each.input for each in rates),
        cached=max(each.cached for each in rates),
        cache_write=max(each.cache_write for each in rates),
        cache_write_1h=max(each.cache_write_1h for each in rates),
        output=max(each.output for each in rates),
    )
