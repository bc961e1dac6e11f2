"""From an event that is rare to its row, a tuple in the order of the columns in tables.py.

Every value is a function of the event alone, so that the same event gives the same row whenever it comes.
"""

import re
from calendar import timegm
from functools import lru_cache
from typing import Any

from nightmill.kernel.domain.ids import dataset_of
from nightmill.kernel.domain.lifecycle import BatchState
from nightmill.kernel.wire.messages import (
    BatchPublished,
    BatchSealed,
    JobCompleted,
    LeaseAmounts,
    LeaseRequested,
    OutcomeCounts,
    Totals,
)

Row = tuple[Any, ...]

_STAMP = re.compile(r"^(\d{4})(\d{2})(\d{2})-(\d{2})(\d{2})(\d{2})-")
_MINUTE_S = 60
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
    try:
        if stamp is None:
            raise ValueError("there is no time in it")
        year, month, day, hour, minute, second = (int(part) for part in stamp.groups())
        return timegm((year, month, day, hour, minute, second)) * 1000
    except ValueError as error:  # also of a thirteenth month
        text = f"job id {job!r} does not hold its time as tenant.pipeline.YYYYMMDD-HHMMSS-suffix: {error}"
        raise ForeignId(text) from error


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


def _totals(t: Totals) -> Row:
    counts = (t.attempts, t.retries, t.repairs, t.unknown_attempts)
    return (*counts, t.input_tokens, t.cached_tokens, t.output_tokens, t.cost_nano_usd)


def _counts(c: OutcomeCounts) -> Row:
    return (c.accepted, c.rejected, c.dead_letter, c.in_review, c.cancelled, c.reused)


def _amounts(amounts: LeaseAmounts) -> Row:
    return (amounts.requests, amounts.input_tokens, amounts.output_tokens)
