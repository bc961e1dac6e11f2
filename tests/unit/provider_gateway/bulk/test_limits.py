"""How large a submission may be (E6)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.kernel.domain.settings import BulkLimits
from nightmill.provider_gateway.bulk.limits import Enqueued, Size, configured, grown, room, shrunk

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
    found = room(MOST, Enqueued(here=enqueued), next_tokens=1, wanted_tokens=wanted)
    assert (None if found is None else found.tokens) == tokens


@pytest.mark.parametrize(
    ("here", "elsewhere", "following", "tokens"),
    [
        (400, 0, 150, None),  # 100 are left of the share: the next one goes whole or not at all
        (400, 0, 100, 100),
        (0, 300, 600, 600),  # larger than the share, and nothing else: alone, in what all have left
        (1, 300, 600, None),
        (0, 401, 600, None),
        (0, 0, 3_000, 3_000),  # larger than the limit: alone, and the provider decides
        (0, 1, 3_000, None),
    ],
)
def test_the_next_request_goes_whole_or_waits(here: int, elsewhere: int, following: int, tokens: int | None) -> None:
    enqueued = Enqueued(here=here, elsewhere=elsewhere, owned=2, partitions=4)
    found = room(MOST, enqueued, next_tokens=following, wanted_tokens=max(following, 100))
    assert (None if found is None else found.tokens) == tokens


@given(st.integers(1, 10**6), st.integers(0, 2 * 10**6), st.integers(1, 10**7), st.integers(1, 10**7))
def test_room_never_goes_beyond_the_limit(limit: int, enqueued: int, following: int, more: int) -> None:
    most = Size(requests=1, bytes=1, tokens=limit)
    found = room(most, Enqueued(here=enqueued), next_tokens=following, wanted_tokens=following + more)
    if found is not None and found.tokens is not None:
        assert found.tokens >= following
        assert enqueued + found.tokens <= limit or not enqueued


@pytest.mark.parametrize(
    ("here", "elsewhere", "owned", "tokens"),
    [
        (0, 0, 4, 1_000),  # every partition is here
        (0, 0, 1, 250),  # the others have theirs, whether or not they use them
        (200, 0, 1, None),  # 50 of 250 is less than a quarter: wait
        (0, 700, 2, 300),  # partitions came here while their submissions are out elsewhere
        (0, 1_000, 2, None),
        (600, 0, 2, None),  # partitions went, their submissions did not end with them
    ],
)
def test_partitions_share_what_may_be_enqueued(here: int, elsewhere: int, owned: int, tokens: int | None) -> None:
    """E2: a process takes the share of its partitions, and what the others have left."""
    enqueued = Enqueued(here=here, elsewhere=elsewhere, owned=owned, partitions=4)
    found = room(MOST, enqueued, next_tokens=1, wanted_tokens=5_000)
    assert (None if found is None else found.tokens) == tokens


@given(
    limit=st.integers(100, 10_000),
    owners=st.lists(st.lists(st.integers(0, 2), min_size=6, max_size=6), min_size=1, max_size=4),
    turns=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 20_000), st.booleans()), max_size=60),
    sees=st.booleans(),
)
def test_no_more_is_enqueued_than_the_limit_whoever_owns_what(
    limit: int, owners: list[list[int]], turns: list[tuple[int, int, bool]], sees: bool
) -> None:
    """E2: three processes; blind to each other while nothing moves, and seeing each other's rows when it does."""
    rounds = owners if sees else owners[:1]
    out: list[tuple[int, int]] = []  # partition, tokens
    for number, (process, wanted, ends) in enumerate(turns):
        owner_of = rounds[number * len(rounds) // len(turns)]
        if ends and out:
            out.pop(0)
        mine = [partition for partition in range(6) if owner_of[partition] == process]
        if not mine:
            continue
        here = sum(tokens for partition, tokens in out if partition in mine)
        elsewhere = sum(tokens for _, tokens in out) - here if sees else 0
        enqueued = Enqueued(here=here, elsewhere=elsewhere, owned=len(mine), partitions=6)
        found = room(Size(requests=1, bytes=1, tokens=limit), enqueued, next_tokens=1, wanted_tokens=wanted)
        if found is not None and found.tokens is not None:
            out.append((mine[0], min(found.tokens, wanted)))
        assert sum(tokens for _, tokens in out) <= limit


def test_a_refusal_halves_and_success_doubles_back() -> None:
    refused = Size(requests=80, bytes=8_000, tokens=600)
    by_tokens = shrunk(MOST, refused, in_tokens=True)
    assert by_tokens == Size(requests=100, bytes=10_000, tokens=300)
    by_size = shrunk(MOST, refused, in_tokens=False)
    assert by_size == Size(requests=40, bytes=4_000, tokens=1_000)
    assert grown(by_size, MOST) == Size(requests=80, bytes=8_000, tokens=1_000)
    assert grown(grown(by_size, MOST), MOST) == MOST
    assert shrunk(MOST, Size(requests=1, bytes=1, tokens=1), in_tokens=False).requests == 1
