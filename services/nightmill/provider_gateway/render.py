"""From an order to the call: the row of its block, the prompt of its pipeline, the wire format of its pool."""

from collections.abc import Mapping
from typing import Any

from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.prompt import PromptError, parse_prompt, repair_messages
from nightmill.kernel.store.blobs import BlobMissing, BlobStore
from nightmill.kernel.store.blocks import BlockReader, PipelineReader
from nightmill.kernel.wire.messages import Failure
from nightmill.provider_gateway.caller import Call
from nightmill.provider_gateway.failures import Signal, failure
from nightmill.provider_gateway.orders import Order
from nightmill.provider_gateway.pools import PoolAccess


class Renderer:
    """Renders orders; blocks, pipelines and templates are cached."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blocks = BlockReader(blobs)
        self._pipelines = PipelineReader(blobs)

    def call(self, order: Order, access: PoolAccess, lane: str) -> Call | Failure:
        """The call of an order, or why there can be none. Raises `Unavailable` when the blob store is away."""
        attempt = order.attempt
        try:
            pipeline = self._pipelines.get(order.shard.pipeline_digest)
            row = self._blocks.row(attempt.row)
        except BlobMissing as error:
            return failure(Signal.DOCUMENT_MISSING, detail=str(error))
        except IndexError:
            return failure(Signal.DOCUMENT_MISSING, detail=f"block {attempt.row.block} has no row {attempt.row.row}")
        try:
            messages = parse_prompt(pipeline.prompt).render(_fields(row, pipeline))
        except PromptError as error:
            return failure(Signal.PROMPT_UNRENDERABLE, detail=str(error))
        if attempt.repair is not None:
            messages = repair_messages(messages, attempt.repair.output, attempt.repair.problem)
        try:
            request = access.adapter.request(
                base_url=access.base_url,
                pool=access.pool,
                pipeline=pipeline,
                messages=messages,
                max_output_tokens=attempt.max_output_tokens,
            )
        except UnicodeEncodeError:
            # JSON can hold half of a surrogate pair, UTF-8 can not
            return failure(Signal.PROMPT_UNRENDERABLE, detail="the text has a character that UTF-8 can not hold")
        return Call(
            order=order, lane=lane, adapter=access.adapter, request=request, deadline_s=access.pool.call_deadline
        )


def _fields(row: Mapping[str, Any], pipeline: Pipeline) -> dict[str, Any]:
    """What the template may see: the pipeline's input fields, absent ones left out so that their use is an error."""
    return {name: row[name] for name in pipeline.input.fields if name in row}
