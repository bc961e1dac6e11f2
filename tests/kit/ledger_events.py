"""Events for the ledger's tests: whole and valid; a test overrides the fields it is about."""

from typing import Any

from kit.messages import BATCH, JOB, key_of
from nightmill.kernel.domain.failures import Billed, FailureClass
from nightmill.kernel.domain.lifecycle import AttemptState, BatchState, ItemOutcome, Lane, VerdictKind
from nightmill.kernel.wire.messages import (
    AttemptAnswered,
    AttemptJudged,
    BatchPublished,
    BatchSealed,
    Failure,
    GoldScore,
    ItemSettled,
    JobCompleted,
    LeaseAmounts,
    LeaseRequested,
    OutcomeCounts,
    RowRef,
    Totals,
    Usage,
    Verdict,
)
from nightmill.kernel.wire.totals import NO_TOTALS
from nightmill.kernel.wire.values import replace

NOON_MS = 1_795_953_600_000  #: 2026-11-29 12:00:00 UTC, the time in JOB
COUNTS = OutcomeCounts(accepted=0, rejected=0, dead_letter=0, in_review=0, cancelled=0, reused=0)
ACCEPTED = Verdict(kind=VerdictKind.ACCEPTED)


def judged(
    source_id: str,
    ordinal: int = 1,
    *,
    cost_nano_usd: int | None = 1_500,
    verdict: Verdict | None = ACCEPTED,
    **fields: Any,
) -> AttemptJudged:
    """One judged call; `fields` are of the attempt."""
    minted = NOON_MS + ordinal * 1_000
    attempt = AttemptAnswered(
        item_key=key_of(source_id),
        ordinal=ordinal,
        minted_at_ms=minted,
        shard_id="shard",
        batch_id=BATCH,
        job_id=JOB,
        generation=1,
        source_id=source_id,
        row=RowRef(block="b" * 64, row=0),
        pipeline_digest="p" * 64,
        pool="local",
        model="tiny",
        lane=Lane.REALTIME,
        state=AttemptState.ANSWERED,
        output='{"label": "a"}',
        finish_reason="stop",
        usage=Usage(input_tokens=100, cached_tokens=20, output_tokens=7),
        cost_nano_usd=cost_nano_usd,
        reserved_nano_usd=9_000,
        price_version="v1",
        http_status=200,
        provider_request_id="r-1",
        is_repair=False,
        late=False,
        started_at_ms=minted + 10,
        ended_at_ms=minted + 210,
    )
    attempt = replace(attempt, **fields)
    return AttemptJudged(item_key=attempt.item_key, attempt=attempt, verdict=verdict, judged_at_ms=minted + 300)


def unknown(source_id: str, ordinal: int = 1, **fields: Any) -> AttemptJudged:
    """A call of which nobody knows what became."""
    nothing: dict[str, Any] = {
        "state": AttemptState.UNKNOWN,
        "output": None,
        "finish_reason": None,
        "usage": None,
        "http_status": None,
        "failure": failure(FailureClass.TRANSIENT, "lost", Billed.UNKNOWN),
    }
    return judged(source_id, ordinal, cost_nano_usd=None, verdict=None, **(nothing | fields))


def failed(source_id: str, ordinal: int, signal: str, **fields: Any) -> AttemptJudged:
    """A call that the provider refused without charging for it."""
    nothing: dict[str, Any] = {
        "state": AttemptState.FAILED,
        "output": None,
        "finish_reason": None,
        "usage": None,
        "http_status": 429,
        "failure": failure(FailureClass.CAPACITY, signal, Billed.NO),
    }
    return judged(source_id, ordinal, cost_nano_usd=0, verdict=None, **(nothing | fields))


def failure(failure_class: FailureClass, signal: str, billed: Billed) -> Failure:
    return Failure(
        failure_class=failure_class, signal=signal, message="no answer", uses_retry_budget=True, billed=billed
    )


def totals(**fields: int) -> Totals:
    return replace(NO_TOTALS, **fields)


def settled(source_id: str, ordinal: int, **fields: Any) -> ItemSettled:
    event = ItemSettled(
        item_key=key_of(source_id),
        batch_id=BATCH,
        job_id=JOB,
        dataset_id="acme.tickets",
        generation=1,
        ordinal=ordinal,
        revision=1,
        source_id=source_id,
        row=RowRef(block="b" * 64, row=0),
        pipeline_digest="p" * 64,
        outcome=ItemOutcome.ACCEPTED,
        verdict=ACCEPTED,
        reused=False,
        totals=totals(attempts=1, input_tokens=100, output_tokens=7, cost_nano_usd=1_500),
        attempt_id=f"{key_of(source_id)}-1",
        model="tiny",
        planned_at_ms=NOON_MS + 500,
        settled_at_ms=NOON_MS + 2_000,
    )
    return replace(event, **fields)


def sealed(**fields: Any) -> BatchSealed:
    event = BatchSealed(
        batch_id=BATCH,
        job_id=JOB,
        dataset_id="acme.tickets",
        tenant="acme",
        pipeline="tickets",
        pipeline_digest="p" * 64,
        planned=10,
        refused_rows=1,
        blocks=1,
        input_tokens=1_000,
        max_output_tokens=320,
        expected_cost_nano_usd=20_000,
        worst_cost_nano_usd=90_000,
        budget_nano_usd=None,
        deadline_at_ms=None,
        priority=0,
        manifest_digest="m" * 64,
        tags={"team": "search", "environment": "test"},
        submitted_at_ms=NOON_MS,
        sealed_at_ms=NOON_MS + 400,
    )
    return replace(event, **fields)


def published(**fields: Any) -> BatchPublished:
    event = BatchPublished(
        batch_id=BATCH,
        job_id=JOB,
        dataset_id="acme.tickets",
        generation=1,
        state=BatchState.PUBLISHED,
        version=3,
        location="acme.tickets/manifest-3.json",
        rows=10,
        bytes=4_096,
        counts=replace(COUNTS, accepted=10),
        totals=totals(attempts=12, cost_nano_usd=18_000),
        published_at_ms=NOON_MS + 9_000,
    )
    return replace(event, **fields)


def completed(**fields: Any) -> JobCompleted:
    event = JobCompleted(
        job_id=JOB,
        batch_id=BATCH,
        dataset_id="acme.tickets",
        generation=1,
        state=BatchState.PUBLISHED,
        planned=10,
        refused_rows=1,
        counts=replace(COUNTS, accepted=10),
        totals=totals(attempts=12, cost_nano_usd=18_000, retries=2),
        gold=GoldScore(compared=5, right=4),
        version=3,
        location="acme.tickets/manifest-3.json",
        submitted_at_ms=NOON_MS,
        completed_at_ms=NOON_MS + 9_100,
    )
    return replace(event, **fields)


def lease(seq: int, asked_at_ms: int, **fields: Any) -> LeaseRequested:
    used = LeaseAmounts(requests=seq, input_tokens=seq * 100, output_tokens=seq * 7)
    event = LeaseRequested(
        pool="local",
        holder="local@0-0",
        holder_partition=0,
        epoch=NOON_MS,
        seq=seq,
        wants=LeaseAmounts(requests=5, input_tokens=500, output_tokens=50),
        wants_slots=4,
        used=used,
        reserved=LeaseAmounts(requests=1, input_tokens=100, output_tokens=32),
        slots_in_use=1,
        asked_at_ms=asked_at_ms,
    )
    return replace(event, **fields)
