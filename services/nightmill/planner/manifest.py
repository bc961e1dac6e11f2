"""The manifest of a frozen batch: its blocks with their ordinals, and the rows refused at planning (M5)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.wire.messages import BatchPlanRow, BlockRef

#: refused rows listed one by one; all are counted
LISTED_REFUSALS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBlock:
    """A block and the ordinal of its first row."""

    block: BlockRef
    first_ordinal: int


def build_manifest(
    row: BatchPlanRow,
    pipeline: Pipeline,
    models: tuple[str, ...],
    blocks: Iterable[PlannedBlock],
    refused: Sequence[Mapping[str, str | None]],
) -> dict[str, Any]:
    """The manifest as JSON."""
    return {
        "batch_id": row.batch_id,
        "pipeline_digest": row.job.pipeline_digest,
        "blocks": [{**entry.block.to_avro(), "first_ordinal": entry.first_ordinal} for entry in blocks],
        "planned": row.planned,
        "refused": list(refused[:LISTED_REFUSALS]),
        "refused_rows": row.refused_rows,
        "input": {**row.job.input.to_avro(), "format": str(row.job.input.format)},
        "versions": {
            "prompt_version": pipeline.prompt_version,
            "output_schema_version": pipeline.output_schema_version,
            "transform_version": pipeline.transform_version,
            "model_policy_version": pipeline.model_policy_version(models),
        },
    }


def blocks_of(manifest: Mapping[str, Any]) -> tuple[PlannedBlock, ...]:
    """Blocks of a manifest, by ordinal."""
    return tuple(
        PlannedBlock(
            block=BlockRef(digest=entry["digest"], rows=entry["rows"], bytes=entry["bytes"]),
            first_ordinal=entry["first_ordinal"],
        )
        for entry in manifest["blocks"]
    )
