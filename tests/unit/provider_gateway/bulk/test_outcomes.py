"""What comes back from a provider is looked at before it is believed (E6)."""

import logging

import pytest

from nightmill.kernel.domain.lifecycle import ProviderBatchState
from nightmill.kernel.domain.settings import BulkLimits
from nightmill.provider_gateway.bulk import errands as e
from nightmill.provider_gateway.bulk.dialect import BatchSeen, InputFault, Stage
from nightmill.provider_gateway.bulk.effect import Effect
from nightmill.provider_gateway.bulk.outcomes import Outcomes
from nightmill.provider_gateway.bulk.results import Places
from nightmill.provider_gateway.bulk.standing import Standing
from nightmill.provider_gateway.bulk.steps import Step, Timing
from nightmill.provider_gateway.bulk.submission import Submission
from nightmill.provider_gateway.bulk.todo import errand_of
from nightmill.provider_gateway.failures import Signal, failure
from unit.provider_gateway.bulk.makers import make_order, make_submission
from unit.provider_gateway.makers import NOW_MS, POOL

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


def test_what_is_gone_is_waited_for_from_when_the_provider_said_so_first() -> None:
    """E6: a gateway that was away for days does not give paid results up at the first looks."""
    submission = make_submission(ProviderBatchState.ENDED, requests=SENT, ended_at_ms=NOW_MS)
    outcomes, standing, late_ms = Outcomes(Timing(lost=20_000)), Standing(POOL, BulkLimits()), NOW_MS + 10**9
    for number in range(10):
        outcomes.of(Step.FETCH, submission, standing, e.Absent(), late_ms + number * 1_000)
    assert (submission.harvest, submission.gone_since_ms) == (None, late_ms)
    outcomes.of(Step.FETCH, submission, standing, e.Absent(), late_ms + 20_000)
    assert submission.harvest is not None
    assert submission.harvest.gone
    assert not submission.harvest.waits


def refused(submission: Submission, standing: Standing, *faults: InputFault) -> Effect:
    seen = BatchSeen(id="b1", stage=Stage.REFUSED, status="failed", faults=faults)
    return Outcomes(Timing()).of(Step.POLL, submission, standing, e.Polled(batches=(seen,)), NOW_MS + 1)


@pytest.mark.parametrize(("requests", "told"), [(1, True), (2, False)])
def test_a_request_alone_that_is_over_the_enqueued_limit_waits_and_people_are_told(requests: int, told: bool) -> None:
    """E6, E8: more of them go again fewer at a time."""
    submission = make_submission(ProviderBatchState.SUBMITTED, provider_batch_id="b1", submitted_at_ms=NOW_MS)
    submission.orders = [make_order(number) for number in range(requests)]
    standing = Standing(POOL, BulkLimits())
    effect = refused(submission, standing, InputFault(code="token_limit_exceeded"))
    assert (effect.answers, len(effect.again)) == ([], requests)
    assert (standing.is_stopped(NOW_MS + 2), standing.stall() is not None) == (told, told)


def test_no_text_of_a_refusal_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A server may repeat a document where a code is expected."""
    submission = make_submission(ProviderBatchState.SUBMITTED, provider_batch_id="b1", submitted_at_ms=NOW_MS)
    submission.orders = [make_order(0)]
    with caplog.at_level(logging.DEBUG):
        refused(submission, Standing(POOL, BulkLimits()), InputFault(code="no such customer: Ada Lovelace"))
    assert any("batch refused" in record.message for record in caplog.records)
    assert not any("Lovelace" in repr(vars(record)) for record in caplog.records)


def test_only_sizes_that_do_not_fit_count_as_such() -> None:
    """Row 52: a provider that is away for a day does not make half a file a whole one."""
    submission = make_submission(ProviderBatchState.ENDED, requests=SENT, ended_at_ms=NOW_MS)
    outcomes, standing = Outcomes(Timing()), Standing(POOL, BulkLimits())
    for signal in (Signal.CONNECTION_LOST, Signal.SERVER_ERROR, Signal.DEADLINE_PASSED):
        for _ in range(20):
            outcomes.of(Step.FETCH, submission, standing, e.Unsure(failure=failure(signal)), NOW_MS)
    outcomes.of(Step.READ, submission, standing, e.Unsure(failure=failure(Signal.BODY_INCOMPLETE)), NOW_MS)
    told: list[bool] = []
    for _ in range(11):
        errand = errand_of(Step.FETCH, submission, Timing(), frozenset())
        assert isinstance(errand, e.Fetch)
        told.append(errand.any_size)
        outcomes.of(Step.FETCH, submission, standing, e.Refused(failure=failure(Signal.BODY_INCOMPLETE)), NOW_MS)
    assert told == [False] * 10 + [True]
