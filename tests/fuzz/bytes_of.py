"""What the suites of bad bytes share: how long they search, and strategies for values that nobody sane wrote."""

import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

#: a longer search by hand: `NIGHTMILL_FUZZ=50 pytest tests/fuzz` looks at fifty times as many, at random
LONGER = int(os.environ.get("NIGHTMILL_FUZZ", "1"))

#: numbers at which something ends: a byte, 32 and 64 bits, a float's whole numbers, Python's own digits
NUMBERS = st.sampled_from(
    [0, 1, -1, 127, 128, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**30, -(10**400)]
)
TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["", " ", "\0", "\ud800", "\u2028", "\ufeff", "٣", "²", "a" * 3_000, "../../etc/passwd", "1e999"]),
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, st.floats(), TEXTS)
#: any value that a JSON parser can give
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=8
)
#: any value that UTF-8 can hold
CLEAN_TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)


def searched(examples: int) -> settings:
    """The same `examples` each time, without a clock; as many times more as asked for, then at random."""
    return settings(
        max_examples=examples * LONGER,
        derandomize=LONGER == 1,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


@st.composite
def mutated(draw: st.DrawFn, value: Any, *, values: st.SearchStrategy[Any] = VALUES) -> Any:
    """`value` with one to three of its parts replaced, taken out or doubled."""
    for _ in range(draw(st.integers(1, 3))):
        value = _changed(draw, value, values)
    return value


def _changed(draw: st.DrawFn, value: Any, values: st.SearchStrategy[Any]) -> Any:
    if not isinstance(value, dict | list) or not value or draw(st.integers(0, 4)) == 0:
        return draw(values)
    if isinstance(value, list):
        at = draw(st.integers(0, len(value) - 1))
        return [*value[:at], *_pieces(draw, value[at], values), *value[at + 1 :]]
    name = draw(st.sampled_from(sorted(value)))
    rest = {each: value[each] for each in value if each != name}
    match draw(st.integers(0, 5)):
        case 0:
            return rest
        case 1:
            return {**value, draw(TEXTS): value[name]}
    return {**rest, name: _changed(draw, value[name], values)}


def _pieces(draw: st.DrawFn, value: Any, values: st.SearchStrategy[Any]) -> list[Any]:
    match draw(st.integers(0, 5)):
        case 0:
            return []
        case 1:
            return [value, value]
    return [_changed(draw, value, values)]


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes], *, inserts: list[bytes]) -> bytes:
    """Bytes with bits turned over, pieces cut out, doubled or put in, or an end that is missing."""
    data = bytearray(draw(whole))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 4)):
            case 0 if at < len(data):
                data[at] ^= 1 << draw(st.integers(0, 7))
            case 1:
                del data[at:]
            case 2:
                del data[at : at + draw(st.integers(1, 8))]
            case 3:
                data[at:at] = data[at : at + draw(st.integers(1, 8))]
            case _:
                data[at:at] = draw(st.sampled_from(inserts))
    return bytes(data)
