"""A submission without an id, where batches carry no key: which batch it is, and what nobody can tell (E6)."""

import logging

import pytest

from nightmill.kernel.domain.lifecycle import ProviderBatchState
from nightmill.kernel.domain.settings import BulkLimits
from nightmill.provider_gateway.bulk import errands as e
from nightmill.provider_gateway.bulk.dialect import BatchSeen, Fate, ResultLine, Stage
from nightmill.provider_gateway.bulk.orphans import Sign, recognised, sign_of
from nightmill.provider_gateway.bulk.outcomes import Outcomes
from nightmill.provider_gateway.bulk.standing import Standing
from nightmill.provider_gateway.bulk.steps import Step, Timing, next_step
from nightmill.provider_gateway.failures import Signal
from unit.provider_gateway.bulk.makers import make_submission
from unit.provider_gateway.makers import NOW_MS, POOL


def seen(name: str = "b1", *, ended: bool = True, billed: int | None = None) -> BatchSeen:
    stage = Stage.ENDED if ended else Stage.RUNNING
    return BatchSeen(id=name, stage=stage, status="", billed=billed, output_id=name if ended else None)


def line(custom_id: str) -> ResultLine:
    return ResultLine(custom_id=custom_id, fate=Fate.CANCELLED)


@pytest.mark.parametrize(
    ("batch", "first", "sign"),
    [
        (seen(ended=False), None, Sign.RUNNING),
        (seen(billed=3), line("mine"), Sign.OURS),
        (seen(billed=0), line("mine"), Sign.OURS),  # nothing of it ran, and it is ours to harvest all the same
        (seen(billed=3), line("other"), Sign.ANOTHERS),
        (seen(billed=0), None, Sign.FREE),
        (seen(billed=1), None, Sign.MUTE),
        (seen(billed=None), None, Sign.MUTE),  # it counts nothing: it may have been billed
    ],
)
def test_what_a_candidate_shows(batch: BatchSeen, first: ResultLine | None, sign: Sign) -> None:
    assert sign_of(batch, first, {"mine"}) is sign


@pytest.mark.parametrize(
    ("signs", "outcome"),
    [
        ([], e.Absent()),
        ([Sign.ANOTHERS, Sign.FREE], e.Absent()),
        ([Sign.MUTE, Sign.RUNNING], e.Undecided()),  # what runs may be it, and will tell
        ([Sign.MUTE, Sign.ANOTHERS, Sign.MUTE], e.Undecided(mute=("b0", "b2"))),
        ([Sign.FREE, Sign.RUNNING], e.Undecided()),
        ([Sign.RUNNING, Sign.MUTE, Sign.OURS], seen("b2")),
    ],
)
def test_which_one_it_is(signs: list[Sign], outcome: object) -> None:
    """E6: only a look that every candidate has answered says that it is not there."""
    assert recognised((seen(f"b{number}"), sign) for number, sign in enumerate(signs)) == outcome


def test_a_batch_that_never_tells_is_for_people_to_decide(caplog: pytest.LogCaptureFixture) -> None:
    """E6: told at once and in the end; never sent again by itself, and never waited for without end."""
    submission = make_submission(ProviderBatchState.ARMED, file_id=None)
    submission.doubt = True
    outcomes, standing = Outcomes(Timing(lost=1_000, retry=1, longest_retry=1)), Standing(POOL, BulkLimits())
    for number in range(10):
        effect = outcomes.of(Step.LOOK_UP, submission, standing, e.Undecided(mute=("b7",)), NOW_MS + number * 100)
        assert (effect.put, effect.answers, list(effect.again)) == ([], [], [])
        assert next_step(submission, now_ms=NOW_MS + number * 100 + 1, timing=Timing()) is Step.LOOK_UP
    effect = outcomes.of(Step.LOOK_UP, submission, standing, e.Undecided(mute=("b7",)), NOW_MS + 1_000)
    assert submission.state is ProviderBatchState.WITHDRAWN
    assert list(effect.again) == []
    assert {each.failure.signal for each in effect.answers if each.failure} == {Signal.RESULTS_LOST}
    assert all(each.failure and "b7; to send it again may pay twice" in each.failure.message for each in effect.answers)
    assert [each.cost_nano_usd for each in effect.answers] == [None] * 3
    alarms = [vars(each)["action"] for each in caplog.records if each.levelno == logging.ERROR]
    assert alarms == ["orphan_mute", "orphan_given_up"]


@pytest.mark.parametrize("told", [e.Absent(), e.Undecided()])
def test_what_tells_in_the_end_is_not_given_up(told: e.Absent | e.Undecided) -> None:
    """Time counts from the last look at which something else was said."""
    submission = make_submission(ProviderBatchState.ARMED, file_id=None)
    submission.doubt = True
    outcomes, standing = Outcomes(Timing(lost=1_000)), Standing(POOL, BulkLimits())
    for _ in range(10):
        outcomes.of(Step.LOOK_UP, submission, standing, e.Undecided(mute=("b7",)), NOW_MS)
    outcomes.of(Step.LOOK_UP, submission, standing, told, NOW_MS + 500)
    assert (submission.mute, submission.gone_since_ms) == ((), None)
    outcomes.of(Step.LOOK_UP, submission, standing, e.Undecided(mute=("b7",)), NOW_MS + 2_000)
    assert submission.state is ProviderBatchState.ARMED
