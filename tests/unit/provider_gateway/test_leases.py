"""The holder's side, step by step. Times are in ms from T0; the governor's answers are written by hand."""

import pytest

from nightmill.kernel.wire.messages import LeaseAmounts, LeaseGranted, LeaseRequested
from nightmill.provider_gateway.leases import NO_AMOUNTS, LeaseHolder, Wanted, holder_id

T0 = 1_796_000_000_000


def _holder() -> LeaseHolder:
    return LeaseHolder(pool="mini", pool_slots=1_000, instance="0", partition=1, epoch=T0)


def _wanted(calls: int, tokens: int = 100) -> Wanted:
    return Wanted(calls=calls, input_tokens=calls * tokens, next_input_tokens=tokens)


def _ask(holder: LeaseHolder, at_ms: int, wanted: Wanted) -> LeaseRequested:
    ask = holder.ask(T0 + at_ms, wanted)
    assert ask is not None
    return ask


def _answer(
    ask: LeaseRequested, *, slots: int = 10, tokens: int = 1_000, requests: int = 100, epoch: int = T0
) -> LeaseGranted:
    return LeaseGranted(
        pool="mini",
        holder=ask.holder,
        holder_partition=1,
        epoch=epoch,
        seq=ask.seq,
        granted=LeaseAmounts(requests=requests, input_tokens=tokens, output_tokens=0),
        slots=slots,
        ttl_ms=4_000,
        granted_at_ms=0,
    )


def _leased(calls: int = 10, **answer: int) -> LeaseHolder:
    """A holder that asked at 0 for `calls` calls of 100 tokens and was answered at 50."""
    holder = _holder()
    holder.on_granted(_answer(_ask(holder, 0, _wanted(calls)), **answer), T0 + 50)
    return holder


def _used(tokens: int) -> LeaseAmounts:
    return LeaseAmounts(requests=1, input_tokens=tokens, output_tokens=0)


def test_nothing_starts_without_a_lease() -> None:
    """E3"""
    holder = _holder()
    assert not holder.may_start(0, 0, T0)
    assert holder.ask(T0, Wanted()) is None


def test_the_first_ask_is_for_the_queue() -> None:
    """E2"""
    ask = _ask(_holder(), 0, _wanted(7))
    assert (ask.holder, ask.holder_partition) == ("mini@0-1", 1)
    assert ask.holder == holder_id("mini", "0", 1)
    assert (ask.seq, ask.wants_slots, ask.wants.requests, ask.wants.input_tokens) == (1, 7, 7, 700)


def test_the_ttl_counts_from_the_ask_and_not_from_the_answer() -> None:
    """E2. Asked at 0, answered at 3,000: over at 4,000."""
    holder = _holder()
    ask = _ask(holder, 0, _wanted(1))
    holder.on_granted(_answer(ask), T0 + 3_000)
    assert holder.may_start(100, 0, T0 + 3_999)
    assert holder.reserve(100, 0, T0 + 3_999).start_before_ms == T0 + 4_000
    assert not holder.may_start(100, 0, T0 + 4_000)
    assert holder.available(T0 + 4_000) == NO_AMOUNTS


@pytest.mark.parametrize(
    ("slots", "tokens", "requests", "starts"),
    [
        (3, 1_000, 100, 3),  # slots
        (10, 250, 100, 2),  # 250 tokens are two calls of 100
        (10, 1_000, 4, 4),  # requests
        (0, 1_000, 100, 0),
    ],
)
def test_what_may_start(slots: int, tokens: int, requests: int, starts: int) -> None:
    """E2: slots, requests and tokens are reserved before the call."""
    holder = _leased(slots=slots, tokens=tokens, requests=requests)
    while holder.may_start(100, 0, T0 + 60):
        holder.reserve(100, 0, T0 + 60)
    assert holder.in_flight == starts


def test_a_slot_is_used_again_at_once() -> None:
    """E2"""
    holder = _leased(slots=1)
    for _ in range(5):
        assert holder.may_start(100, 0, T0 + 60)
        holder.settle(holder.reserve(100, 0, T0 + 60), _used(100))
    assert holder.available(T0 + 60).input_tokens == 1_000 - 500


@pytest.mark.parametrize(
    ("used", "left", "requests"),
    [
        (_used(30), 970, 99),  # fewer tokens than reserved
        (_used(180), 820, 99),  # more
        (None, 900, 99),  # nobody knows: as reserved
        (NO_AMOUNTS, 1_000, 100),  # never sent
    ],
)
def test_settling(used: LeaseAmounts | None, left: int, requests: int) -> None:
    """E2: settled with actual use."""
    holder = _leased()
    holder.settle(holder.reserve(100, 0, T0 + 60), used)
    available = holder.available(T0 + 60)
    assert (available.input_tokens, available.requests) == (left, requests)


def test_what_comes_back_after_an_ask_never_lifts_what_is_held_above_what_the_ask_reported() -> None:
    """E2. 900 held at the ask; the call of 100 gives 70 back, which are the pool's until they are granted again."""
    holder = _leased()
    call = holder.reserve(100, 0, T0 + 60)
    ask = _ask(holder, 2_000, _wanted(10))
    assert ask.reserved.input_tokens == 100
    holder.settle(call, _used(30))
    assert holder.available(T0 + 2_010).input_tokens == 900
    holder.on_granted(_answer(ask), T0 + 2_050)
    assert holder.available(T0 + 2_060).input_tokens == 900


def test_a_call_that_did_not_leave_is_held_and_not_started() -> None:
    """E2: the pool's level would drain of it, and it would arrive beside what is granted in its place."""
    holder = _leased(requests=10)
    sent, unsent = holder.reserve(100, 0, T0 + 60), holder.reserve(200, 0, T0 + 60)
    ask = holder.ask(T0 + 2_000, _wanted(8), lambda: (1, unsent.input_tokens, unsent.output_tokens))
    assert ask is not None
    assert (ask.reserved.requests, ask.reserved.input_tokens) == (1, 100)
    assert (ask.wants.requests, ask.wants.input_tokens) == (8 + 1, 8 * 100 + 200)
    holder.settle(sent, _used(100))
    holder.settle(unsent, NO_AMOUNTS)
    assert holder.available(T0 + 2_010).requests == 9  # what comes back unsent is the holder's to start


@pytest.mark.parametrize("kind", ["repeated", "overtaken", "other epoch", "never asked"])
def test_answers_that_change_nothing(kind: str) -> None:
    """E2"""
    holder = _holder()
    first = _ask(holder, 0, _wanted(2))
    second = _ask(holder, 100, _wanted(9))
    holder.on_granted(_answer(second, slots=5), T0 + 150)
    other = {
        "repeated": _answer(second, slots=9),
        "overtaken": _answer(first, slots=9),
        "other epoch": _answer(second, slots=9, epoch=T0 - 1),
        "never asked": _answer(second, slots=9),
    }[kind]
    if kind == "never asked":
        other = LeaseGranted(**{name: getattr(other, name) for name in other.__struct_fields__} | {"seq": 99})
    holder.on_granted(other, T0 + 160)
    assert holder.slots == 5


@pytest.mark.parametrize(
    ("at_ms", "wanted", "due"),
    [
        (60, 5, False),  # all is held
        (1_999, 5, False),
        (2_000, 5, True),  # half life
        (110, 40, True),  # the queue outgrew what is held
        (90, 40, False),  # never within 100 ms
    ],
)
def test_when_an_ask_is_due(at_ms: int, wanted: int, due: bool) -> None:
    """E2, E3"""
    assert (_leased().ask(T0 + at_ms, _wanted(wanted)) is not None) == due


def test_an_answer_that_gave_less_is_not_asked_again_at_once() -> None:
    """E3: no retry loop. 40 wanted, 10 given: the next ask is 500 ms later."""
    holder = _leased(calls=40)
    assert holder.ask(T0 + 490, _wanted(40)) is None
    assert holder.ask(T0 + 500, _wanted(40)) is not None


@pytest.mark.parametrize(("slots", "next_ms"), [(10, 1_000), (0, 500)])
def test_slots_that_another_holder_gave_back_are_asked_for_at_once(slots: int, next_ms: int) -> None:
    """Q5. 40 wanted, 10 slots or none given: the next ask comes with time, or when there is something to get."""
    holder = _leased(calls=40, slots=slots, tokens=9_000)
    assert holder.ask(T0 + next_ms - 1, _wanted(40)) is None
    holder.slots_freed()
    again = _ask(holder, next_ms - 1, _wanted(40))
    holder.on_granted(_answer(again, slots=slots, tokens=9_000), T0 + next_ms)
    assert holder.ask(T0 + 2 * next_ms - 2, _wanted(40)) is None  # once
    assert holder.ask(T0 + 2 * next_ms - 1, _wanted(40)) is not None


def test_slots_that_another_holder_gave_back_are_no_reason_to_ask_for_more_than_is_wanted() -> None:
    """E2"""
    holder = _leased()
    holder.slots_freed()
    assert holder.ask(T0 + 110, _wanted(10)) is None


def test_an_idle_lease_is_given_up_and_its_late_answers_are_void() -> None:
    """E2"""
    holder = _leased()
    assert holder.ask(T0 + 100, Wanted()) is None
    assert holder.ask(T0 + 599, Wanted()) is None
    ask = _ask(holder, 600, Wanted())
    assert (ask.wants_slots, ask.slots_in_use, ask.wants) == (0, 0, NO_AMOUNTS)
    assert not holder.may_start(1, 0, T0 + 601)
    holder.on_granted(_answer(ask), T0 + 650)
    assert not holder.may_start(1, 0, T0 + 651)
    assert holder.ask(T0 + 60_000, Wanted()) is None
    assert holder.ask(T0 + 60_000, _wanted(1)) is not None


def test_the_number_of_an_ask_tells_whether_the_answer_before_it_arrived() -> None:
    """E2. 1 answered → 2; 2 lost → 4; 4 answered → 5."""
    holder = _leased()
    assert _ask(holder, 2_000, _wanted(5)).seq == 2
    assert holder.ask(T0 + 2_999, _wanted(5)) is None
    fourth = _ask(holder, 3_000, _wanted(5))
    assert fourth.seq == 4
    holder.on_granted(_answer(fourth), T0 + 3_050)
    assert _ask(holder, 5_000, _wanted(5)).seq == 5


def test_lowered_slots_are_acknowledged_as_soon_as_the_calls_fit() -> None:
    """E2. 3 calls in flight, 2 slots left: the ask comes when one of them has ended."""
    holder = _leased()
    calls = [holder.reserve(100, 0, T0 + 60) for _ in range(3)]
    ask = _ask(holder, 2_000, _wanted(5))
    holder.on_granted(_answer(ask, slots=2), T0 + 2_050)
    assert holder.ask(T0 + 2_200, _wanted(5)) is None
    holder.settle(calls[0], _used(100))
    assert _ask(holder, 2_200, _wanted(5)).seq == ask.seq + 1


def test_the_calls_that_fit_lowered_slots_are_those_that_have_one() -> None:
    """E2, Q5. Others are reserved and wait for one: who has more slots than its share lets go of them at once."""
    holder = _leased()
    for _ in range(6):
        holder.reserve(100, 0, T0 + 60)
    ask = _ask(holder, 2_000, _wanted(5))
    holder.on_granted(_answer(ask, slots=2), T0 + 2_050)
    assert holder.ask(T0 + 2_200, _wanted(5), slots_in_use=3) is None
    told = holder.ask(T0 + 2_200, _wanted(5), slots_in_use=2)
    assert told is not None
    assert (told.seq, told.slots_in_use) == (ask.seq + 1, 2)


@pytest.mark.parametrize(("calls", "slots", "at_ms"), [(40, 5, 1_000), (2_000, 1_000, 2_000)])
def test_slots_that_somebody_gave_up_are_asked_for(calls: int, slots: int, at_ms: int) -> None:
    """E2, Q5. After a second, where the pool has more than were given."""
    holder = _holder()
    answer = _answer(_ask(holder, 0, _wanted(calls)), slots=slots, tokens=1_000_000, requests=10_000)
    holder.on_granted(answer, T0 + 50)
    assert holder.ask(T0 + at_ms - 1, _wanted(calls)) is None
    assert holder.ask(T0 + at_ms, _wanted(calls)) is not None


def test_slots_that_are_of_no_use_are_given_back() -> None:
    """E2, Q5. Ten slots, four calls for half a second: the others can have six of them."""
    holder = _leased()
    assert holder.ask(T0 + 100, _wanted(6)) is None
    assert holder.ask(T0 + 200, _wanted(4)) is None
    assert holder.ask(T0 + 600, _wanted(6)) is None  # six were of use again
    assert holder.ask(T0 + 700, _wanted(4)) is None
    assert holder.ask(T0 + 1_199, _wanted(4)) is None
    assert _ask(holder, 1_200, _wanted(4)).wants_slots == 4


def test_the_ask_reaches_ahead_of_the_queue() -> None:
    """E2. 100 calls in a second make 800 in two ttl of 4 s, though only 5 are waiting."""
    holder = _leased(tokens=1_000_000, requests=1_000)
    for at_ms in range(1_000, 2_000, 10):
        holder.settle(holder.reserve(100, 0, T0 + at_ms), _used(100))
    ask = _ask(holder, 2_000, _wanted(5))
    assert (ask.wants.requests, ask.wants.input_tokens) == (800, 80_000)
    assert ask.used.requests == 100


def test_a_call_that_does_not_fit_is_asked_for_alone() -> None:
    """E3. Nothing started on 50 tokens and a call needs 100: only that call is wanted, so it may be let through."""
    holder = _leased(tokens=50)
    assert not holder.may_start(100, 0, T0 + 60)
    ask = _ask(holder, 500, _wanted(40))
    assert (ask.wants.requests, ask.wants.input_tokens) == (1, 100)


def test_a_clock_that_was_set_back_makes_no_lease_longer() -> None:
    """E2. Asked at 0, the clock then shows -10,000: the lease is over at -6,000."""
    holder = _holder()
    holder.on_granted(_answer(_ask(holder, 0, _wanted(1))), T0 - 10_000)
    assert holder.may_start(100, 0, T0 - 6_001)
    assert not holder.may_start(100, 0, T0 - 6_000)
