"""Cost of a call in integer nano-USD. An unknown cost is None, never 0."""

from nightmill.kernel.domain.settings import Price

_MILLION = 1_000_000


def cost_nano_usd(price: Price, *, input_tokens: int, cached_tokens: int, output_tokens: int) -> int:
    """Cost of a call; `cached_tokens` are part of `input_tokens`. Rounded half up, once, on the sum."""
    cached_price = price.input_usd_per_million if price.cached_usd_per_million is None else price.cached_usd_per_million
    total = (
        (input_tokens - cached_tokens) * price.input_usd_per_million
        + cached_tokens * cached_price
        + output_tokens * price.output_usd_per_million
    )
    return (total + _MILLION // 2) // _MILLION


def worst_cost_nano_usd(price: Price, *, input_tokens: int, max_output_tokens: int) -> int:
    """Upper bound of a call's cost: what is reserved before it is made."""
    return cost_nano_usd(price, input_tokens=input_tokens, cached_tokens=0, output_tokens=max_output_tokens)
