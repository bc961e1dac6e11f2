"""From an event to the rows of the ledger, as tuples in the order of the columns in tables.py.

Every value is a function of the event alone, so that the same event gives the same row whenever it comes.
"""

import re
from calendar import timegm
from functools import lru_cache
from typing import Any

from nightmill.kernel.domain.ids import dataset_of
from nightmill.kernel.domain.lifecycle import AttemptState, BatchState
from nightmill.kernel.wire.messages import (
    AttemptAnswered,
    AttemptJudged,
    BatchPublished,
    BatchSealed,
    ItemSettled,
    JobCompleted,
    LeaseAmounts,
    LeaseRequested,
    OutcomeCounts,
    Totals,
)

Row = tuple[Any, ...]

_STAMP = re.compile(r"^(\d{4})(\d{2})(\d{2})-(\d{2})(\d{2})(\d{2})-")
_MINUTE_S = 60
#: revisions of one generation before the next generation begins
_REVISIONS = 1 << 16
#: completion times (epoch ms) fit below it, so a final notice outranks every held one
_FINAL = 1 << 48


class ForeignId(ValueError):
    """An id that this system cannot have made."""


@lru_cache(maxsize=4096)
def tenant_and_pipeline(id_: str) -> tuple[str, str]:
    """Whose a job or batch is. Raises `ForeignId`."""
    try:
        tenant, pipeline = dataset_of(id_).split(".")
    except ValueError as error:
        raise ForeignId(f"id {id_!r} does not begin with tenant.pipeline") from error
    return tenant, pipeline


@lru_cache(maxsize=4096)
def submitted_at_ms(job: str) -> int:
    """When a job was submitted, from its id: the time that places all its rows, whatever event tells of them.

    Raises `ForeignId`.
    """
    stamp = _STAMP.match(job.removeprefix(f"{dataset_of(job)}.")) if job.count(".") > 1 else None
    if stamp is None:
        raise ForeignId(f"job id {job!r} does not hold its time as tenant.pipeline.YYYYMMDD-HHMMSS-suffix")
    year, month, day, hour, minute, second = (int(part) for part in stamp.groups())
    return timegm((year, month, day, hour, minute, second)) * 1000


def attempt_version(attempt: AttemptAnswered) -> int:
    """Place in the life of an attempt: unknown, then answered or failed, then corrected by a late answer."""
    if attempt.state is AttemptState.UNKNOWN:
        return 2
    return 4 if attempt.late else 3


def is_call(attempt: AttemptAnswered) -> bool:
    """Whether this call happened or may have happened; one that surely never left costs nothing and is no row."""
    return attempt.state not in (AttemptState.NOT_SENT, AttemptState.MINTED)


def attempt_row(event: AttemptJudged) -> Row:
    """Row of `attempts`."""
    a, failure, usage, verdict = event.attempt, event.attempt.failure, event.attempt.usage, event.verdict
    return (
        *tenant_and_pipeline(a.job_id),
        a.job_id,
        a.batch_id,
        a.generation,
        a.source_id,
        a.item_key,
        a.ordinal,
        a.minted_at_ms,
        a.shard_id,
        a.pool,
        a.model,
        a.lane.value,
        a.state.value,
        *_failure(failure),
        failure.billed.value if failure else "unknown" if a.state is AttemptState.UNKNOWN else "yes",
        a.http_status,
        a.finish_reason or "",
        verdict.kind.value if verdict else "",
        (verdict.rule if verdict else None) or "",
        usage.input_tokens if usage else None,
        usage.cached_tokens if usage else None,
        usage.output_tokens if usage else None,
        a.cost_nano_usd,
        a.reserved_nano_usd,
        a.price_version,
        a.is_repair,
        a.late,
        a.provider_request_id or "",
        a.started_at_ms,
        a.ended_at_ms,
        attempt_version(a),
    )


def verdict_row(event: AttemptJudged) -> Row | None:
    """Row of `verdicts`; None when there was neither an answer nor a verdict."""
    a, verdict = event.attempt, event.verdict
    if verdict is None and a.output is None and a.output_digest is None:
        return None
    return (
        *tenant_and_pipeline(a.job_id),
        a.job_id,
        a.item_key,
        a.ordinal,
        a.minted_at_ms,
        *_verdict(verdict),
        a.output or "",
        a.output_digest or "",
        event.judged_at_ms,
        attempt_version(a),
    )


def item_row(event: ItemSettled) -> Row:
    """Row of `items`: a newer generation of its batch replaces it, and within one a newer revision."""
    return (
        *tenant_and_pipeline(event.job_id),
        event.job_id,
        submitted_at_ms(event.job_id),
        event.batch_id,
        event.ordinal,
        event.item_key,
        event.generation,
        event.revision,
        event.source_id,
        event.outcome.value,
        *_verdict(event.verdict),
        *_failure(event.failure),
        event.reused,
        *_totals(event.totals),
        event.attempt_id or "",
        event.model or "",
        event.pipeline_digest,
        event.planned_at_ms,
        event.settled_at_ms,
        event.generation * _REVISIONS + event.revision,
    )


def batch_row(event: BatchSealed) -> Row:
    """Row of `batches`."""
    return (
        *tenant_and_pipeline(event.job_id),
        event.job_id,
        submitted_at_ms(event.job_id),
        event.batch_id,
        event.pipeline_digest,
        event.refusal.rule if event.refusal else "",
        event.refusal.message if event.refusal else "",
        event.planned,
        event.refused_rows,
        event.blocks,
        event.input_tokens,
        event.max_output_tokens,
        event.expected_cost_nano_usd,
        event.worst_cost_nano_usd,
        event.budget_nano_usd,
        event.deadline_at_ms,
        event.priority,
        list(event.tags.items()),
        event.sealed_at_ms,
        event.sealed_at_ms,
    )


def publish_row(event: BatchPublished) -> Row:
    """Row of `publishes`."""
    return (
        *tenant_and_pipeline(event.job_id),
        event.job_id,
        submitted_at_ms(event.job_id),
        event.batch_id,
        event.generation,
        event.version,
        event.state.value,
        event.location,
        event.rows,
        event.bytes,
        *_counts(event.counts),
        event.published_at_ms,
        event.published_at_ms,
    )


def job_row(event: JobCompleted) -> Row:
    """Row of `jobs`: a held notice is replaced by what a person then decided."""
    return (
        *tenant_and_pipeline(event.job_id),
        event.job_id,
        submitted_at_ms(event.job_id),
        event.batch_id,
        event.generation,
        event.state.value,
        event.reason or "",
        event.planned,
        event.refused_rows,
        *_counts(event.counts),
        *_totals(event.totals),
        event.gold.compared if event.gold else None,
        event.gold.right if event.gold else None,
        event.version,
        event.location or "",
        event.completed_at_ms,
        event.completed_at_ms + (0 if event.state is BatchState.HELD else _FINAL),
    )


def lease_row(event: LeaseRequested) -> Row:
    """Row of `lease_usage`: the last report of a holder's epoch in a minute."""
    return (
        event.pool,
        event.holder,
        event.epoch,
        event.asked_at_ms // 1000 // _MINUTE_S * _MINUTE_S,
        event.seq,
        *_amounts(event.used),
        *_amounts(event.reserved),
        event.wants.requests,
        event.wants_slots,
        event.slots_in_use,
        event.asked_at_ms,
        event.seq,
    )


def _failure(failure: Any) -> tuple[str, str, str]:
    return (failure.failure_class.value, failure.signal, failure.message) if failure else ("", "", "")


def _verdict(verdict: Any) -> tuple[str, str, str, str]:
    if verdict is None:
        return ("", "", "", "")
    return (verdict.kind.value, verdict.rule or "", verdict.field or "", verdict.value or "")


def _totals(t: Totals) -> Row:
    counts = (t.attempts, t.retries, t.repairs, t.unknown_attempts)
    return (*counts, t.input_tokens, t.cached_tokens, t.output_tokens, t.cost_nano_usd)


def _counts(c: OutcomeCounts) -> Row:
    return (c.accepted, c.rejected, c.dead_letter, c.in_review, c.cancelled, c.reused)


def _amounts(amounts: LeaseAmounts) -> Row:
    return (amounts.requests, amounts.input_tokens, amounts.output_tokens)
