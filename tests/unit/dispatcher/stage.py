"""A dispatcher on a stage: small config, frozen pipelines, and the messages it lives on."""

from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from kit.partition import DictView, StagePartition
from nightmill.dispatcher.service import Dispatcher
from nightmill.kernel.domain.failures import Billed, FailureClass
from nightmill.kernel.domain.ids import job_of
from nightmill.kernel.domain.lifecycle import AttemptState, ControlState, Lane, Reuse, VerdictKind
from nightmill.kernel.domain.pipeline import InputSpec, Limits, ModelPolicy, Pipeline, RepairSpec, Sensitivity
from nightmill.kernel.domain.settings import Config, Pool, PoolLimits, Prices, Retry, RetryRule, Tenant
from nightmill.kernel.runtime.service import Decision, Wait
from nightmill.kernel.store.blobs import BlobStore
from nightmill.kernel.wire.messages import (
    AttemptAnswered,
    AttemptJudged,
    BatchControlled,
    Failure,
    ItemPlanned,
    ItemSettled,
    ItemStateRow,
    LaneChoiceRow,
    RowRef,
    ShardAttempt,
    ShardDispatched,
    Usage,
    Verdict,
)
from nightmill.kernel.wire.values import replace

A = "acme.tickets.20261129-120000-aaaa.1"
B = "acme.tickets.20261129-120000-bbbb.1"
C = "acme.tickets.20261129-120000-cccc.1"
DAY_S = 24 * 3600

RULES = {
    FailureClass.TRANSIENT: RetryRule(base=1.0, cap=60.0),
    FailureClass.CAPACITY: RetryRule(base=2.0, cap=120.0),
    FailureClass.ACCOUNT: RetryRule(base=30.0, cap=300.0),
}


def pool(**fields: Any) -> Pool:
    values: dict[str, Any] = {
        "provider": "openai_compatible",
        "base_url": "http://127.0.0.1:1",
        "model": "m",
        "limits": PoolLimits(slots=2),
        "context_tokens": 4_000,
    }
    return Pool(**{**values, **fields})


def config(**pools: Pool) -> Config:
    return Config(
        pools=pools or {"small": pool(), "long": pool(context_tokens=32_000)},
        prices=Prices(version="1", models={}),
        retry=Retry(classes=RULES, capacity_limit=600.0),
        tenants={"acme": Tenant(), "guest": Tenant(pools=("long",), sensitivity=Sensitivity.PUBLIC)},
    )


def pipeline(**fields: Any) -> Pipeline:
    values: dict[str, Any] = {
        "name": "tickets",
        "input": InputSpec(id="id", fields=("body",)),
        "prompt": "{{ body }}",
        "output": {"type": "object"},
        "model": ModelPolicy(pools=("small", "long"), max_output_tokens=64),
        "repair": RepairSpec(attempts=1),
        "limits": Limits(attempts=3),
    }
    return Pipeline(**{**values, **fields})


def failure(failure_class: FailureClass = FailureClass.TRANSIENT, **fields: Any) -> Failure:
    values: dict[str, Any] = {
        "failure_class": failure_class,
        "signal": "http_500",
        "message": "server error",
        "uses_retry_budget": failure_class not in (FailureClass.CAPACITY, FailureClass.ACCOUNT),
        "billed": Billed.NO,
    }
    return Failure(**{**values, **fields})


def verdict(kind: VerdictKind, **fields: Any) -> Verdict:
    return Verdict(kind=kind, **fields)


ACCEPTED = verdict(VerdictKind.ACCEPTED)
REPAIRABLE = verdict(VerdictKind.REPAIRABLE, rule="schema", field="label", value="x")


def answer(attempt: ShardAttempt, **fields: Any) -> AttemptAnswered:
    """An answer of ten input and five output tokens that cost 100 nano-USD."""
    values: dict[str, Any] = {
        "item_key": attempt.item_key,
        "ordinal": attempt.ordinal,
        "minted_at_ms": attempt.minted_at_ms,
        "shard_id": "s",
        "batch_id": attempt.batch_id,
        "job_id": job_of(attempt.batch_id),
        "generation": attempt.generation,
        "source_id": attempt.source_id,
        "row": attempt.row,
        "pipeline_digest": "p",
        "pool": "small",
        "model": "m",
        "lane": Lane.REALTIME,
        "state": AttemptState.ANSWERED,
        "output": '{"label":"x"}',
        "usage": Usage(input_tokens=10, cached_tokens=0, output_tokens=5),
        "cost_nano_usd": 100,
        "reserved_nano_usd": 0,
        "price_version": "1",
        "is_repair": attempt.repair is not None,
        "late": False,
        "ended_at_ms": 0,
    }
    return AttemptAnswered(**{**values, **fields})


def judged(attempt: ShardAttempt, said: Verdict | None = ACCEPTED, **fields: Any) -> AttemptJudged:
    output = '{"label":"x"}' if said is not None and said.kind is VerdictKind.ACCEPTED else None
    answered = answer(attempt, **fields)
    return AttemptJudged(item_key=attempt.item_key, attempt=answered, verdict=said, output=output, judged_at_ms=0)


def failed(attempt: ShardAttempt, why: Failure | None, state: AttemptState = AttemptState.FAILED) -> AttemptJudged:
    nothing: dict[str, Any] = {"output": None, "usage": None, "cost_nano_usd": None}
    return judged(attempt, None, state=state, failure=why, **nothing)


@dataclass
class Stage:
    """A dispatcher over one partition in memory, with the publisher's word in the test's hands."""

    folder: Path
    settings: Config = field(default_factory=config)
    frozen: Pipeline = field(default_factory=pipeline)
    sent: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.blobs = BlobStore(str(self.folder))
        self.digest = self.blobs.put(self.frozen.canonical())
        self.view = DictView()
        self.part = self._open({}, 1_796_000_000_000)

    def start(self) -> None:
        """A new process over the same rows."""
        choices = self.part.table(LaneChoiceRow).rows
        self.part = self._open(self.part.table(ItemStateRow).rows, self.part.now_ms)
        self.part.table(LaneChoiceRow).rows.update(choices)

    def _open(self, rows: dict[str, ItemStateRow], now_ms: int) -> StagePartition:
        self.service = Dispatcher(config=self.settings, blobs=self.blobs, random=Random(7))
        self.service.attach_views({BatchControlled: self.view})
        part = StagePartition(self.service, now_ms=now_ms, sent=self.sent)
        part.table(ItemStateRow).rows.update(rows)
        self.service.on_open(part)
        return part

    def say(
        self, batch_id: str, state: ControlState = ControlState.RUNNING, generation: int = 1, **fields: Any
    ) -> None:
        word = BatchControlled(
            batch_id=batch_id,
            job_id=job_of(batch_id),
            dataset_id="acme.tickets",
            generation=generation,
            state=state,
            pipeline_digest=self.digest,
            manifest_digest="",
            reuse=Reuse.ACCEPTED,
            priority=0,
            controlled_at_ms=0,
        )
        self.view.rows[batch_id] = replace(word, **fields)

    def plan(self, batch_id: str = A, key: str = "item-one", **fields: Any) -> Decision | Wait:
        return self.take_plan(self.planned(batch_id, key, **fields))

    def planned(self, batch_id: str = A, key: str = "item-one", **fields: Any) -> ItemPlanned:
        message = ItemPlanned(
            item_key=key,
            batch_id=batch_id,
            job_id=job_of(batch_id),
            dataset_id="acme.tickets",
            generation=1,
            ordinal=0,
            source_id="one",
            row=RowRef(block="b", row=0),
            pipeline_digest=self.digest,
            input_tokens=100,
            max_output_tokens=64,
            prefix="0" * 16,
            reuse=Reuse.ACCEPTED,
            priority=0,
        )
        return replace(message, **fields)

    def take_plan(self, message: ItemPlanned) -> Decision | Wait:
        decision = self.service.on_item_planned(message, self.part)
        return decision if isinstance(decision, Wait) else self.part.apply(decision)

    def judge(self, message: AttemptJudged) -> list[ItemSettled]:
        decision = self.part.apply(self.service.on_attempt_judged(message, self.part))
        return [settled for settled in decision.send if isinstance(settled, ItemSettled)]

    def tick(self, later_s: float = 0.05) -> list[ShardAttempt]:
        """Time goes on, then one tick; returns the attempts it sent."""
        self.part.now_ms += int(later_s * 1000)
        decision = self.part.apply(self.service.on_tick(self.part))
        return [each for shard in decision.send if isinstance(shard, ShardDispatched) for each in shard.attempts]

    def row(self, key: str = "item-one") -> ItemStateRow:
        row: ItemStateRow = self.part.table(ItemStateRow).rows[key]
        return row

    def settled(self, batch_id: str | None = None) -> list[ItemSettled]:
        return [sent for sent in self.sent if isinstance(sent, ItemSettled) and batch_id in (None, sent.batch_id)]

    def shards(self) -> list[ShardDispatched]:
        return [sent for sent in self.sent if isinstance(sent, ShardDispatched)]
