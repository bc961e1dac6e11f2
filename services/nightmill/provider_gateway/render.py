"""From orders to the call: the row of its block, the prompt of its pipeline, the wire format of its pool."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nightmill.kernel.domain.lifecycle import Lane
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.prompt import ChatMessage, Prompt, PromptError, parse_prompt, repair_messages
from nightmill.kernel.domain.prompt_cache import CacheTerms, Lifetime, cache_terms, pays
from nightmill.kernel.store.blobs import BlobMissing, BlobStore
from nightmill.kernel.store.blocks import BlockReader, PipelineReader
from nightmill.kernel.wire.messages import Failure, ShardDispatched
from nightmill.provider_gateway.caller import Call
from nightmill.provider_gateway.exchange import Form, Request, TextsForm
from nightmill.provider_gateway.failures import Signal, failure
from nightmill.provider_gateway.orders import Order
from nightmill.provider_gateway.pools import PoolAccess

#: an answer must be read whole: so much of it is left to vectors, which a server that knows no base64 sends as text
_VECTORS_BYTES = 6 << 20
_FLOAT_CHARS = 22
_PREPARED = 64  #: pipelines that are kept ready


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """The call of some orders, and those of them that can not be rendered."""

    call: Call | None
    refused: tuple[tuple[Order, Failure], ...] = ()
    looked_at: int = 1  #: of the orders given, so many are in the call or refused


class OtherWork(Exception):
    """A pipeline has come to a pool that can not do its kind of work: pools.yaml was changed since it was admitted."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A pipeline as a pool is asked by it."""

    fields: tuple[str, ...]
    prompt: Prompt
    form: Form
    terms: CacheTerms | None  #: how the pool's prompt cache is asked; None: not at all
    texts: TextsForm | None  #: the same form, where many texts go in one call
    inputs: int  #: of one call, at most


class Renderer:
    """Renders orders; blocks, and pipelines as each pool is asked by them, are kept."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blocks = BlockReader(blobs)
        self._pipelines = PipelineReader(blobs)
        self._prepared: dict[tuple[str, Lane, str], _Prepared] = {}  #: by pool, lane and pipeline

    def rendered(self, orders: Sequence[Order], access: PoolAccess, lane: str) -> Rendered:
        """The call of the first of these orders, of embeddings with as many others as fit.

        Raises `Unavailable` when the blob store is away.
        """
        if len(orders) == 1:
            found = self.call(orders[0], access, lane)
            if isinstance(found, Failure):
                return Rendered(call=None, refused=((orders[0], found),))
            return Rendered(call=found)
        return self._together(orders, access, lane)

    def call(self, order: Order, access: PoolAccess, lane: str) -> Call | Failure:
        """The call of an order, or why there can be none. Raises `Unavailable` when the blob store is away."""
        found = self._messages(order, access)
        if isinstance(found, Failure):
            return found
        prepared, messages = found
        attempt = order.attempt
        mark = _mark(order, access, prepared, messages)
        if attempt.repair is not None:
            messages = repair_messages(messages, attempt.repair.output, attempt.repair.problem)
        try:
            request = prepared.form.request(messages, attempt.max_output_tokens, mark)
        except UnicodeEncodeError:
            # JSON can hold half of a surrogate pair, UTF-8 can not
            return failure(Signal.PROMPT_UNRENDERABLE, detail="the text has a character that UTF-8 can not hold")
        return self._made((order,), access, lane, request)

    def _together(self, orders: Sequence[Order], access: PoolAccess, lane: str) -> Rendered:
        kept: list[Order] = []
        texts: list[str] = []
        refused: list[tuple[Order, Failure]] = []
        form: TextsForm | None = None
        most = len(orders)
        for order in orders[:most]:
            found = self._messages(order, access)
            if isinstance(found, Failure):
                refused.append((order, found))
                continue
            prepared, messages = found
            form, most = prepared.texts, min(most, prepared.inputs)
            if len(kept) == most:
                break
            text = messages[-1].content
            if _is_whole(text):
                kept.append(order)
                texts.append(text)
            else:
                why = "the text has a character that UTF-8 can not hold"
                refused.append((order, failure(Signal.PROMPT_UNRENDERABLE, detail=why)))
        call = None if form is None or not kept else self._made(tuple(kept), access, lane, form.together(texts))
        return Rendered(call=call, refused=tuple(refused), looked_at=len(kept) + len(refused))

    def _made(self, orders: tuple[Order, ...], access: PoolAccess, lane: str, request: Request) -> Call:
        return Call(
            orders=orders,
            lane=lane,
            adapter=access.adapter,
            request=request,
            deadline_s=access.pool.call_deadline,
            embedder=None if access.pool.embeddings is None else access.embedder,
        )

    def _messages(self, order: Order, access: PoolAccess) -> tuple[_Prepared, tuple[ChatMessage, ...]] | Failure:
        """What an order asks, and how its pool is asked. Raises `Unavailable`."""
        attempt = order.attempt
        try:
            prepared = self._prepare(order.shard, access)
            row = self._blocks.row(attempt.row)
            return prepared, prepared.prompt.render(_fields(row, prepared.fields))
        except BlobMissing as error:
            return failure(Signal.DOCUMENT_MISSING, detail=str(error))
        except IndexError:
            return failure(Signal.DOCUMENT_MISSING, detail=f"block {attempt.row.block} has no row {attempt.row.row}")
        except PromptError as error:
            return failure(Signal.PROMPT_UNRENDERABLE, detail=str(error))
        except OtherWork as error:
            return failure(Signal.POOL_UNUSABLE, detail=str(error))

    def _prepare(self, shard: ShardDispatched, access: PoolAccess) -> _Prepared:
        key = access.name, shard.lane, shard.pipeline_digest
        prepared = self._prepared.get(key)
        if prepared is None:
            prepared = _prepared(self._pipelines.get(shard.pipeline_digest), access, shard.lane)
            if len(self._prepared) >= _PREPARED:
                self._prepared.clear()
            self._prepared[key] = prepared
        return prepared


def _prepared(pipeline: Pipeline, access: PoolAccess, lane: Lane) -> _Prepared:
    prompt, fields = parse_prompt(pipeline.prompt), pipeline.input.fields
    embedding = pipeline.embedding
    if embedding is None:
        if access.pool.embeddings is not None:
            raise OtherWork(f"the model of pool {access.name} makes vectors and no answers; name another pool")
        form = access.adapter.form(base_url=access.base_url, pool=access.pool, pipeline=pipeline)
        return _Prepared(fields, prompt, form, cache_terms(access.pool, lane), None, 1)
    if access.embedder is None:
        raise OtherWork(f"provider {access.pool.provider} has no embeddings; name another pool in pipeline.yaml")
    texts = access.embedder.texts_form(base_url=access.base_url, pool=access.pool, embedding=embedding)
    inputs = max(1, _VECTORS_BYTES // (_FLOAT_CHARS * embedding.dimensions))
    return _Prepared(fields, prompt, texts, None, texts, inputs)


def _is_whole(text: str) -> bool:
    """Whether it goes onto the wire: JSON can hold half of a surrogate pair, UTF-8 can not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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
