"""The judge of a run finds what is wrong with it: each case is a good run with one thing spoilt."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from chaos.oracle import Attempt, Call, Evidence, Findings, Item, judge

FAULT_MS = 10_000


def call(number: int, ordinal: int = 1, **fields: object) -> Call:
    whole = Call(
        attempt_id=f"item{number}-{ordinal}",
        billed=True,
        input_tokens=20,
        output_tokens=4,
        fault=None,
        started_at_ms=FAULT_MS - 100,
        ended_at_ms=FAULT_MS + 100,
    )
    return replace(whole, **fields)  # type: ignore[arg-type]


def attempt(number: int, ordinal: int = 1, **fields: object) -> Attempt:
    whole = Attempt(
        attempt_id=f"item{number}-{ordinal}",
        state="answered",
        billed="yes",
        verdict="accepted",
        input_tokens=20,
        output_tokens=4,
        late=False,
    )
    return replace(whole, **fields)  # type: ignore[arg-type]


def lost_call(number: int, ordinal: int = 1) -> Attempt:
    return attempt(
        number, ordinal, state="unknown", billed="unknown", verdict="", input_tokens=None, output_tokens=None
    )


#: document 2 was under way when the gateway died: called again, and paid twice
GOOD = Evidence(
    documents=frozenset({"d1", "d2"}),
    state="published",
    spent_tokens=48,
    published=("d1", "d2"),
    calls=(call(1), call(2), call(2, 2, started_at_ms=FAULT_MS + 3_000, ended_at_ms=FAULT_MS + 3_200)),
    attempts=(attempt(1), lost_call(2), attempt(2, 2)),
    items=(
        Item(source_id="d1", outcome="accepted", attempt_id="item1-1", settled_at_ms=FAULT_MS + 500),
        Item(source_id="d2", outcome="accepted", attempt_id="item2-2", settled_at_ms=FAULT_MS + 3_500),
    ),
    fault_at_ms=FAULT_MS,
    lost_calls_at_ms=(FAULT_MS,),
)


def test_a_call_in_flight_may_be_paid_twice() -> None:
    """E1, M4."""
    assert judge(GOOD) == Findings(
        state="published",
        lost=0,
        published_twice=0,
        called_twice=0,
        paid_twice=1,
        in_flight=2,
        unexplained=0,
        unknown=1,
        unknown_by_provider=0,
        mismatches=(),
        next_settled_ms=500,
        standstill_ms=3_000,
    )
    assert judge(GOOD).broken == []


def failed(number: int, ordinal: int, billed: str) -> Attempt:
    return replace(lost_call(number, ordinal), state="failed", billed=billed)


def with_call(evidence: Evidence, one: Call, its: Attempt) -> Evidence:
    """One more call for document 1, after its answer and long after the fault."""
    late = replace(one, started_at_ms=FAULT_MS + 9_000, ended_at_ms=FAULT_MS + 9_200)
    spent = evidence.spent_tokens + (its.input_tokens or 0) + (its.output_tokens or 0)
    return replace(evidence, calls=(*evidence.calls, late), attempts=(*evidence.attempts, its), spent_tokens=spent)


def with_first(evidence: Evidence, its: Attempt) -> Evidence:
    return replace(evidence, attempts=(its, *evidence.attempts[1:]))


ALLOWED: dict[str, Evidence] = {
    "an answer that failed validation": with_call(GOOD, call(1, 2), attempt(1, 2, verdict="repairable")),
    "an answer that the provider kept back": with_call(GOOD, call(1, 2, fault="cut_json"), failed(1, 2, "yes")),
    "a call that was refused": with_call(GOOD, call(1, 2, billed=False), failed(1, 2, "no")),
    "a reset that nobody can judge": with_call(GOOD, call(1, 2, fault="reset_after_billing"), lost_call(1, 2)),
}

BROKEN: dict[str, tuple[Evidence, Callable[[Findings], int]]] = {
    "a document without a result": (replace(GOOD, published=("d1",)), lambda found: found.lost),
    "a document with two results": (replace(GOOD, published=("d1", "d2", "d2")), lambda found: found.published_twice),
    "a result of another job": (replace(GOOD, published=("d1", "d2", "x")), lambda found: found.published_twice),
    "an attempt that was called twice": (replace(GOOD, calls=(*GOOD.calls, call(1))), lambda found: found.called_twice),
    "a call paid again that was not in flight": (
        with_call(GOOD, call(1, 2), attempt(1, 2)),
        lambda found: found.unexplained,
    ),
    "a call paid again although no gateway died": (
        replace(GOOD, lost_calls_at_ms=()),
        lambda found: found.paid_twice - found.in_flight,
    ),
    "a call that the ledger does not have": (
        replace(GOOD, attempts=(attempt(1), attempt(2, 2))),
        lambda found: len(found.mismatches),
    ),
    "a call that the provider does not have": (
        replace(GOOD, attempts=(*GOOD.attempts, attempt(3)), spent_tokens=72),
        lambda found: len(found.mismatches),
    ),
    "other tokens than were billed": (
        replace(with_first(GOOD, attempt(1, output_tokens=5)), spent_tokens=49),
        lambda found: len(found.mismatches),
    ),
    "billed, and said not to be": (with_first(GOOD, failed(1, 1, "no")), lambda found: len(found.mismatches)),
    "an attempt that stands twice in the ledger": (
        replace(GOOD, attempts=(*GOOD.attempts, lost_call(2))),
        lambda found: len(found.mismatches),
    ),
    "a job that charges other than its attempts": (replace(GOOD, spent_tokens=49), lambda found: len(found.mismatches)),
    "a job that was not published": (replace(GOOD, state="held"), lambda found: found.state == "held"),
}


@pytest.mark.parametrize("case", ALLOWED)
def test_what_the_provider_caused_is_not_paid_twice(case: str) -> None:
    found = judge(ALLOWED[case])
    assert found.broken == []
    assert found.paid_twice == judge(GOOD).paid_twice


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_wrong_is_found(case: str) -> None:
    """E1, M4, O1: the instrument can fail."""
    evidence, count = BROKEN[case]
    found = judge(evidence)
    assert count(found) > 0
    assert found.broken
