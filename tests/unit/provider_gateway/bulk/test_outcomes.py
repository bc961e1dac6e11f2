"""What comes back from a provider is looked at before it is believed (E6)."""

import logging

import pytest

from nightmill.kernel.domain.lifecycle import ProviderBatchState
from nightmill.kernel.domain.settings import BulkLimits
from nightmill.provider_gateway.bulk import errands as e
from nightmill.provider_gateway.bulk.dialect import BatchSeen, InputFault, Stage
from nightmill.provider_gateway.bulk.outcomes import Outcomes
from nightmill.provider_gateway.bulk.results import Places
from nightmill.provider_gateway.bulk.standing import Standing
from nightmill.provider_gateway.bulk.steps import Step, Timing
from unit.provider_gateway.bulk.makers import make_order, make_submission
from unit.provider_gateway.stage import NOW_MS, POOL

SENT = 3


@pytest.mark.parametrize(
    ("digest", "output_id", "alarms"),
    [
        ("f", "file-out", 0),
        (None, "file-out", 0),  # Anthropic carries no key: its lines are known by their ids alone
        ("g", None, 1),  # these are answers to other questions, whatever their ids say
    ],
)
def test_a_batch_that_had_another_input_is_not_harvested(
    caplog: pytest.LogCaptureFixture, digest: str | None, output_id: str | None, alarms: int
) -> None:
    """E6: the digest of the input travels with the batch and is compared on return."""
    submission = make_submission(ProviderBatchState.SUBMITTED, provider_batch_id="b1", submitted_at_ms=NOW_MS)
    seen = BatchSeen(id="b1", stage=Stage.ENDED, status="completed", fingerprint=digest, output_id="file-out")
    effect = Outcomes(Timing()).of(
        Step.POLL, submission, Standing(POOL, BulkLimits()), e.Polled(batches=(seen,)), NOW_MS + 1
    )
    (row,) = effect.put
    assert (row.state, row.output_id) == (ProviderBatchState.ENDED, output_id)
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == alarms


def harvest(listed: int, strangers: int = 0) -> e.Harvest:
    places = Places(SENT)
    for position in range(listed):
        places.put(position, 0, 0, 10)
    return e.Harvest(paths=(), places=places, strangers=strangers, repeats=0)


@pytest.mark.parametrize(
    ("listed", "strangers", "ran", "not_run"),
    [
        (1, 0, 1, True),  # as many rows as ran: what has none did not run
        (1, 0, None, True),  # the provider counts nothing, and no row is strange
        (0, 0, 0, True),
        (1, 1, 2, False),  # a row of nobody: somebody's is missing
        (1, 0, 2, False),  # a row less than ran
        (0, 0, 3, False),
        (3, 0, 3, True),
    ],
)
def test_a_request_without_a_row_did_not_run_only_if_no_row_is_lost(
    listed: int, strangers: int, ran: int | None, not_run: bool
) -> None:
    """It would be free, and in no book, although its provider has billed it."""
    submission = make_submission(ProviderBatchState.ENDED, absent_not_run=True, requests=SENT, ended_at_ms=NOW_MS)
    submission.ran = ran
    outcomes, standing = Outcomes(Timing()), Standing(POOL, BulkLimits())
    effect = outcomes.of(Step.FETCH, submission, standing, harvest(listed, strangers), NOW_MS)
    assert submission.row.absent_not_run is not_run
    assert [row.absent_not_run for row in effect.put] == ([] if not_run else [False])
    # then they are fetched once more before anybody believes that they are incomplete
    assert (submission.harvest is None, submission.refetched) == (not not_run, not not_run)


def test_results_of_a_cancelled_batch_that_are_gone_say_nothing() -> None:
    submission = make_submission(ProviderBatchState.ENDED, absent_not_run=True, requests=SENT, ended_at_ms=NOW_MS)
    outcomes, standing = Outcomes(Timing(lost=1_000)), Standing(POOL, BulkLimits())
    for number in range(10):
        outcomes.of(Step.FETCH, submission, standing, e.Absent(), NOW_MS + number * 1_000)
    assert submission.row.absent_not_run is False
    assert submission.harvest is not None
    assert submission.harvest.places.missing == SENT


@pytest.mark.parametrize("number", [0, 2, 10**9])
def test_a_line_that_the_batch_has_not_is_at_nobodys_fault(number: int) -> None:
    """E6: the order does not go again and again, to be refused each time."""
    submission = make_submission(ProviderBatchState.SUBMITTED, provider_batch_id="b1", submitted_at_ms=NOW_MS)
    submission.orders = [make_order(0)]
    fault = InputFault(code="invalid_request", line=number)
    seen = BatchSeen(id="b1", stage=Stage.REFUSED, status="failed", faults=(fault,))
    effect = Outcomes(Timing()).of(
        Step.POLL, submission, Standing(POOL, BulkLimits()), e.Polled(batches=(seen,)), NOW_MS + 1
    )
    assert (len(effect.answers), list(effect.again)) == (1, [])
