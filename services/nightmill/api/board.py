"""What the views say of jobs, put together: a `Board` is one moment's rows, read by any number of handlers (O1).

Everything about a job's state comes from here and never from the ledger.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nightmill.api.findings import DatasetVersion, VersionList
from nightmill.api.models import Counts, Gold, JobStatus, Spent
from nightmill.kernel.domain.ids import batch_id, dataset_of, job_of
from nightmill.kernel.domain.lifecycle import BatchState, PlanPhase
from nightmill.kernel.wire.messages import (
    BatchPlanRow,
    BatchSealed,
    DatasetRow,
    JobSubmitted,
    LaneChoiceRow,
    PublicationRow,
    StallReported,
)
from nightmill.kernel.wire.messages import DatasetVersion as PublishedVersion

_PLANNED_PHASES = {
    PlanPhase.FREEZING: BatchState.PLANNING,
    PlanPhase.MERGING: BatchState.PLANNING,
    PlanPhase.REFUSED: BatchState.REFUSED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """Rows of the views by their keys. Never changed after it was made."""

    submitted: Mapping[str, JobSubmitted] = field(default_factory=dict)  #: by job
    plans: Mapping[str, BatchPlanRow] = field(default_factory=dict)  #: by batch
    publications: Mapping[str, PublicationRow] = field(default_factory=dict)  #: by batch
    datasets: Mapping[str, DatasetRow] = field(default_factory=dict)
    stalls: Mapping[str, StallReported] = field(default_factory=dict)
    lanes: Mapping[str, LaneChoiceRow] = field(default_factory=dict)  #: by batch and the dispatcher's partition
    partitions: int = 1
    ledger_behind: int | None = None

    def job_ids(self) -> set[str]:
        """Every job that a view knows."""
        return {*self.submitted, *(job_of(batch) for batch in (*self.plans, *self.publications))}

    def submission(self, job_id: str) -> JobSubmitted | None:
        plan = self.plans.get(batch_id(job_id))
        return self.submitted.get(job_id) or (None if plan is None else plan.job)

    def sealed(self, job_id: str) -> BatchSealed | None:
        publication = self.publications.get(batch_id(job_id))
        return None if publication is None else publication.sealed

    def pipeline_digest(self, job_id: str) -> str | None:
        """Blob of the job's frozen pipeline."""
        known = self.submission(job_id) or self.sealed(job_id)
        return None if known is None else known.pipeline_digest

    def manifest_digest(self, batch: str) -> str | None:
        """Blob of the batch's frozen input."""
        plan, publication = self.plans.get(batch), self.publications.get(batch)
        if publication is not None and publication.sealed is not None:
            return publication.sealed.manifest_digest
        return None if plan is None else plan.manifest_digest

    def published(self, job_id: str) -> PublishedVersion | None:
        """The newest version that a known job's batch has published, also after a resume began another generation."""
        row, batch = self.datasets.get(dataset_of(job_id)), batch_id(job_id)
        versions = [] if row is None else [each for each in row.versions if each.batch_id == batch]
        return max(versions, key=lambda each: each.version, default=None)


def job_status(board: Board, job_id: str, results_dir: Path) -> JobStatus | None:
    """Where a job stands, or None when no view knows it."""
    batch = batch_id(job_id)
    plan, publication = board.plans.get(batch), board.publications.get(batch)
    submitted, sealed = board.submission(job_id), board.sealed(job_id)
    if plan is None and publication is None and submitted is None:
        return None
    tenant, pipeline = job_id.split(".")[:2]
    version, location = _published(board, job_id, publication, results_dir)
    counts = Counts() if publication is None else Counts.model_validate(publication.counts)
    spent = Spent() if publication is None else Spent.model_validate(publication.totals)
    budget = _budget(submitted, sealed)
    since_ms = [row.updated_at_ms for row in (plan, publication) if row is not None]
    return JobStatus(
        job_id=job_id,
        dataset_id=f"{tenant}.{pipeline}",
        tenant=tenant,
        pipeline=pipeline,
        state=_state(plan, publication),
        reason=_reason(plan, publication),
        generation=0 if publication is None else publication.generation,
        input_name="" if submitted is None else submitted.input.name,
        read_rows=0 if plan is None else plan.planned + plan.refused_rows,
        planned=_planned(plan, sealed),
        refused_rows=_refused_rows(plan, sealed),
        settled=counts.settled,
        counts=counts,
        spent=spent,
        expected_cost_nano_usd=None if sealed is None else sealed.expected_cost_nano_usd,
        worst_cost_nano_usd=None if sealed is None else sealed.worst_cost_nano_usd,
        budget_nano_usd=budget,
        budget_left_nano_usd=None if budget is None else budget - spent.cost_nano_usd - spent.reserved_nano_usd,
        gold=None if publication is None or publication.gold is None else Gold.model_validate(publication.gold),
        version=version,
        location=location,
        priority=0 if submitted is None else submitted.priority,
        tags={} if submitted is None else dict(submitted.tags),
        submitted_at_ms=_submitted_at_ms(submitted, sealed, publication),
        deadline_at_ms=_deadline(submitted, sealed),
        ended_at_ms=None if publication is None else publication.ended_at_ms,
        updated_at_ms=max(since_ms, default=_submitted_at_ms(submitted, sealed, publication)),
        ledger_behind=board.ledger_behind,
    )


def job_statuses(board: Board, results_dir: Path, *, limit: int) -> list[JobStatus]:
    """Newest jobs first, at most `limit`."""
    # a job id ends with its time, so that the newest can be found without building every status
    newest = sorted(board.job_ids(), key=lambda job: job.split(".", 2)[-1], reverse=True)[:limit]
    return [status for job_id in newest if (status := job_status(board, job_id, results_dir)) is not None]


def version_list(row: DatasetRow, results_dir: Path) -> VersionList:
    """Versions of a dataset, newest first."""
    versions = [
        DatasetVersion(
            version=each.version,
            job_id=job_of(each.batch_id),
            batch_id=each.batch_id,
            generation=each.generation,
            state=each.state,
            rows=each.rows,
            location=_folder(results_dir, row.dataset_id, each.location),
            published_at_ms=each.published_at_ms,
        )
        for each in reversed(row.versions)
    ]
    current = max((each.version for each in versions), default=None)
    return VersionList(dataset_id=row.dataset_id, current=current, versions=versions)


def suffixes(jobs: Iterable[JobSubmitted]) -> Iterator[tuple[tuple[str, str], JobSubmitted]]:
    """(dataset, suffix of the job id) → job: what an Idempotency-Key is looked up by."""
    for job in jobs:
        yield (job.dataset_id, job.job_id.rpartition("-")[2]), job


def _state(plan: BatchPlanRow | None, publication: PublicationRow | None) -> BatchState:
    if publication is not None and publication.state is not BatchState.CREATED:
        return publication.state
    if plan is None:
        return BatchState.CREATED
    return _PLANNED_PHASES.get(plan.phase, BatchState.QUEUED)


def _reason(plan: BatchPlanRow | None, publication: PublicationRow | None) -> str | None:
    if publication is not None and publication.reason is not None:
        return publication.reason
    return None if plan is None or plan.refusal is None else plan.refusal.message


def _planned(plan: BatchPlanRow | None, sealed: BatchSealed | None) -> int | None:
    if sealed is not None:
        return sealed.planned
    if plan is None or plan.phase in (PlanPhase.FREEZING, PlanPhase.MERGING):
        return None
    return plan.planned


def _refused_rows(plan: BatchPlanRow | None, sealed: BatchSealed | None) -> int:
    if sealed is not None:
        return sealed.refused_rows
    return 0 if plan is None else plan.refused_rows


def _budget(submitted: JobSubmitted | None, sealed: BatchSealed | None) -> int | None:
    if sealed is not None:
        return sealed.budget_nano_usd
    return None if submitted is None else submitted.budget_nano_usd


def _deadline(submitted: JobSubmitted | None, sealed: BatchSealed | None) -> int | None:
    if sealed is not None:
        return sealed.deadline_at_ms
    return None if submitted is None else submitted.deadline_at_ms


def _submitted_at_ms(
    submitted: JobSubmitted | None, sealed: BatchSealed | None, publication: PublicationRow | None
) -> int:
    known = submitted or sealed
    if known is not None:
        return known.submitted_at_ms
    return 0 if publication is None else publication.opened_at_ms


def _published(
    board: Board, job_id: str, publication: PublicationRow | None, results_dir: Path
) -> tuple[int | None, str | None]:
    """Version and folder: of the present generation, else what readers have of an earlier one."""
    if publication is not None and publication.version is not None:
        location = publication.location
        folder = None if location is None else _folder(results_dir, publication.dataset_id, location)
        return publication.version, folder
    earlier = board.published(job_id)
    if earlier is None:
        return None, None
    return earlier.version, _folder(results_dir, dataset_of(job_id), earlier.location)


def _folder(results_dir: Path, dataset_id: str, manifest: str) -> str:
    return str((results_dir / dataset_id / manifest).parent)
