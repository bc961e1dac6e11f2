"""Whose a record was that could not be handled: from its headers, and from the batch's frozen input.

A record of item-planned that cannot be decoded still names its batch, generation, item and ordinal; the rest of the
plan is found again through the manifest and the block that holds the row.
"""

from collections.abc import Mapping

from pydantic import ValidationError

from nightmill.kernel.store.blobs import BlobMissing, BlobStore
from nightmill.kernel.store.blocks import BlockReader, PipelineReader
from nightmill.kernel.wire.messages import BatchControlled, ItemPlanned, RowRef


def plan_of(
    headers: Mapping[str, str], control: BatchControlled, blobs: BlobStore, pipelines: PipelineReader
) -> ItemPlanned | None:
    """The plan of a record of item-planned, good enough to settle it; None when it cannot be found.

    Raises `Unavailable`.
    """
    ordinal, generation = _integer(headers.get("ordinal")), _integer(headers.get("generation"))
    item_key = headers.get("item")
    if ordinal is None or generation is None or not item_key:
        return None
    try:
        pipeline = pipelines.get(control.pipeline_digest)
        row = _row_of(ordinal, blobs.get_json(control.manifest_digest)["blocks"])
        if row is None:
            return None
        source_id = str(BlockReader(blobs, cached_blocks=1).row(row)[pipeline.input.id])
    except (BlobMissing, ValidationError, KeyError, IndexError, ValueError):
        return None
    return ItemPlanned(
        item_key=item_key,
        batch_id=control.batch_id,
        job_id=control.job_id,
        dataset_id=control.dataset_id,
        generation=generation,
        ordinal=ordinal,
        source_id=source_id,
        row=row,
        pipeline_digest=control.pipeline_digest,
        input_tokens=0,
        max_output_tokens=pipeline.model.max_output_tokens,
        prefix="",
        reuse=control.reuse,
        priority=control.priority,
        deadline_at_ms=control.deadline_at_ms,
    )


def _row_of(ordinal: int, blocks: list[dict[str, object]]) -> RowRef | None:
    for block in blocks:
        first, rows = int(str(block["first_ordinal"])), int(str(block["rows"]))
        if first <= ordinal < first + rows:
            return RowRef(block=str(block["digest"]), row=ordinal - first)
    return None


def _integer(text: str | None) -> int | None:
    try:
        return int(text or "")
    except ValueError:
        return None
