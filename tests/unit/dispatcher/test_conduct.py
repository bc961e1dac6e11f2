"""A tenant whose prompts are filtered again and again goes slowly, and quickly again when they are not."""

import pytest

from nightmill.dispatcher.conduct import ANSWERS, MOST_FILTERED, SLOW_ITEMS, Conduct
from nightmill.kernel.domain.failures import Billed, FailureClass
from nightmill.kernel.wire.messages import Failure

SLOW, OTHER = "acme.labels", "other.labels"
BATCH = "acme.labels.20261130-101500-0001.1"
MINUTE_MS = 60_000


def failed(signal: str, failure_class: FailureClass = FailureClass.POLICY) -> Failure:
    return Failure(failure_class=failure_class, signal=signal, message="", uses_retry_budget=True, billed=Billed.NO)


FILTERED = failed("prompt_filtered")


def slow(conduct: Conduct, *, minted_at_ms: int = 0) -> list[bool]:
    return [conduct.answered(SLOW, FILTERED, minted_at_ms=minted_at_ms) for _ in range(MOST_FILTERED)]


def test_the_twentieth_slows_its_tenant_and_no_other() -> None:
    """E8."""
    conduct = Conduct()
    conduct.turn(5_000)
    assert slow(conduct) == [False] * (MOST_FILTERED - 1) + [True]
    assert conduct.slowed() == {"acme": 5_000 + 15 * MINUTE_MS}
    assert (conduct.most(BATCH, 50), conduct.most(f"{OTHER}.1", 50)) == (SLOW_ITEMS, 50)


def test_ten_items_a_minute() -> None:
    conduct = Conduct()
    conduct.turn(0)
    slow(conduct)
    given = []
    for now_ms in (0, 1_000, MINUTE_MS - 1, MINUTE_MS, MINUTE_MS + 1):
        conduct.turn(now_ms)
        given.append(conduct.most(BATCH, 7))
        conduct.took(BATCH, given[-1])
    assert given == [7, 3, 0, 7, 3]
    conduct.turn(15 * MINUTE_MS)
    assert conduct.most(BATCH, 50) == 50


def test_twice_as_long_each_time_up_to_four_hours() -> None:
    conduct, spans = Conduct(), []
    now_ms = 0
    for _ in range(6):
        conduct.turn(now_ms)
        slow(conduct, minted_at_ms=now_ms)
        spans.append((conduct.slowed()["acme"] - now_ms) // MINUTE_MS)
        now_ms = conduct.slowed()["acme"]
    assert spans == [15, 30, 60, 120, 240, 240]


def test_what_was_on_its_way_does_not_count_again() -> None:
    conduct = Conduct()
    conduct.turn(5_000)
    slow(conduct, minted_at_ms=4_000)
    assert slow(conduct, minted_at_ms=4_999) == [False] * MOST_FILTERED
    assert conduct.slowed() == {"acme": 5_000 + 15 * MINUTE_MS}


def test_good_answers_begin_it_anew() -> None:
    conduct = Conduct()
    conduct.turn(0)
    slow(conduct)
    for _ in range(ANSWERS):
        assert not conduct.answered(SLOW, None, minted_at_ms=0)
    conduct.turn(15 * MINUTE_MS)
    slow(conduct, minted_at_ms=15 * MINUTE_MS)
    assert conduct.slowed() == {"acme": 30 * MINUTE_MS}


@pytest.mark.parametrize(
    "failure",
    [
        failed("refusal"),
        failed("server_error", FailureClass.TRANSIENT),
        failed("key_refused", FailureClass.ACCOUNT),
        None,
    ],
)
def test_what_is_no_filter_counts_for_nothing(failure: Failure | None) -> None:
    """A model that refuses by itself says nothing against the account."""
    conduct = Conduct()
    conduct.turn(0)
    for _ in range(200):
        assert not conduct.answered(SLOW, failure, minted_at_ms=0)
    assert conduct.most(BATCH, 50) == 50


def test_a_few_among_many_are_no_matter() -> None:
    """One in six is a quarter less than what slows a tenant down."""
    conduct = Conduct()
    conduct.turn(0)
    assert not any(conduct.answered(SLOW, FILTERED if n % 6 == 0 else None, minted_at_ms=0) for n in range(2_000))
