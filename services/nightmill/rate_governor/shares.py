"""Max-min fair division of whole units: nobody gets more than it wants, and the least served is served first."""

from collections.abc import Mapping, Sequence


def divide(
    capacity: int, wants: Mapping[str, int], order: Sequence[str], weights: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Shares of `capacity` by name; their sum is min(capacity, sum of wants).

    Whoever wants no more than its part by weight (equal without `weights`, which are positive) gets all of it; the
    others divide the rest by weight, and what does not divide goes unit by unit to those who come first in `order`,
    which names everybody in `wants`.
    """
    weight = weights or dict.fromkeys(wants, 1)
    shares = dict.fromkeys(wants, 0)
    hungry = {name: want for name, want in wants.items() if want > 0}
    left = max(0, capacity)
    while hungry:
        total = sum(weight[name] for name in hungry)
        parts = {name: left * weight[name] // total for name in hungry}
        sated = {name: want for name, want in hungry.items() if want <= parts[name]}
        if not sated:
            rest = left - sum(parts.values())
            first = [name for name in order if name in hungry][:rest]
            shares.update({name: part + (1 if name in first else 0) for name, part in parts.items()})
            break
        shares.update(sated)
        left -= sum(sated.values())
        hungry = {name: want for name, want in hungry.items() if name not in sated}
    return shares
