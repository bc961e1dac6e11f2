"""The end of planning: a batch whose input is frozen and merged is admitted or refused, and says so (M5, P4)."""

import logging
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nightmill.kernel.domain.ids import dataset_of
from nightmill.kernel.domain.lifecycle import PlanPhase
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.settings import Config
from nightmill.kernel.store.blobs import BlobStore
from nightmill.kernel.store.blocks import BlockReader
from nightmill.kernel.wire.messages import BatchPlanRow, BatchSealed, BlockPlanRow, JobSubmitted, Refusal
from nightmill.kernel.wire.values import replace
from nightmill.planner.admission import admit, doubts
from nightmill.planner.duplicates import DuplicateSearch, IdEntry
from nightmill.planner.estimate import Estimate, PlanTotals, estimate
from nightmill.planner.freezer import duplicate_text
from nightmill.planner.manifest import LISTED_REFUSALS, PlannedBlock, build_manifest
from nightmill.planner.readers import label_of
from nightmill.planner.transforms import Transform

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A batch at the end of planning and the message that says so."""

    row: BatchPlanRow
    message: BatchSealed


class Sealer:
    """Seals batches. Reads and writes blobs; its answer depends on its arguments and the blobs alone."""

    def __init__(self, blobs: BlobStore, config: Config) -> None:
        self._blobs, self._config = blobs, config
        self._blocks = BlockReader(blobs, cached_blocks=2)

    def seal(
        self,
        row: BatchPlanRow,
        blocks: Sequence[BlockPlanRow],
        search: DuplicateSearch,
        transform: Transform,
        now_ms: int,
    ) -> Sealed:
        """`blocks` are all slices in order, `search` is complete. Raises `BlobMissing`, `Unavailable`."""
        pipeline = transform.pipeline
        plan = PlanTotals(
            items=row.planned,
            refused_rows=row.refused_rows,
            input_tokens=row.input_tokens,
            longest_input_tokens=row.longest_input_tokens,
        )
        deadline_at_ms = deadline_of(row.job, pipeline)
        expected = estimate(
            pipeline, plan, tenant=row.job.tenant, config=self._config, now_ms=now_ms, deadline_at_ms=deadline_at_ms
        )
        listed = self._listed(blocks) if row.refused_rows else []
        refusal = (
            self._duplicates(row, blocks, search, pipeline)
            or _bad_rows(row, listed)
            or self.admit(row.job, pipeline, expected, now_ms)
        )
        if refusal is not None:
            return refuse(row, refusal, pipeline, now_ms, expected)
        for doubt in doubts(pipeline, expected, deadline_at_ms=deadline_at_ms, now_ms=now_ms):
            extra = {"action": "deadline_doubtful", "batch": row.batch_id, "reason": doubt}
            log.warning("deadline may be missed", extra=extra)
        frozen = (
            PlannedBlock(block=block.block, first_ordinal=block.first_ordinal) for block in blocks if block.block.rows
        )
        manifest = build_manifest(row, pipeline, transform.models, frozen, listed)
        after = replace(
            row, phase=PlanPhase.SEALED, manifest_digest=self._blobs.put_json(manifest), updated_at_ms=now_ms
        )
        message = _message(after, pipeline, expected, now_ms, blocks=len(manifest["blocks"]))
        return Sealed(row=after, message=message)

    def admit(self, job: JobSubmitted, pipeline: Pipeline, plan: Estimate | None, now_ms: int) -> Refusal | None:
        """`admission.admit` with the limits of the job, or of its pipeline where the job names none."""
        return admit(
            pipeline,
            tenant=job.tenant,
            config=self._config,
            plan=plan,
            budget_nano_usd=budget_of(job, pipeline),
            deadline_at_ms=deadline_of(job, pipeline),
            now_ms=now_ms,
        )

    def _listed(self, blocks: Sequence[BlockPlanRow]) -> list[dict[str, Any]]:
        """The first refused rows of the input, as many as a manifest lists."""
        listed: list[dict[str, Any]] = []
        for digest in (block.refused_digest for block in blocks if block.refused_digest is not None):
            listed += self._blobs.get_json(digest)
            if len(listed) >= LISTED_REFUSALS:
                break
        return listed

    def _duplicates(
        self, row: BatchPlanRow, blocks: Sequence[BlockPlanRow], search: DuplicateSearch, pipeline: Pipeline
    ) -> Refusal | None:
        if not search.count:
            return None
        pair = search.first[0]
        source_id = self._source_id(blocks, pair.first, pipeline)
        text = duplicate_text(label_of(row.job.input.format), pair.first.row, pair.second.row, source_id)
        more = f" ({search.count:,} rows repeat an id)" if search.count > 1 else ""
        return Refusal(rule="duplicate_ids", message=f"{row.job.input.name}, {text}{more}")

    def _source_id(self, blocks: Sequence[BlockPlanRow], entry: IdEntry, pipeline: Pipeline) -> str:
        filled = [block for block in blocks if block.block.rows]
        block = filled[bisect_right([each.first_ordinal for each in filled], entry.ordinal) - 1]
        rows = self._blocks.rows(block.block.digest)
        return str(rows[entry.ordinal - block.first_ordinal][pipeline.input.id])


def refuse(
    row: BatchPlanRow, refusal: Refusal, pipeline: Pipeline | None, now_ms: int, plan: Estimate | None = None
) -> Sealed:
    """The batch ends here; the publisher tells."""
    after = replace(row, phase=PlanPhase.REFUSED, refusal=refusal, updated_at_ms=now_ms)
    return Sealed(row=after, message=_message(after, pipeline, plan, now_ms, blocks=0))


def refuse_unread(job_id: str, batch_id: str, reason: str, now_ms: int) -> BatchSealed:
    """For a job whose submission could not be read: what its headers tell, and the reason."""
    dataset = dataset_of(job_id)
    tenant, pipeline = dataset.split(".", 1)
    return BatchSealed(
        batch_id=batch_id,
        job_id=job_id,
        dataset_id=dataset,
        tenant=tenant,
        pipeline=pipeline,
        pipeline_digest="",
        refusal=Refusal(rule="quarantined", message=f"the submission could not be handled: {reason}; submit it again"),
        planned=0,
        refused_rows=0,
        blocks=0,
        input_tokens=0,
        max_output_tokens=0,
        priority=0,
        tags={},
        submitted_at_ms=now_ms,
        sealed_at_ms=now_ms,
    )


def budget_of(job: JobSubmitted, pipeline: Pipeline | None) -> int | None:
    """The job's budget in nano-USD, else its pipeline's."""
    if job.budget_nano_usd is not None or pipeline is None or pipeline.limits.budget_usd is None:
        return job.budget_nano_usd
    return round(pipeline.limits.budget_usd * 1_000_000_000)


def deadline_of(job: JobSubmitted, pipeline: Pipeline | None) -> int | None:
    """The job's deadline, else its pipeline's from submission on."""
    if job.deadline_at_ms is not None or pipeline is None or pipeline.limits.deadline is None:
        return job.deadline_at_ms
    return job.submitted_at_ms + round(pipeline.limits.deadline * 1000)


def _bad_rows(row: BatchPlanRow, listed: Sequence[dict[str, Any]]) -> Refusal | None:
    if not row.refused_rows or row.job.input.skip_bad_rows:
        return None
    first, total = listed[0], row.planned + row.refused_rows
    return Refusal(
        rule="bad_rows",
        message=f"{row.job.input.name}, {first['place']}: {first['reason']} "
        f"({row.refused_rows:,} of {total:,} rows can not be used); "
        "correct them, or submit with --skip-bad-rows to leave them out",
    )


def _message(
    row: BatchPlanRow, pipeline: Pipeline | None, plan: Estimate | None, now_ms: int, *, blocks: int
) -> BatchSealed:
    job = row.job
    return BatchSealed(
        batch_id=row.batch_id,
        job_id=job.job_id,
        dataset_id=job.dataset_id,
        tenant=job.tenant,
        pipeline=job.pipeline,
        pipeline_digest=job.pipeline_digest,
        refusal=row.refusal,
        planned=row.planned,
        refused_rows=row.refused_rows,
        blocks=blocks,
        input_tokens=row.input_tokens,
        max_output_tokens=row.max_output_tokens,
        expected_cost_nano_usd=plan.expected_cost_nano_usd if plan else None,
        worst_cost_nano_usd=plan.worst_cost_nano_usd if plan else None,
        budget_nano_usd=budget_of(job, pipeline),
        deadline_at_ms=deadline_of(job, pipeline),
        priority=job.priority,
        manifest_digest=row.manifest_digest,
        tags=job.tags,
        submitted_at_ms=job.submitted_at_ms,
        sealed_at_ms=now_ms,
    )
