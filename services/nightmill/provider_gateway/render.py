"""From an order to the call: the row of its block, the prompt of its pipeline, the wire format of its pool."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nightmill.kernel.domain.prompt import Prompt, PromptError, parse_prompt, repair_messages
from nightmill.kernel.store.blobs import BlobMissing, BlobStore
from nightmill.kernel.store.blocks import BlockReader, PipelineReader
from nightmill.kernel.wire.messages import Failure
from nightmill.provider_gateway.caller import Call
from nightmill.provider_gateway.exchange import Form
from nightmill.provider_gateway.failures import Signal, failure
from nightmill.provider_gateway.orders import Order
from nightmill.provider_gateway.pools import PoolAccess

_PREPARED = 64  #: pipelines that are kept ready


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A pipeline as a pool is asked by it."""

    fields: tuple[str, ...]
    prompt: Prompt
    form: Form


class Renderer:
    """Renders orders; blocks, and pipelines as each pool is asked by them, are kept."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blocks = BlockReader(blobs)
        self._pipelines = PipelineReader(blobs)
        self._prepared: dict[tuple[str, str], _Prepared] = {}  #: by pool and pipeline

    def call(self, order: Order, access: PoolAccess, lane: str) -> Call | Failure:
        """The call of an order, or why there can be none. Raises `Unavailable` when the blob store is away."""
        attempt = order.attempt
        try:
            prepared = self._prepare(order.shard.pipeline_digest, access)
            row = self._blocks.row(attempt.row)
            messages = prepared.prompt.render(_fields(row, prepared.fields))
        except BlobMissing as error:
            return failure(Signal.DOCUMENT_MISSING, detail=str(error))
        except IndexError:
            return failure(Signal.DOCUMENT_MISSING, detail=f"block {attempt.row.block} has no row {attempt.row.row}")
        except PromptError as error:
            return failure(Signal.PROMPT_UNRENDERABLE, detail=str(error))
        if attempt.repair is not None:
            messages = repair_messages(messages, attempt.repair.output, attempt.repair.problem)
        try:
            request = prepared.form.request(messages, attempt.max_output_tokens)
        except UnicodeEncodeError:
            # JSON can hold half of a surrogate pair, UTF-8 can not
            return failure(Signal.PROMPT_UNRENDERABLE, detail="the text has a character that UTF-8 can not hold")
        return Call(
            order=order, lane=lane, adapter=access.adapter, request=request, deadline_s=access.pool.call_deadline
        )

    def _prepare(self, pipeline_digest: str, access: PoolAccess) -> _Prepared:
        key = access.name, pipeline_digest
        prepared = self._prepared.get(key)
        if prepared is None:
            pipeline = self._pipelines.get(pipeline_digest)
            form = access.adapter.form(base_url=access.base_url, pool=access.pool, pipeline=pipeline)
            prepared = _Prepared(pipeline.input.fields, parse_prompt(pipeline.prompt), form)
            if len(self._prepared) >= _PREPARED:
                self._prepared.clear()
            self._prepared[key] = prepared
        return prepared


def _fields(row: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """What the template may see: the pipeline's input fields, absent ones left out so that their use is an error."""
    return {name: row[name] for name in names if name in row}
