"""Small, complete pieces for the gateway's tests: a pipeline and documents on disk, pools, shards and answers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nightmill.kernel.domain.lifecycle import ControlState, Lane, Reuse
from nightmill.kernel.domain.pipeline import InputSpec, ModelPolicy, Pipeline
from nightmill.kernel.domain.prices import WrittenPrice
from nightmill.kernel.domain.settings import Pool, PoolLimits
from nightmill.kernel.store.blobs import BlobStore
from nightmill.kernel.store.blocks import write_block
from nightmill.kernel.wire.messages import BatchControlled, Repair, RowRef, ShardAttempt, ShardDispatched
from nightmill.provider_gateway.adapters import EMBEDDERS, adapter_of
from nightmill.provider_gateway.exchange import Response
from nightmill.provider_gateway.orders import Order
from nightmill.provider_gateway.pools import PoolAccess

NOW_MS = 1_796_000_000_000
BATCH, JOB = "acme.tickets.20261129-1.1", "acme.tickets.20261129-1"
POOL = "sim"
PRICE = WrittenPrice(input_usd_per_million=1, output_usd_per_million=2)
SCHEMA = {"type": "object", "properties": {"label": {"enum": ["a", "b"]}}, "required": ["label"]}
PIPELINE = Pipeline(
    name="tickets",
    input=InputSpec(id="id", fields=("text",)),
    prompt="system:\nClassify.\nuser:\n{{ text }}",
    output=SCHEMA,
    model=ModelPolicy(pools=(POOL,), max_output_tokens=64, temperature=0, seed=3),
)
EMBED = Pipeline.model_validate(
    {
        "name": "embed",
        "input": {"id": "id", "fields": ["text"]},
        "prompt": "{{ text }}",
        "embedding": {"dimensions": 8, "shorten": True},
        "model": {"pools": [POOL]},
    }
)


def make_pool(base_url: str = "http://127.0.0.1:1/v1", **changes: Any) -> Pool:
    settings = {
        "provider": "openai_compatible",
        "base_url": base_url,
        "model": "small",
        "limits": PoolLimits(slots=4),
        "context_tokens": 8_000,
        "call_deadline": 5.0,
    }
    return Pool(**(settings | changes))


def make_access(
    base_url: str = "http://127.0.0.1:1/v1", *, price: WrittenPrice | None = PRICE, **changes: Any
) -> PoolAccess:
    pool = make_pool(base_url, **changes)
    return PoolAccess(
        name=POOL,
        pool=pool,
        adapter=adapter_of(POOL, pool.provider),
        embedder=EMBEDDERS.get(pool.provider),
        base_url=base_url,
        periods=() if price is None else (price.period(),),
        price_version="p1",
    )


def completion(content: Any = '{"label": "a"}', *, finish: str | None = "stop", **message: Any) -> dict[str, Any]:
    """A chat completion as OpenAI sends it."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "small",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": content} | message, "finish_reason": finish}
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 40}},
    }


def response(body: Any, status: int = 200, **headers: str) -> Response:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(status=status, headers={"content-type": "application/json"} | names, body=raw)


ANSWER = response(completion())
#: the body of that answer
WHOLE = json.dumps(completion()).encode()


@dataclass
class Documents:
    """A blob store with the pipeline and one block of rows."""

    blobs: BlobStore
    pipeline_digest: str
    block: str


def make_documents(folder: Path, rows: Sequence[Mapping[str, Any]] = (), pipeline: Pipeline = PIPELINE) -> Documents:
    blobs = BlobStore(str(folder))
    texts = [dict(row) for row in rows] or [{"id": str(i), "text": f"ticket {i}"} for i in range(20)]
    return Documents(blobs, blobs.put(pipeline.canonical()), write_block(blobs, texts).digest)


def make_shard(
    documents: Documents, rows: Sequence[int], *, shard_id: str = "s1", repair: Repair | None = None, **changes: Any
) -> ShardDispatched:
    attempts = tuple(
        ShardAttempt(
            item_key=f"item{row:039d}",
            ordinal=1 if repair is None else 2,
            minted_at_ms=NOW_MS,
            batch_id=BATCH,
            generation=1,
            source_id=str(row),
            row=RowRef(block=documents.block, row=row),
            input_tokens=100,
            max_output_tokens=64,
            repair=repair,
        )
        for row in rows
    )
    fields: dict[str, Any] = {
        "shard_id": shard_id,
        "pool": POOL,
        "lane": Lane.REALTIME,
        "job_id": JOB,
        "pipeline_digest": documents.pipeline_digest,
        "attempts": attempts,
        "dispatched_at_ms": NOW_MS,
    }
    return ShardDispatched(**(fields | changes))


def make_order(
    shard: ShardDispatched, index: int = 0, *, price: WrittenPrice | None = PRICE, planned: int = 0
) -> Order:
    periods = () if price is None else (price.period(),)
    return Order(
        shard=shard, index=index, partition=0, model="small", periods=periods, price_version="p1", planned=planned
    )


def make_control(state: ControlState = ControlState.RUNNING, generation: int = 1) -> BatchControlled:
    return BatchControlled(
        batch_id=BATCH,
        job_id=JOB,
        dataset_id="acme.tickets",
        generation=generation,
        state=state,
        pipeline_digest="p",
        manifest_digest="m",
        reuse=Reuse.ACCEPTED,
        priority=0,
        controlled_at_ms=NOW_MS,
    )
