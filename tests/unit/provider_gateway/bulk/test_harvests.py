"""What is made of results that were fetched (E6, E8): the table of verdicts, and who is lost with a file."""

import logging

import pytest

from nightmill.kernel.domain.failures import Billed
from nightmill.kernel.domain.lifecycle import AttemptState, ProviderBatchState
from nightmill.provider_gateway.bulk import errands as e
from nightmill.provider_gateway.bulk.answers import unlisted
from nightmill.provider_gateway.bulk.effect import Effect
from nightmill.provider_gateway.bulk.harvests import Verdict, answered, fetched, verdict
from nightmill.provider_gateway.bulk.results import Places, ResultFile
from nightmill.provider_gateway.bulk.steps import Timing
from nightmill.provider_gateway.bulk.submission import Submission
from nightmill.provider_gateway.failures import Signal
from unit.provider_gateway.bulk.makers import make_order, make_row, make_submission
from unit.provider_gateway.makers import NOW_MS

SENT = 3
OUTPUT, ERROR = ResultFile.OUTPUT, ResultFile.ERROR
TIMING = Timing(lost=1_000, retry=10, longest_retry=10)

TABLE = [
    # missing, unread, a file is gone, for good, missing counts, refetched, verdict
    (0, 3, False, False, True, False, Verdict.READ),
    (0, 3, True, True, True, False, Verdict.READ),  # nobody's line is in the file that is gone
    (1, 2, False, False, True, False, Verdict.AFRESH),
    (1, 2, False, False, True, True, Verdict.READ),
    (1, 2, False, False, False, False, Verdict.READ),  # cancelled: it did not run
    (1, 2, True, False, True, False, Verdict.READ_SOME),
    (1, 0, True, False, True, False, Verdict.WAIT),  # the others were read before
    (3, 0, True, False, True, False, Verdict.WAIT),
    (1, 2, True, False, False, False, Verdict.READ_SOME),  # cancelled, and a row may be lost
    (1, 2, True, True, True, False, Verdict.GIVE_UP),
    (1, 0, True, True, False, True, Verdict.GIVE_UP),
]


@pytest.mark.parametrize(("missing", "unread", "gone", "for_good", "counts", "refetched", "expected"), TABLE)
def test_the_verdict(
    missing: int, unread: int, gone: bool, for_good: bool, counts: bool, refetched: bool, expected: Verdict
) -> None:
    assert (
        verdict(
            missing=missing,
            unread=unread,
            gone=gone,
            gone_for_good=for_good,
            missing_counts=counts,
            refetched=refetched,
        )
        is expected
    )


@pytest.mark.parametrize(
    ("gone", "cancelled", "state", "signal", "billed", "cost"),
    [
        ((), False, AttemptState.UNKNOWN, Signal.RESULT_MISSING, Billed.UNKNOWN, None),
        ((), True, AttemptState.NOT_SENT, None, None, 0),
        ((ERROR,), False, AttemptState.UNKNOWN, Signal.RESULT_MISSING, Billed.UNKNOWN, None),
        ((ERROR,), True, AttemptState.UNKNOWN, Signal.RESULT_MISSING, Billed.UNKNOWN, None),
        # it was answered and billed: nobody but a person pays for it again
        ((OUTPUT,), False, AttemptState.FAILED, Signal.RESULTS_LOST, Billed.YES, None),
        ((OUTPUT, ERROR), True, AttemptState.FAILED, Signal.RESULTS_LOST, Billed.YES, None),
    ],
)
def test_who_has_no_line(
    gone: tuple[ResultFile, ...],
    cancelled: bool,
    state: AttemptState,
    signal: Signal | None,
    billed: Billed | None,
    cost: int | None,
) -> None:
    """P4, E6: what may have been billed costs nobody knows what, which is not 0."""
    row = make_row(ProviderBatchState.ENDED, absent_not_run=cancelled, ended_at_ms=NOW_MS)
    told = unlisted(make_order(0), row, gone)
    assert (told.state, told.cost_nano_usd) == (state, cost)
    assert (told.failure and told.failure.signal, told.failure and told.failure.billed) == (signal, billed)


def harvest(listed: int, *gone: ResultFile) -> e.Harvest:
    places = Places(SENT)
    for position in range(listed):
        places.put(position, 0, 0, 10)
    return e.Harvest(paths=(), places=places, strangers=0, repeats=0, gone=gone)


def ended_submission() -> Submission:
    return make_submission(
        ProviderBatchState.ENDED, requests=SENT, ended_at_ms=NOW_MS, output_id="file-out", error_id="file-err"
    )


def test_what_has_a_line_is_answered_while_a_file_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """E6: each once; then only what is in no file that is here is given up, and people are told which file it was."""
    submission, effect = ended_submission(), Effect()
    fetched(submission, harvest(2, ERROR), effect, timing=TIMING, now_ms=NOW_MS)
    assert submission.harvest is not None
    assert submission.harvest.waits
    assert (submission.due_at_ms, submission.lacks) == (NOW_MS, (ERROR,))
    answered(submission, timing=TIMING, now_ms=NOW_MS)
    assert (here(submission), submission.given, submission.is_given) == (None, 0, False)
    assert submission.read is not None
    for number in range(1, 10):
        fetched(submission, harvest(2, ERROR), effect, timing=TIMING, now_ms=NOW_MS + number * 100)
        assert here(submission) is None
        assert submission.due_at_ms > NOW_MS + number * 100
    assert not [record for record in caplog.records if record.levelno == logging.ERROR]
    fetched(submission, harvest(2, ERROR), effect, timing=TIMING, now_ms=NOW_MS + 1_000)
    assert submission.harvest is not None
    assert not submission.harvest.waits
    (alarm,) = [vars(each) for each in caplog.records if vars(each).get("action") == "results_lost"]
    assert (alarm["files"], alarm["missing"]) == ({"error": "file-err"}, 1)


def test_a_file_that_comes_back_is_read(caplog: pytest.LogCaptureFixture) -> None:
    submission, effect = ended_submission(), Effect()
    fetched(submission, e.Absent(), effect, timing=TIMING, now_ms=NOW_MS)
    assert (here(submission), submission.lacks) == (None, (OUTPUT, ERROR))
    fetched(submission, harvest(3), effect, timing=TIMING, now_ms=NOW_MS + 10**9)
    assert here(submission) is not None
    assert (submission.lacks, submission.gone_since_ms) == ((), None)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def here(submission: Submission) -> e.Harvest | None:
    return submission.harvest
