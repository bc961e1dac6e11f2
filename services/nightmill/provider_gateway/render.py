"""From an order to the call: the row of its block, the prompt of its pipeline, the wire format of its pool."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nightmill.kernel.domain.lifecycle import Lane
from nightmill.kernel.domain.prompt import ChatMessage, Prompt, PromptError, parse_prompt, repair_messages
from nightmill.kernel.domain.prompt_cache import CacheTerms, Lifetime, cache_terms, pays
from nightmill.kernel.store.blobs import BlobMissing, BlobStore
from nightmill.kernel.store.blocks import BlockReader, PipelineReader
from nightmill.kernel.wire.messages import Failure, ShardDispatched
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
    terms: CacheTerms | None  #: how the pool's prompt cache is asked; None: not at all


class Renderer:
    """Renders orders; blocks, and pipelines as each pool is asked by them, are kept."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blocks = BlockReader(blobs)
        self._pipelines = PipelineReader(blobs)
        self._prepared: dict[tuple[str, Lane, str], _Prepared] = {}  #: by pool, lane and pipeline

    def call(self, order: Order, access: PoolAccess, lane: str) -> Call | Failure:
        """The call of an order, or why there can be none. Raises `Unavailable` when the blob store is away."""
        attempt = order.attempt
        try:
            prepared = self._prepare(order.shard, access)
            row = self._blocks.row(attempt.row)
            messages = prepared.prompt.render(_fields(row, prepared.fields))
        except BlobMissing as error:
            return failure(Signal.DOCUMENT_MISSING, detail=str(error))
        except IndexError:
            return failure(Signal.DOCUMENT_MISSING, detail=f"block {attempt.row.block} has no row {attempt.row.row}")
        except PromptError as error:
            return failure(Signal.PROMPT_UNRENDERABLE, detail=str(error))
        mark = _mark(order, access, prepared, messages)
        if attempt.repair is not None:
            messages = repair_messages(messages, attempt.repair.output, attempt.repair.problem)
        try:
            request = prepared.form.request(messages, attempt.max_output_tokens, mark)
        except UnicodeEncodeError:
            # JSON can hold half of a surrogate pair, UTF-8 can not
            return failure(Signal.PROMPT_UNRENDERABLE, detail="the text has a character that UTF-8 can not hold")
        return Call(
            order=order, lane=lane, adapter=access.adapter, request=request, deadline_s=access.pool.call_deadline
        )

    def _prepare(self, shard: ShardDispatched, access: PoolAccess) -> _Prepared:
        key = access.name, shard.lane, shard.pipeline_digest
        prepared = self._prepared.get(key)
        if prepared is None:
            pipeline = self._pipelines.get(shard.pipeline_digest)
            form = access.adapter.form(base_url=access.base_url, pool=access.pool, pipeline=pipeline)
            terms = cache_terms(access.pool, shard.lane)
            prepared = _Prepared(pipeline.input.fields, parse_prompt(pipeline.prompt), form, terms)
            if len(self._prepared) >= _PREPARED:
                self._prepared.clear()
            self._prepared[key] = prepared
        return prepared


def _fields(row: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """What the template may see: the pipeline's input fields, absent ones left out so that their use is an error."""
    return {name: row[name] for name in names if name in row}


def _mark(order: Order, access: PoolAccess, prepared: _Prepared, messages: Sequence[ChatMessage]) -> Lifetime | None:
    """For how long to cache what the call shares with others; None: it would not pay, or nobody knows the price.

    Where a row has a say in the beginning, only the calls of its shard are known to share it.
    """
    terms, shard = prepared.terms, order.shard
    if terms is None:
        return None
    shared = [message.content[: message.shared] for message in messages]
    if not terms.may_reach(sum(len(text) if text.isascii() else len(text.encode()) for text in shared)):
        return None
    tariff = order.tariff(shard.dispatched_at_ms)
    if tariff is None:
        return None
    alike = 0 if prepared.prompt.constant is None else order.planned
    calls = max(len(shard.attempts), alike)
    rates = tariff.rates(order.attempt.input_tokens)
    paying = pays(rates, terms.lifetime, shard.lane, calls=calls, at_once=access.pool.limits.slots)
    return terms.lifetime if paying else None
