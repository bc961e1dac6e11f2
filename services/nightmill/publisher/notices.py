"""The messages that tell others what the publisher decided, built from its rows."""

from nightmill.kernel.domain.lifecycle import ControlState, Reuse
from nightmill.kernel.wire.messages import (
    BatchControlled,
    BatchPublished,
    DatasetVersion,
    JobCompleted,
    PublicationRow,
)
from nightmill.publisher.batches import planned_of


def batch_controlled(
    row: PublicationRow, state: ControlState, now_ms: int, *, selection_digest: str | None = None
) -> BatchControlled:
    """What a sealed batch's generation may do. The first generation takes accepted answers of equal keys, a later
    one every final one, so that nothing is paid for again."""
    if row.sealed is None:
        raise ValueError(f"batch {row.batch_id} has no plan yet, there is nothing to control")
    return BatchControlled(
        batch_id=row.batch_id,
        job_id=row.job_id,
        dataset_id=row.dataset_id,
        generation=row.generation,
        state=state,
        pipeline_digest=row.sealed.pipeline_digest,
        manifest_digest=row.sealed.manifest_digest or "",
        selection_digest=selection_digest,
        reuse=Reuse.ACCEPTED if row.generation == 1 else Reuse.FINAL,
        priority=row.sealed.priority,
        deadline_at_ms=row.sealed.deadline_at_ms,
        reason=row.reason,
        controlled_at_ms=now_ms,
        planned=row.sealed.planned,
    )


def job_completed(row: PublicationRow, now_ms: int) -> JobCompleted:
    """The notice at a job's end, or where it needs a person."""
    return JobCompleted(
        job_id=row.job_id,
        batch_id=row.batch_id,
        dataset_id=row.dataset_id,
        generation=row.generation,
        state=row.state,
        reason=row.reason,
        planned=planned_of(row),
        refused_rows=0 if row.sealed is None else row.sealed.refused_rows,
        counts=row.counts,
        totals=row.totals,
        gold=row.gold,
        version=row.version,
        location=row.location,
        submitted_at_ms=row.opened_at_ms if row.sealed is None else row.sealed.submitted_at_ms,
        completed_at_ms=now_ms,
    )


def batch_published(row: PublicationRow, version: DatasetVersion, size_bytes: int) -> BatchPublished:
    """Readers see a new version."""
    return BatchPublished(
        batch_id=row.batch_id,
        job_id=row.job_id,
        dataset_id=row.dataset_id,
        generation=row.generation,
        state=row.state,
        version=version.version,
        location=version.location,
        rows=version.rows,
        bytes=size_bytes,
        counts=row.counts,
        totals=row.totals,
        published_at_ms=version.published_at_ms,
    )
