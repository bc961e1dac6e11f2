"""What comes back from a provider is looked at before it is believed (E6)."""

import logging

import pytest

from nightmill.kernel.domain.lifecycle import ProviderBatchState
from nightmill.kernel.domain.settings import BulkLimits
from nightmill.provider_gateway.bulk import errands as e
from nightmill.provider_gateway.bulk.dialect import BatchSeen, Stage
from nightmill.provider_gateway.bulk.outcomes import Outcomes
from nightmill.provider_gateway.bulk.standing import Standing
from nightmill.provider_gateway.bulk.steps import Step, Timing
from unit.provider_gateway.bulk.makers import make_submission
from unit.provider_gateway.stage import NOW_MS, POOL


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
