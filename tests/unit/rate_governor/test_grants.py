"""What is granted, case by case, with the arithmetic beside it. Times are in ms from T0."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.kernel.domain.settings import PoolLimits
from nightmill.kernel.wire.messages import HolderLease, LeaseAmounts, LeaseGranted, LeaseRequested, LeaseStateRow
from nightmill.kernel.wire.values import replace
from nightmill.rate_governor.grants import grant
from nightmill.rate_governor.levels import burst, drained
from nightmill.rate_governor.pool import ORPHANED_MS, Terms, advance, fresh, held, occupied, take_over
from nightmill.rate_governor.shares import divide
from nightmill.rate_governor.waiting import Waiting

T0 = 1_796_000_000_000
#: 1,000 input tokens a second, so a burst of 5,000; no other limit of amounts.
TERMS = Terms(limits=PoolLimits(input_tokens_per_minute=60_000, slots=10), call_deadline_ms=20_000)


def _amounts(tokens: int, requests: int = 0) -> LeaseAmounts:
    return LeaseAmounts(requests=requests, input_tokens=tokens, output_tokens=0)


def _ask(
    seq: int,
    *,
    holder: str = "a",
    epoch: int = 1,
    wants: int = 0,
    calls: int = 2,
    slots: int = 4,
    used: int = 0,
    reserved: int = 0,
    in_use: int = 0,
) -> LeaseRequested:
    return LeaseRequested(
        pool="mini",
        holder=holder,
        holder_partition=0,
        epoch=epoch,
        seq=seq,
        wants=_amounts(wants, calls),
        wants_slots=slots,
        used=_amounts(used),
        reserved=_amounts(reserved),
        slots_in_use=in_use,
        asked_at_ms=0,
    )


def _granted(
    state: LeaseStateRow,
    ask: LeaseRequested,
    at_ms: int,
    terms: Terms = TERMS,
    waiting: dict[str, Waiting] | None = None,
) -> tuple[LeaseStateRow, LeaseGranted]:
    answer = grant(state, ask, T0 + at_ms, terms, waiting or {})
    assert answer is not None
    return answer


def _lease(state: LeaseStateRow, holder: str = "a", epoch: int = 1) -> HolderLease:
    return next(lease for lease in state.holders if (lease.holder, lease.epoch) == (holder, epoch))


def _waiting(wants: int, slots: int, *, asked_at_ms: int = 0) -> Waiting:
    return Waiting(
        wants=(0, wants, 0),
        wants_slots=slots,
        asked_at_ms=T0 + asked_at_ms,
        turn_since_ms=T0,
        given_at_ms=(T0, T0, T0),
    )


EMPTY = fresh("mini", T0)


@pytest.mark.parametrize(
    ("at_ms", "wants", "gets", "level"),
    [
        (0, 3_000, 3_000, 3_000),  # under the burst of 5,000
        (0, 9_000, 5_000, 5_000),  # the burst and no more
    ],
)
def test_a_first_ask_gets_what_fits_the_burst(at_ms: int, wants: int, gets: int, level: int) -> None:
    """E2"""
    state, answer = _granted(EMPTY, _ask(1, wants=wants), at_ms)
    assert answer.granted.input_tokens == gets
    assert state.input_tokens_level == level * 1000
    assert (answer.slots, answer.ttl_ms, answer.seq) == (4, 4_000, 1)


def test_levels_drain_at_the_rate_once_the_grant_is_started() -> None:
    """E2. 5,000 granted and started; 1.5 s drain 1,500, which is all that the next ask gets."""
    state, _ = _granted(EMPTY, _ask(1, wants=9_000), 0)
    state, _ = _granted(state, _ask(2, wants=0, used=5_000), 10)
    state, answer = _granted(state, _ask(3, wants=9_000, used=5_000), 1_510)
    assert answer.granted.input_tokens == 5_000 + 1_500
    assert state.input_tokens_level == 5_000_000


def test_what_is_held_does_not_drain() -> None:
    """E2. 5,000 held for 2 s may start at any moment, so nobody else gets anything meanwhile."""
    state, _ = _granted(EMPTY, _ask(1, wants=5_000), 0)
    _, answer = _granted(state, _ask(1, holder="b", wants=5_000), 2_000)
    assert answer.granted.input_tokens == 0


def test_dimensions_without_a_limit_are_granted_as_wanted() -> None:
    """E2"""
    state, answer = _granted(EMPTY, _ask(1, calls=1_000_000), 0)
    assert answer.granted.requests == 1_000_000
    assert state.requests_level == 0


@pytest.mark.parametrize(("epoch", "seq"), [(1, 3), (1, 2), (0, 9)])
def test_an_ask_that_is_repeated_or_overtaken_changes_nothing(epoch: int, seq: int) -> None:
    """E2: the highest (epoch, seq) wins."""
    state, _ = _granted(EMPTY, _ask(3, wants=100), 0)
    assert grant(state, _ask(seq, epoch=epoch, wants=5_000), T0 + 10, TERMS, {}) is None


def test_wants_are_what_is_held_in_all_so_a_lost_answer_is_not_granted_twice() -> None:
    """E2. The answer to ask 1 was lost: ask 3 wants the same 1,000, and they are granted already."""
    state, _ = _granted(EMPTY, _ask(1, wants=1_000), 0)
    _, answer = _granted(state, _ask(3, wants=1_000), 1_000)
    assert answer.granted.input_tokens == 1_000


def test_use_beyond_the_grant_is_debt() -> None:
    """E2. 1,000 granted, 1,700 used: 700 more are charged before anything new is given."""
    state, _ = _granted(EMPTY, _ask(1, wants=1_000), 0)
    state, answer = _granted(state, _ask(2, wants=0, used=1_700), 0)
    assert state.input_tokens_level == 1_700_000
    assert answer.granted.input_tokens == 1_700


def test_what_settlement_gave_back_returns_to_the_pool() -> None:
    """E2. 1,000 reserved, 300 used in the end: 700 come off the level and off the grant."""
    state, _ = _granted(EMPTY, _ask(1, wants=1_000), 0)
    state, _ = _granted(state, _ask(2, reserved=1_000, in_use=1), 0)
    state, answer = _granted(state, _ask(3, used=300), 0)
    assert state.input_tokens_level == 300_000
    assert answer.granted.input_tokens == 300


def test_a_lease_that_is_given_up_gives_back_what_was_not_started() -> None:
    """E2. 4,000 granted, 1,000 used, given up: the level is 1,000, all slots are free."""
    state, _ = _granted(EMPTY, _ask(1, wants=4_000), 0)
    state, answer = _granted(state, _ask(2, used=1_000, slots=0), 0)
    assert (answer.slots, answer.granted.input_tokens) == (0, 1_000)
    assert state.input_tokens_level == 1_000_000
    _, other = _granted(state, _ask(1, holder="b", slots=10), 0)
    assert other.slots == 10


def test_a_lapsed_lease_gives_no_refund_and_keeps_its_slots_for_the_call_deadline() -> None:
    """E2. ttl 4 s + guard 1 s: lapsed at 5 s, the level drains from then on; the slots are free at 25 s."""
    state, _ = _granted(EMPTY, _ask(1, wants=5_000, slots=10), 0)
    lapsed = advance(state, T0 + 6_000, TERMS)
    assert lapsed.input_tokens_level == 5_000_000 - 1_000_000
    assert held(_lease(lapsed)) == (0, 0, 0)
    assert _granted(lapsed, _ask(1, holder="b"), 24_999)[1].slots == 0
    assert _granted(lapsed, _ask(1, holder="b"), 25_000)[1].slots == 4


def test_a_new_epoch_starts_without_what_the_old_one_held() -> None:
    """E2. The old epoch's 6 slots come back when its calls have surely ended, its tokens are not refunded."""
    state, _ = _granted(EMPTY, _ask(7, wants=5_000, slots=6), 0)
    state, answer = _granted(state, _ask(1, epoch=2, wants=5_000, slots=10), 100)
    assert (answer.slots, answer.granted.input_tokens) == (4, 0)
    _, later = _granted(state, _ask(2, epoch=2, slots=10), 100 + ORPHANED_MS)
    assert later.slots == 10


@pytest.mark.parametrize(
    ("seq", "in_use", "free"),
    [
        (3, 0, 5),  # 3 follows 2: the lowered grant arrived
        (3, 8, 2),  # it arrived, but 8 calls are still in flight
        (4, 0, 0),  # 4 does not tell that it arrived: 10 may be in flight
    ],
)
def test_lowered_slots_are_free_once_the_holder_knows(seq: int, in_use: int, free: int) -> None:
    """E2. 10 slots for one, then half for each of two."""
    waiting = {"a": _waiting(0, 10), "b": _waiting(0, 10)}
    state, _ = _granted(EMPTY, _ask(1, slots=10), 0)
    state, none = _granted(state, _ask(1, holder="b", slots=10), 10, waiting=waiting)
    state, lowered = _granted(state, _ask(2, slots=10, in_use=10), 20, waiting=waiting)
    assert (none.slots, lowered.slots, occupied(_lease(state))) == (0, 5, 10)
    state, _ = _granted(state, _ask(seq, slots=10, in_use=in_use), 30, waiting=waiting)
    _, answer = _granted(state, _ask(2, holder="b", slots=10), 40, waiting=waiting)
    assert answer.slots == free


def test_room_goes_by_the_time_since_a_holder_had_its_part() -> None:
    """E3. 2,000 tokens of room: b waited 100 ms since its part, a 300 ms: a gets 3/4."""
    state, _ = _granted(EMPTY, _ask(1, wants=1_500), 0)
    state, _ = _granted(state, _ask(1, holder="b", wants=1_500), 0)
    state, _ = _granted(state, _ask(2, used=1_500, in_use=1), 0)
    state, _ = _granted(state, _ask(2, holder="b", used=1_500, in_use=1), 0)
    waiting = {"a": _waiting(5_000, 4, asked_at_ms=-300), "b": _waiting(5_000, 4, asked_at_ms=-100)}
    _, answer = _granted(state, _ask(3, wants=5_000, used=1_500, in_use=1), 0, waiting=waiting)
    assert answer.granted.input_tokens == 1_500 + 1_500


def test_a_call_larger_than_the_burst_goes_alone_when_the_level_has_drained() -> None:
    """E3. The burst is 5,000, the call needs 8,000: granted as debt, and the next waits until it has drained."""
    state, answer = _granted(EMPTY, _ask(1, wants=8_000, calls=1), 0)
    assert answer.granted.input_tokens == 8_000
    state, _ = _granted(state, _ask(2, reserved=8_000, in_use=1), 0)
    _, other = _granted(state, _ask(1, holder="b", wants=8_000, calls=1), 2_900)
    assert other.granted.input_tokens == 0


def test_a_take_over_lets_no_time_pass() -> None:
    """E2. The new owner's clock is a day ahead; level and lease are what they were when the row was written."""
    state, _ = _granted(EMPTY, _ask(1, wants=5_000), 0)
    state = advance(state, T0 + 3_000, TERMS)
    day_ms = 86_400_000
    taken = take_over(state, T0 + day_ms)
    assert taken.input_tokens_level == state.input_tokens_level == 5_000_000
    assert _lease(taken).remaining_ms == 5_000 - 3_000
    assert _granted(taken, _ask(1, holder="b", wants=5_000), day_ms)[1].granted.input_tokens == 0


def test_a_clock_that_was_set_back_lets_no_time_pass() -> None:
    state, _ = _granted(EMPTY, _ask(1, wants=5_000), 0)
    back = advance(state, T0 - 60_000, TERMS)
    assert back == replace(state, updated_at_ms=T0 - 60_000)


@pytest.mark.parametrize(
    ("capacity", "wants", "shares"),
    [
        (10, {"a": 3, "b": 100, "c": 100}, {"a": 3, "b": 4, "c": 3}),  # a is content; 7 left for two, b is first
        (10, {"a": 2, "b": 3}, {"a": 2, "b": 3}),  # enough for all
        (1, {"a": 1, "b": 1}, {"a": 1, "b": 0}),
        (-2, {"a": 1}, {"a": 0}),
    ],
)
def test_division(capacity: int, wants: dict[str, int], shares: dict[str, int]) -> None:
    """E2"""
    assert divide(capacity, wants, sorted(wants)) == shares


@given(
    st.integers(0, 1_000),
    st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(0, 500), st.integers(1, 9)), min_size=1),
)
def test_division_wastes_nothing_and_exceeds_no_want(capacity: int, holders: dict[str, tuple[int, int]]) -> None:
    """E2"""
    wants = {name: want for name, (want, _) in holders.items()}
    shares = divide(capacity, wants, sorted(wants), {name: weight for name, (_, weight) in holders.items()})
    assert sum(shares.values()) == min(capacity, sum(wants.values()))
    assert all(0 <= shares[name] <= wants[name] for name in wants)


@pytest.mark.parametrize(
    ("limit", "thousandths"),
    [
        (60_000, 5_000_000),  # 1,000 a second × 5 s
        (600, 50_000),  # 10 a second × 5 s
        (6, 1_000),  # a tenth of a request a second × 5 s is less than one request
    ],
)
def test_burst(limit: int, thousandths: int) -> None:
    """E2"""
    assert burst(limit) == thousandths


@given(st.integers(1, 100_000), st.lists(st.integers(1, 500), max_size=30))
def test_many_short_steps_drain_as_much_as_a_long_one(limit: int, steps_ms: list[int]) -> None:
    """E2"""
    level = whole = 10_000_000_000
    now_ms = T0
    for step_ms in steps_ms:
        level = drained(level, limit, now_ms, now_ms + step_ms)
        now_ms += step_ms
    assert level == drained(whole, limit, T0, now_ms)
