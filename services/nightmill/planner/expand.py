"""From an admitted block to its items: identity, tokens and prefix of each selected row (M3)."""

from collections.abc import Mapping, Sequence
from typing import Any

from nightmill.kernel.domain.bitmap import Bitmap
from nightmill.kernel.domain.ids import ItemIdentity, item_key
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.settings import Config
from nightmill.kernel.wire.messages import BlockAdmitted, ItemPlanned, RowRef
from nightmill.planner.meter import Measure
from nightmill.planner.rows import Columns, source_version


def models_of(pipeline: Pipeline, config: Config) -> tuple[str, ...]:
    """Models that may answer, in the pipeline's order: part of an item's identity."""
    return tuple(config.pools[name].model for name in pipeline.model.pools if name in config.pools)


def selected(block: BlockAdmitted, selection: Bitmap | None) -> list[int]:
    """Indexes of the block's rows that are wanted; all without a selection."""
    rows = range(block.block.rows)
    return [row for row in rows if selection is None or selection.get(block.first_ordinal + row)]


def expand(
    block: BlockAdmitted,
    pipeline: Pipeline,
    models: tuple[str, ...],
    rows: Mapping[int, Mapping[str, Any]],
    measures: Sequence[Measure],
) -> tuple[ItemPlanned, ...]:
    """One item per row; `rows` maps indexes in the block to fields, `measures` are in the same order."""
    columns = Columns.of(pipeline)
    prompt, transform = pipeline.prompt_version, pipeline.transform_version
    policy, schema = pipeline.model_policy_version(models), pipeline.output_schema_version
    items = []
    for (index, fields), measure in zip(rows.items(), measures, strict=True):
        source_id = fields[columns.id]
        identity = ItemIdentity(
            tenant=block.tenant,
            source_id=source_id,
            source_version=source_version(fields, columns),
            pipeline=pipeline.name,
            transform_version=transform,
            prompt_version=prompt,
            model_policy_version=policy,
            output_schema_version=schema,
        )
        items.append(
            ItemPlanned(
                item_key=item_key(identity),
                batch_id=block.batch_id,
                job_id=block.job_id,
                dataset_id=block.dataset_id,
                generation=block.generation,
                ordinal=block.first_ordinal + index,
                source_id=source_id,
                row=RowRef(block=block.block.digest, row=index),
                pipeline_digest=block.pipeline_digest,
                input_tokens=measure.input_tokens,
                max_output_tokens=pipeline.model.max_output_tokens,
                prefix=measure.prefix,
                reuse=block.reuse,
                priority=block.priority,
                deadline_at_ms=block.deadline_at_ms,
            )
        )
    return tuple(items)
