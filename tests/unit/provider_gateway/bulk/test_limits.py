"""How large a submission may be (E6)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.kernel.domain.settings import BulkLimits
from nightmill.provider_gateway.bulk.limits import Size, configured, grown, room, shrunk

MOST = Size(requests=100, bytes=10_000, tokens=1_000)


def test_a_tenth_of_the_enqueued_tokens_is_left_alone() -> None:
    """One token too many, by the provider's count, fails the whole file."""
    limits = BulkLimits(max_requests=7, max_bytes=8, enqueued_tokens=1_000)
    assert configured(limits) == Size(requests=7, bytes=8, tokens=900)
    assert configured(BulkLimits()).tokens is None


@pytest.mark.parametrize(
    ("enqueued", "wanted", "tokens"),
    [
        (0, 5_000, 1_000),  # nothing is out: all of it
        (600, 5_000, 400),  # the rest of it is more than a quarter
        (800, 5_000, None),  # 200 of 1,000 is less than a quarter of it: wait for one to end
        (800, 150, 200),  # all that is wanted fits
        (1_000, 1, None),
        (1_200, 1, None),
    ],
)
def test_room_beside_what_is_enqueued(enqueued: int, wanted: int, tokens: int | None) -> None:
    found = room(MOST, enqueued_tokens=enqueued, wanted_tokens=wanted)
    assert (None if found is None else found.tokens) == tokens


@given(st.integers(1, 10**6), st.integers(0, 2 * 10**6), st.integers(1, 10**7))
def test_room_never_goes_beyond_the_limit(limit: int, enqueued: int, wanted: int) -> None:
    found = room(Size(requests=1, bytes=1, tokens=limit), enqueued_tokens=enqueued, wanted_tokens=wanted)
    if found is not None and found.tokens is not None and enqueued:
        assert enqueued + found.tokens <= max(limit, enqueued + 1)


def test_a_refusal_halves_and_success_doubles_back() -> None:
    refused = Size(requests=80, bytes=8_000, tokens=600)
    by_tokens = shrunk(MOST, refused, in_tokens=True)
    assert by_tokens == Size(requests=100, bytes=10_000, tokens=300)
    by_size = shrunk(MOST, refused, in_tokens=False)
    assert by_size == Size(requests=40, bytes=4_000, tokens=1_000)
    assert grown(by_size, MOST) == Size(requests=80, bytes=8_000, tokens=1_000)
    assert grown(grown(by_size, MOST), MOST) == MOST
    assert shrunk(MOST, Size(requests=1, bytes=1, tokens=1), in_tokens=False).requests == 1
