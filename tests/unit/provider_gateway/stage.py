"""Makers for the gateway's tests: a pipeline and documents on disk, shards, leases, and a scripted caller."""

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kit.partition import DictView, StagePartition
from nightmill.kernel.domain.failures import FailureClass
from nightmill.kernel.domain.lifecycle import ControlState, Lane, Reuse, ShardState
from nightmill.kernel.domain.pipeline import InputSpec, ModelPolicy, Pipeline
from nightmill.kernel.domain.prices import WrittenPrice
from nightmill.kernel.domain.settings import Pool, PoolLimits
from nightmill.kernel.store.blobs import BlobStore
from nightmill.kernel.store.blocks import write_block
from nightmill.kernel.wire.messages import (
    AttemptAnswered,
    BatchControlled,
    LaneChoiceRow,
    LeaseAmounts,
    LeaseGranted,
    LeaseRequested,
    ProviderBatchRow,
    Repair,
    RowRef,
    ShardAttempt,
    ShardDispatched,
    ShardStateRow,
    WebhookReceived,
)
from nightmill.provider_gateway.adapters import EMBEDDERS, adapter_of
from nightmill.provider_gateway.bulk.worker import ThreadRunner
from nightmill.provider_gateway.caller import CLOSED, Call, CallResult, Permit
from nightmill.provider_gateway.exchange import Response
from nightmill.provider_gateway.groups import ended
from nightmill.provider_gateway.orders import Order
from nightmill.provider_gateway.outbox import Landed, Outbox
from nightmill.provider_gateway.pools import PoolAccess
from nightmill.provider_gateway.service import ProviderGateway

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


@dataclass
class ScriptedCaller:
    """Satisfies `Caller`: calls begin within permits at once and end when the test says so."""

    outbox: Outbox
    clock_ms: Callable[[], int]
    permits: dict[str, Permit] = field(default_factory=dict)
    begun: list[Call] = field(default_factory=list)
    waiting: dict[str, deque[Call]] = field(default_factory=dict)
    _done: list[CallResult] = field(default_factory=list)

    def permit(self, lane: str, permit: Permit) -> None:
        self.permits[lane] = permit
        self._begin()

    def start(self, calls: Sequence[Call]) -> None:
        for call in calls:
            self.waiting.setdefault(call.lane, deque()).append(call)
        self._begin()

    def withdraw(self, lane: str) -> list[Call]:
        return list(self.waiting.pop(lane, ()))

    def in_flight(self, lane: str) -> int:
        return sum(call.lane == lane for call in self.begun)

    def unsent(self, lane: str) -> frozenset[str]:
        return frozenset(call.order.key for call in self.waiting.get(lane, ()))

    def completed(self) -> list[CallResult]:
        done, self._done = self._done, []
        return done

    def close(self) -> None:
        self.waiting.clear()

    def answer(self, reply: Response, count: int | None = None) -> None:
        """End the first `count` calls in flight (all of them by default) with this response."""
        count = len(self.begun) if count is None else count
        ending, self.begun = self.begun[:count], self.begun[count:]
        for call in ending:
            now_ms = self.clock_ms()
            result = ended(call, reply, started_at_ms=now_ms, ended_at_ms=now_ms)
            if result.failure and result.failure.failure_class in (FailureClass.CAPACITY, FailureClass.ACCOUNT):
                self.permits[call.lane] = CLOSED
            self.outbox.write([], [Landed(partition=call.order.partition, answered=each) for each in result.answers])
            self._done.append(result)
        self._begin()

    def _begin(self) -> None:
        for lane, calls in self.waiting.items():
            permit = self.permits.get(lane)
            while calls and permit and self.clock_ms() < permit.until_ms and self.in_flight(lane) < permit.slots:
                call = calls.popleft()
                self.outbox.write([(order.key, order.partition) for order in call.orders], [])
                self.begun.append(call)


class Stage:
    """A gateway with one partition, a lease that is granted as asked, and commits when the test says so."""

    def __init__(
        self,
        folder: Path,
        *,
        rows: Sequence[Mapping[str, Any]] = (),
        access: PoolAccess | None = None,
        instance: str = "0",
        slots: int = 4,
        running: Sequence[int] = (),
    ) -> None:
        """`running`: rows of the shard that an earlier life had accepted."""
        self.folder, self.slots = folder, slots
        self.documents = make_documents(folder / "blobs", rows)
        self.access = access or make_access()
        self.controls: DictView = DictView({BATCH: make_control()})
        self.rows: dict[str, Any] = {}
        if running:
            self.rows["s1"] = ShardStateRow(
                shard_id="s1",
                state=ShardState.ACCEPTED,
                shard=make_shard(self.documents, running),
                answered=(),
                owner=instance,
                accepted_at_ms=NOW_MS,
            )
        self.now_ms = NOW_MS
        self.granting = True
        self.start(instance)

    def start(self, instance: str = "0") -> None:
        """A process begins: everything in memory is new, the outbox and the committed rows are not."""
        self.outbox = Outbox(self.folder / f"outbox-{instance}")
        self.caller = ScriptedCaller(self.outbox, lambda: self.now_ms)
        self.gateway = ProviderGateway(
            instance=instance,
            pools={POOL: self.access},
            blobs=self.documents.blobs,
            outbox=self.outbox,
            caller=self.caller,
            runner=ThreadRunner(
                self.folder / f"bulk-{instance}",
                blobs=self.documents.blobs,
                authorizations={},
                clock_ms=lambda: self.now_ms,
                request_s=60.0,
            ),
        )
        views: dict[type[Any], DictView] = {
            BatchControlled: self.controls,
            LaneChoiceRow: DictView(),
            ProviderBatchRow: DictView(),
            WebhookReceived: DictView(),
        }
        self.gateway.attach_views(views)
        self.part = StagePartition(self.gateway, now_ms=self.now_ms)
        self._row_table().rows.update(self.rows)
        self.gateway.on_open(self.part)

    def crash(self, instance: str = "0") -> None:
        """The process ends between two steps, uncommitted work is lost, and another begins."""
        self.outbox.close()
        self.start(instance)

    def dispatch(self, shard: ShardDispatched) -> None:
        decision = self.gateway.on_shard_dispatched(shard, self.part)
        self.part.apply(decision)  # type: ignore[arg-type]
        self.commit()

    def step(self, after_ms: int = 20) -> None:
        """One turn of the loop, without a commit; the governor answers what was asked."""
        self.now_ms += after_ms
        self.part.now_ms = self.now_ms
        decision = self.part.apply(self.gateway.on_tick(self.part))
        for ask in decision.send_now:
            if self.granting and isinstance(ask, LeaseRequested):
                self.gateway.on_lease_granted(granted(ask, self.slots, self.now_ms), self.part)

    def commit(self) -> None:
        self.part.apply(self.gateway.on_flush(self.part))
        effects = list(self.part.effects)
        self.part.effects.clear()
        self.rows = dict(self._row_table().rows)
        self.gateway.start(effects)

    def run(self, reply: Response, *, steps: int = 6) -> list[AttemptAnswered]:
        """Step and commit a while, every call ending with `reply`; returns what was sent."""
        for _ in range(steps):
            self.step()
            self.caller.answer(reply)
            self.step()
            self.commit()
        return self.sent()

    def sent(self) -> list[AttemptAnswered]:
        return list(self.part.sent)

    def close(self) -> None:
        self.gateway.close()

    def _row_table(self) -> Any:
        return self.part.table(ShardStateRow)


def granted(ask: LeaseRequested, slots: int, now_ms: int) -> LeaseGranted:
    """A governor without limits but slots."""
    return LeaseGranted(
        pool=ask.pool,
        holder=ask.holder,
        holder_partition=ask.holder_partition,
        epoch=ask.epoch,
        seq=ask.seq,
        granted=LeaseAmounts(requests=10**6, input_tokens=10**9, output_tokens=10**9),
        slots=slots,
        ttl_ms=4_000,
        granted_at_ms=now_ms,
    )
