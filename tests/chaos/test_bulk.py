"""The judge of a batch job finds what is wrong with it: each case is a good run with one thing spoilt."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from chaos.bulk.oracle import Books, Evidence, Findings, judge
from chaos.bulk.plan import bulk_plans
from chaos.bulk.rows import Seen
from chaos.oracle import Item
from kit.bill import Booked, Charge
from nightmill.kernel.domain.lifecycle import ProviderBatchState
from nightmill.kernel.wire.messages import ProviderBatchRow

KILLED_MS = 10_000


def seen(submission: str, state: ProviderBatchState, at_ms: int, batch_id: str | None = None) -> Seen:
    row = ProviderBatchRow(
        submission_id=submission,
        anchor="shard",
        pool="p",
        state=state,
        spans=(),
        requests=1,
        bytes=1,
        input_tokens=1,
        fingerprint="f",
        owner="i",
        intent_at_ms=1,
        provider_batch_id=batch_id,
        absent_not_run=False,
    )
    return Seen(at_ms=at_ms, row=row)


def charge(number: int, **fields: Any) -> Charge:
    whole = Charge(
        attempt_id=f"item{number}-1", model="m", billed=True, delivered=True, nano_usd=7, batch_id=f"batch{number}"
    )
    return replace(whole, **fields)


def booked(number: int, **fields: Any) -> Booked:
    whole = Booked(
        attempt_id=f"item{number}-1",
        model="m",
        state="answered",
        billed="yes",
        signal="",
        verdict="accepted",
        cost_nano_usd=7,
        reserved_nano_usd=9,
    )
    return replace(whole, **fields)


def item(number: int) -> Item:
    return Item(source_id=f"d{number}", outcome="accepted", attempt_id=f"item{number}-1", settled_at_ms=KILLED_MS + 1)


#: the first submission was at the provider when the gateway died; the create of the second was under way, and is found
GOOD = Evidence(
    documents=frozenset({"d1", "d2"}),
    state="published",
    published=("d1", "d2"),
    books=Books(
        created=2,
        charges=(charge(1), charge(2)),
        rows=(
            seen("s1", ProviderBatchState.ARMED, 8_000),
            seen("s1", ProviderBatchState.SUBMITTED, 9_000, "batch1"),
            seen("s2", ProviderBatchState.ARMED, 9_500),
            seen("s2", ProviderBatchState.SUBMITTED, KILLED_MS + 150_000, "batch2"),
        ),
        booked=(booked(1), booked(2)),
        items=(item(1), item(2)),
    ),
    killed_at_ms=(KILLED_MS,),
    ready_at_ms=KILLED_MS + 4_000,
)


def with_books(**fields: Any) -> Evidence:
    return replace(GOOD, books=replace(GOOD.books, **fields))


def test_a_create_that_is_found_again_is_paid_once() -> None:
    """E1, E6, M4."""
    found = judge(GOOD)
    assert found.broken == []
    [kill] = found.kills
    assert kill.states == {ProviderBatchState.SUBMITTED: 1, ProviderBatchState.ARMED: 1}
    assert (kill.adopted, kill.never_were, kill.recovered_ms) == (1, 0, 150_000)
    assert (found.created, found.named, found.submissions, found.agreement.billed) == (2, 2, 2, 2)


def test_a_create_that_never_was_is_told() -> None:
    rows = (*GOOD.books.rows[:3], seen("s2", ProviderBatchState.WITHDRAWN, KILLED_MS + 160_000))
    [kill] = judge(with_books(rows=rows)).kills
    assert (kill.adopted, kill.never_were, kill.recovered_ms) == (0, 1, 160_000)


def test_a_create_that_stays_in_doubt_is_not_recovered() -> None:
    [kill] = judge(with_books(rows=GOOD.books.rows[:3])).kills
    assert kill.recovered_ms is None


BROKEN: dict[str, tuple[Evidence, Callable[[Findings], bool]]] = {
    "a document without a result": (replace(GOOD, published=("d1",)), lambda found: found.lost == 1),
    "a document with two results": (
        replace(GOOD, published=("d1", "d2", "d2")),
        lambda found: found.published_twice == 1,
    ),
    "a batch that no row names": (
        with_books(charges=(charge(1), charge(2, batch_id="other"))),
        lambda found: found.unnamed == {"other"},
    ),
    "a batch that was created a second time": (with_books(created=3), lambda found: found.created > found.named),
    "a line that was billed in two batches": (
        with_books(charges=(*GOOD.books.charges, charge(2, batch_id="batch1"))),
        lambda found: found.paid_twice == 1,
    ),
    "an answer that was thrown away": (
        with_books(
            charges=(*GOOD.books.charges, charge(2, attempt_id="item2-2")),
            booked=(*GOOD.books.booked, booked(2, attempt_id="item2-2")),
        ),
        lambda found: found.paid_twice == 1,
    ),
    "an attempt of which nobody knows": (
        with_books(booked=(booked(1), booked(2, state="unknown", billed="unknown", cost_nano_usd=None))),
        lambda found: found.unknown == 1,
    ),
    "a cost that is not the bill's": (
        with_books(booked=(booked(1), booked(2, cost_nano_usd=8))),
        lambda found: not found.agreement.agrees,
    ),
    "a job that was not published": (replace(GOOD, state="held"), lambda found: found.state == "held"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_wrong_is_found(case: str) -> None:
    """E1, M4, O1: the instrument can fail."""
    evidence, is_found = BROKEN[case]
    found = judge(evidence)
    assert is_found(found)
    assert found.broken


def test_an_answer_that_failed_validation_may_be_asked_for_again() -> None:
    again = with_books(
        charges=(*GOOD.books.charges, charge(2, attempt_id="item2-2")),
        booked=(booked(1), booked(2), booked(2, attempt_id="item2-2", verdict="repairable")),
    )
    assert judge(again).broken == []


def test_number_and_seed_decide_a_plan() -> None:
    assert list(bulk_plans(10, 7, 16))[:5] == list(bulk_plans(4, 7, 16))
    wanted = list(bulk_plans(10, 7, 16))
    assert wanted[1:] != list(bulk_plans(10, 8, 16))[1:]
    assert len({plan.when for plan in wanted}) == 11
    assert all(1 <= plan.moments[0].create <= 16 for plan in wanted[2::2])
