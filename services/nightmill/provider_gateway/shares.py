"""One call for many items: how its usage and its cost fall on them. Pure.

Each gets a share in proportion to its weight, in whole numbers whose sum is the whole, to the token and to the
nano-dollar: of the first k items together the share is the whole times their weights over all weights, rounded down,
and an item's share is what it adds to that. So a share is off by less than one, and the last one evens it out.
Weights of the input tokens are the planned tokens of each text; those of everything else are the shares of those.
"""

from collections.abc import Sequence

from nightmill.kernel.wire.messages import Usage


def apportioned(whole: int, weights: Sequence[int]) -> list[int]:
    """`whole` in shares whose sum it is; alike where no weight is above 0. Both are at least 0."""
    total = sum(weights)
    if total <= 0:
        weights, total = [1] * len(weights), len(weights)
    shares, reached, given = [], 0, 0
    for weight in weights:
        reached += weight
        share = whole * reached // total - given
        given += share
        shares.append(share)
    return shares


def usages(whole: Usage, weights: Sequence[int]) -> list[Usage]:
    """A call's usage in shares, class by class; no share has more cached than input tokens."""
    inputs = apportioned(whole.input_tokens, weights)
    cached = apportioned(whole.cached_tokens, inputs)
    outputs = apportioned(whole.output_tokens, inputs)
    return [
        Usage(input_tokens=input_, cached_tokens=read, output_tokens=output)
        for input_, read, output in zip(inputs, cached, outputs, strict=True)
    ]
