"""What a judgement means for an item."""

import dataclasses
from typing import Any

import pytest

from nightmill.dispatcher.account import charge, charge_late
from nightmill.dispatcher.judge import CallAgain, End, Mend, Requeue, Rules, judge, late
from nightmill.dispatcher.packing import attempt_of
from nightmill.kernel.domain.failures import Billed, FailureClass
from nightmill.kernel.domain.lifecycle import AttemptState, ItemOutcome, ItemState, VerdictKind
from nightmill.kernel.domain.settings import Retry
from nightmill.kernel.wire.messages import AttemptJudged, ItemStateRow, ShardAttempt, Waiter
from nightmill.kernel.wire.totals import NO_TOTALS
from nightmill.kernel.wire.values import replace
from unit.dispatcher.stage import ACCEPTED, REPAIRABLE, RULES, A, Stage, answer, failed, failure, judged, verdict

LIMITS = Rules(attempts=3, repairs=1, retry=Retry(classes=RULES, capacity_limit=600.0))
MORE = dataclasses.replace(LIMITS, attempts=4)


@pytest.fixture
def row(stage: Stage) -> ItemStateRow:
    """An item whose first attempt is under way."""
    stage.plan(A)
    stage.tick()
    return stage.row()


def attempt(row: ItemStateRow) -> ShardAttempt:
    assert row.payer is not None
    return attempt_of(row, row.payer, row.input_tokens)


def rule(row: ItemStateRow, message: AttemptJudged, headroom: int = 10_000, limits: Rules = LIMITS) -> Any:
    return judge(row, message, rules=limits, headroom_tokens=headroom, now_ms=1_000, jitter=0.0)


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        (ACCEPTED, ItemOutcome.ACCEPTED),
        (verdict(VerdictKind.REVIEW, rule="range"), ItemOutcome.IN_REVIEW),
        (verdict(VerdictKind.REJECTED, rule="enum"), ItemOutcome.REJECTED),
    ],
)
def test_verdicts_end_an_item(row: ItemStateRow, said: Any, outcome: ItemOutcome) -> None:
    """Q1, Q2."""
    ruling = rule(row, judged(attempt(row), said))
    assert isinstance(ruling, End)
    assert (ruling.outcome, ruling.verdict, ruling.output) == (outcome, said, '{"label":"x"}')
    assert ruling.attempt_id == (f"{row.item_key}-1" if outcome is ItemOutcome.ACCEPTED else None)


@pytest.mark.parametrize(
    ("repairs", "tries", "headroom", "mended"),
    [
        (0, 0, 10_000, True),
        (1, 0, 10_000, False),  # the one repair was used
        (0, 2, 10_000, False),  # three attempts in all, this is the third
        (0, 0, 20, False),  # the repair's text does not fit any context
    ],
)
def test_one_repair_then_review(row: ItemStateRow, repairs: int, tries: int, headroom: int, mended: bool) -> None:
    """Q2, E8: output invalid is repaired once, then parked."""
    row = replace(row, repairs=repairs, tries=tries)
    invalid = failure(FailureClass.OUTPUT_INVALID, signal="finish_length", message="cut at the limit")
    for message, problem in (
        (judged(attempt(row), REPAIRABLE), "rule schema, field label, value x"),
        (failed(attempt(row), invalid), "finish_length: cut at the limit"),
    ):
        ruling = rule(row, message, headroom)
        if mended:
            assert isinstance(ruling, Mend)
            assert ruling.problem == problem
        else:
            assert isinstance(ruling, End)
            assert ruling.outcome is ItemOutcome.IN_REVIEW


@pytest.mark.parametrize(
    ("before", "now", "tries", "tokens", "expected"),
    [
        ("request_timeout", "request_timeout", 1, 1_001, 501),
        ("deadline_passed", "request_timeout", 1, 300, 256),  # an answer of 256 tokens is no matter of time
        ("deadline_passed", "deadline_passed", 1, 256, 256),
        (None, "request_timeout", 0, 1_000, 1_000),  # the first time
        ("server_error", "request_timeout", 1, 1_000, 1_000),
        ("request_timeout", "server_error", 1, 1_000, 1_000),
        ("request_timeout", "request_timeout", 2, 1_000, 1_000),  # halved once
        ("request_timeout", "request_timeout", 1, 5_000, 5_000),  # a repair could not give them back
    ],
)
def test_who_runs_out_of_time_twice_asks_for_less(
    row: ItemStateRow, before: str | None, now: str, tries: int, tokens: int, expected: int
) -> None:
    """Rows 11 and 23."""
    seen = None if before is None else failure(FailureClass.TRANSIENT, signal=before, uses_retry_budget=True)
    row = replace(row, tries=tries, max_output_tokens=tokens, failure=seen)
    said = failed(attempt(row), failure(FailureClass.TRANSIENT, signal=now, uses_retry_budget=True))
    ruling = rule(row, said, limits=MORE)
    assert isinstance(ruling, CallAgain)
    assert ruling.max_output_tokens == expected


@pytest.mark.parametrize("limits", [{"repairs": 0}, {"attempts": 3}, {"mends": False}])
def test_nobody_asks_for_less_whose_answer_could_not_be_mended(row: ItemStateRow, limits: dict[str, Any]) -> None:
    """Rows 11 and 23: what fewer tokens cut, a repair must be able to ask for again."""
    timeout = failure(FailureClass.TRANSIENT, signal="request_timeout", uses_retry_budget=True)
    row = replace(row, tries=1, max_output_tokens=1_000, failure=timeout)
    ruling = rule(row, failed(attempt(row), timeout), limits=dataclasses.replace(MORE, **limits))
    assert isinstance(ruling, CallAgain)
    assert ruling.max_output_tokens == 1_000


@pytest.mark.parametrize(
    ("limit", "headroom", "expected"),
    [
        (64, 10_000, 128),
        (3_000, 10_000, 4_096),  # no more than what every model takes
        (4_096, 10_000, 4_096),
        (9_000, 10_000, 9_000),  # never less than before
        (64, 110, 64 + 30),  # 110 less the repair's text: 13 and 32 characters, 45 // 3 + 1 + 64 = 80
    ],
)
def test_a_cut_answer_gets_as_much_again(row: ItemStateRow, limit: int, headroom: int, expected: int) -> None:
    """Row 32; anything else that is mended gets what it had."""
    row = replace(row, max_output_tokens=limit)
    cut = verdict(VerdictKind.REPAIRABLE, rule="finish_reason", value="length")
    mend = rule(row, judged(attempt(row), cut), headroom)
    assert isinstance(mend, Mend)
    assert mend.max_output_tokens == expected
    other = rule(row, judged(attempt(row), REPAIRABLE), 10_000)
    assert isinstance(other, Mend)
    assert other.max_output_tokens == limit


@pytest.mark.parametrize(
    ("which", "state", "expected"),
    [
        (FailureClass.TRANSIENT, AttemptState.FAILED, CallAgain),
        (FailureClass.INTERNAL, AttemptState.FAILED, CallAgain),
        (FailureClass.CAPACITY, AttemptState.FAILED, CallAgain),
        (FailureClass.ACCOUNT, AttemptState.FAILED, CallAgain),
        (FailureClass.ACCOUNT, AttemptState.NOT_SENT, CallAgain),
        (FailureClass.BAD_INPUT, AttemptState.FAILED, ItemOutcome.DEAD_LETTER),
        (FailureClass.DOWNSTREAM, AttemptState.FAILED, ItemOutcome.DEAD_LETTER),
        (FailureClass.POLICY, AttemptState.FAILED, ItemOutcome.IN_REVIEW),
        (None, AttemptState.NOT_SENT, Requeue),
        (None, AttemptState.UNKNOWN, CallAgain),
        (None, AttemptState.ANSWERED, CallAgain),
    ],
)
def test_failures(row: ItemStateRow, which: FailureClass | None, state: AttemptState, expected: Any) -> None:
    """E8: each class has its own policy."""
    ruling = rule(row, failed(attempt(row), None if which is None else failure(which), state))
    if isinstance(expected, ItemOutcome):
        assert isinstance(ruling, End)
        assert ruling.outcome is expected
    else:
        assert isinstance(ruling, expected)


@pytest.mark.parametrize(("tries", "expected"), [(0, CallAgain), (1, CallAgain), (2, End)])
def test_a_vector_is_asked_for_again_and_never_mended(row: ItemStateRow, tries: int, expected: Any) -> None:
    """Row 39, Q2: no repair and no review; the third of three attempts is the last."""
    rules = Rules(attempts=3, repairs=1, retry=LIMITS.retry, mends=False)
    row = replace(row, tries=tries, ordinal=tries + 1)
    refused = verdict(VerdictKind.REPAIRABLE, rule="vector_zero", value="all numbers are 0")
    mismatched = failure(FailureClass.OUTPUT_INVALID, signal="embeddings_mismatched")
    for message, signal in (
        (judged(attempt(row), refused), "vector_zero"),
        (failed(attempt(row), mismatched), "embeddings_mismatched"),
    ):
        ruling = judge(row, message, rules=rules, headroom_tokens=10_000, now_ms=1_000, jitter=0.0)
        assert isinstance(ruling, expected)
        assert ruling.failure is not None
        assert (ruling.failure.failure_class, ruling.failure.signal) == (FailureClass.OUTPUT_INVALID, signal)
        if isinstance(ruling, End):
            assert ruling.outcome is ItemOutcome.DEAD_LETTER


def test_budget_used_is_a_dead_letter(row: ItemStateRow) -> None:
    """E9: the third of three attempts is the last."""
    ruling = rule(replace(row, tries=2, ordinal=3), failed(attempt(row), failure()))
    assert ruling == End(event=ruling.event, outcome=ItemOutcome.DEAD_LETTER, failure=failure(), model="m")


@pytest.mark.parametrize("state", list(ItemState))
def test_late_answers(row: ItemStateRow, state: ItemState) -> None:
    """E11: an accepted answer of a given-up attempt is taken while the item has no end."""
    ended = state in (ItemState.ACCEPTED, ItemState.REJECTED, ItemState.DEAD_LETTER)
    found = late(replace(row, state=state, ordinal=2), judged(attempt(row)))
    assert (found is None) is ended
    assert late(replace(row, state=state), judged(attempt(row), REPAIRABLE)) is None
    assert late(replace(row, state=state, planned_at_ms=row.planned_at_ms + 10**6), judged(attempt(row))) is None


def test_account(row: ItemStateRow) -> None:
    """O1, E9: what counts as a call, and what it costs; an unknown cost is never nothing."""
    call = attempt(row)
    unknown: dict[str, Any] = {"usage": None, "cost_nano_usd": None}
    once = charge(NO_TOTALS, answer(call), is_retry=False)
    assert (once.attempts, once.input_tokens, once.output_tokens, once.cost_nano_usd) == (1, 10, 5, 100)
    lost = charge(once, answer(call, state=AttemptState.UNKNOWN, **unknown), is_retry=True)
    assert (lost.attempts, lost.cost_nano_usd, lost.unknown_attempts, lost.retries) == (2, 100, 1, 1)
    for state, billed, counts in [
        (AttemptState.NOT_SENT, Billed.UNKNOWN, 0),
        (AttemptState.FAILED, Billed.NO, 0),
        (AttemptState.FAILED, Billed.YES, 1),
        (AttemptState.FAILED, Billed.UNKNOWN, 1),
    ]:
        message = answer(call, state=state, failure=failure(billed=billed), **unknown)
        assert charge(NO_TOTALS, message, is_retry=True).attempts == counts
    # the lost answer arrives after all: still two calls, both known now
    found = charge_late(lost, answer(call), row.payer)
    assert (found.attempts, found.cost_nano_usd, found.unknown_attempts) == (2, 200, 0)
    # it was charged as unknown before: what is new is its cost
    charged = charge_late(NO_TOTALS, answer(call), row.payer)
    assert (charged.attempts, charged.cost_nano_usd, charged.unknown_attempts) == (0, 100, 0)
    # what an unknown cost may be is on the account until it is known
    held = charge(once, answer(call, state=AttemptState.UNKNOWN, reserved_nano_usd=700, **unknown), is_retry=True)
    assert (held.cost_nano_usd, held.reserved_nano_usd) == (100, 700)
    assert charge_late(held, answer(call, reserved_nano_usd=700), row.payer).reserved_nano_usd == 0
    twice = charge(held, answer(call, state=AttemptState.UNKNOWN, reserved_nano_usd=50, **unknown), is_retry=True)
    assert charge_late(twice, answer(call, reserved_nano_usd=700), row.payer).reserved_nano_usd == 50
    assert charge(NO_TOTALS, answer(call, reserved_nano_usd=700), is_retry=False).reserved_nano_usd == 0
    # another batch caused it
    assert charge_late(lost, answer(call), Waiter(batch_id="other", generation=1, ordinal=0)) == lost
