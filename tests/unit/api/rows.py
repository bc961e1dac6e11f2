"""Rows of the views, as small as they may be; a test overrides the fields it is about."""

from typing import Any

from kit.ledger_events import COUNTS, NOON_MS, sealed, totals
from kit.messages import BATCH, JOB
from nightmill.kernel.domain.lifecycle import BatchState, InputFormat, PlanPhase
from nightmill.kernel.wire.messages import (
    BatchPlanRow,
    DatasetRow,
    DatasetVersion,
    JobInput,
    JobSubmitted,
    PublicationRow,
)
from nightmill.kernel.wire.values import replace


def submitted(**fields: Any) -> JobSubmitted:
    job = JobSubmitted(
        job_id=JOB,
        dataset_id="acme.tickets",
        tenant="acme",
        pipeline="tickets",
        pipeline_digest="p" * 64,
        input=JobInput(format=InputFormat.JSONL, blob="b" * 64, bytes=100, name="tickets.jsonl", skip_bad_rows=False),
        budget_nano_usd=5_000_000,
        priority=2,
        tags={"team": "search"},
        submitted_at_ms=NOON_MS,
    )
    return replace(job, **fields)


def plan(**fields: Any) -> BatchPlanRow:
    row = BatchPlanRow(
        batch_id=BATCH,
        job=submitted(),
        phase=PlanPhase.FREEZING,
        cursor_row=400,
        cursor_bytes=0,
        blocks=1,
        planned=398,
        refused_rows=2,
        input_tokens=1_000,
        max_output_tokens=320,
        generation=0,
        released_blocks=0,
        updated_at_ms=NOON_MS + 300,
    )
    return replace(row, **fields)


def publication(**fields: Any) -> PublicationRow:
    row = PublicationRow(
        batch_id=BATCH,
        job_id=JOB,
        dataset_id="acme.tickets",
        generation=1,
        state=BatchState.RUNNING,
        sealed=sealed(budget_nano_usd=5_000_000),
        counts=replace(COUNTS, accepted=4, rejected=1),
        totals=totals(attempts=6, input_tokens=600, output_tokens=42, cost_nano_usd=9_000, unknown_attempts=1),
        approved=False,
        commands=(),
        opened_at_ms=NOON_MS + 400,
        updated_at_ms=NOON_MS + 2_000,
    )
    return replace(row, **fields)


def dataset(*versions: int, batch: str = BATCH) -> DatasetRow:
    return DatasetRow(
        dataset_id="acme.tickets",
        switch_seq=max(versions),
        versions=tuple(
            DatasetVersion(
                version=number,
                batch_id=batch,
                generation=1,
                location=f"versions/{number}/manifest.json",
                rows=10,
                state=BatchState.PUBLISHED,
                published_at_ms=NOON_MS + number,
            )
            for number in versions
        ),
    )
