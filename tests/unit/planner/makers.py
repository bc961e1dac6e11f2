"""Small, complete pieces for the planner's tests: a pipeline, a config, a job, and a planner on a stage."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from kit.partition import StagePartition
from nightmill.kernel.domain.ids import batch_id, dataset_id
from nightmill.kernel.domain.lifecycle import ControlState, InputFormat, PlanPhase, Reuse
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.settings import Config
from nightmill.kernel.store.blobs import BlobStore
from nightmill.kernel.wire.messages import (
    BatchControlled,
    BatchPlanRow,
    BatchSealed,
    BlockAdmitted,
    ItemPlanned,
    JobInput,
    JobSubmitted,
)
from nightmill.planner.service import Planner
from nightmill.planner.tokens import count_tokens

NOW_MS = 1_796_000_000_000
PIPELINE: dict[str, Any] = {
    "name": "sort-tickets",
    "input": {"id": "id", "fields": ["body"]},
    "prompt": "system:\nSort the ticket.\nuser:\n{{ body }}",
    "output": {"type": "object"},
    "model": {"pools": ["mini"], "max_output_tokens": 100},
    "repair": {"attempts": 0},
}
CONFIG: dict[str, Any] = {
    "pools": {
        "mini": {
            "provider": "openai_compatible",
            "base_url": "http://127.0.0.1:1",
            "model": "model-mini",
            "limits": {"slots": 10, "requests_per_minute": 600},
            "context_tokens": 1000,
            "tokenizer": "o200k",
        },
        "big": {
            "provider": "openai_compatible",
            "base_url": "http://127.0.0.1:1",
            "model": "model-big",
            "limits": {"slots": 1},
            "context_tokens": 1000,
            "sensitivity": "confidential",
            "token_factor": 1.5,
            "structured_output": False,
        },
    },
    "prices": {
        "version": "test-1",
        "models": {
            "model-mini": {"input_usd_per_million": 1, "output_usd_per_million": 10},
            "model-big": {"input_usd_per_million": 2, "output_usd_per_million": 5},
        },
    },
    "retry": {"classes": {}},
    "tenants": {"acme": {"sensitivity": "confidential"}, "small": {"pools": ["big"], "sensitivity": "internal"}},
}


def make_pipeline(**changes: Any) -> Pipeline:
    return Pipeline.model_validate({**PIPELINE, **changes})


def make_embedding(**changes: Any) -> Pipeline:
    fields = {"name": "embed", "input": {"id": "id", "fields": ["body"]}, "prompt": "{{ body }}"}
    model = {"embedding": {"dimensions": 8}, "model": {"pools": ["mini"]}}
    return Pipeline.model_validate({**fields, **model, **changes})


def make_config(*, prices: Mapping[str, Any] | None = None, pools: Mapping[str, Any] | None = None) -> Config:
    changed = dict(CONFIG)
    if prices is not None:
        changed["prices"] = {"version": "test-1", "models": prices}
    if pools is not None:
        changed["pools"] = {**CONFIG["pools"], **pools}
    return Config.model_validate(changed)


POOLS = make_config().pools


def jsonl(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def tickets(count: int) -> list[dict[str, Any]]:
    return [{"id": f"t-{number}", "body": f"ticket {number}"} for number in range(count)]


class Stage:
    """A planner over a folder, its one partition, and the blobs of a job."""

    def __init__(
        self, folder: Path, config: Config | None = None, *, lag: Callable[[], int | None] = lambda: 0
    ) -> None:
        self.blobs = BlobStore(str(folder))
        self.config = config or make_config()
        self.lag = lag
        self.planner = self._start()
        self.part = StagePartition(self.planner, now_ms=NOW_MS)

    def _start(self) -> Planner:
        return Planner(blobs=self.blobs, config=self.config, count=count_tokens, lag=self.lag, mark=5_000)

    def restart(self) -> None:
        """A crash: only committed rows and blobs are left."""
        self.planner.close()
        self.planner = self._start()
        self.part.service = self.planner

    def job(self, data: bytes, pipeline: Pipeline | None = None, **changes: Any) -> JobSubmitted:
        """A job on `data`, uploaded; fields of JobInput and JobSubmitted may be changed by name."""
        frozen = pipeline or make_pipeline()
        dataset = dataset_id("acme", frozen.name)
        input_fields: dict[str, Any] = {
            name: changes.pop(name) for name in ("format", "limit", "skip_bad_rows") if name in changes
        }
        uploaded: dict[str, Any] = {
            "format": InputFormat.JSONL,
            "blob": self.blobs.put(data),
            "bytes": len(data),
            "name": "tickets.jsonl",
            "skip_bad_rows": False,
            **input_fields,
        }
        fields: dict[str, Any] = {
            "job_id": f"{dataset}.20261129-000000-a1",
            "dataset_id": dataset,
            "tenant": "acme",
            "pipeline": frozen.name,
            "pipeline_digest": self.blobs.put(frozen.canonical()),
            "input": JobInput(**uploaded),
            "priority": 0,
            "tags": {},
            "submitted_at_ms": NOW_MS,
            **changes,
        }
        return JobSubmitted(**fields)

    def submit(self, job: JobSubmitted) -> None:
        self.part.apply(self.planner.on_job_submitted(job, self.part))

    def tick(self) -> None:
        self.part.apply(self.planner.on_tick(self.part))

    def plan(self, job: JobSubmitted) -> BatchSealed:
        """Submit and tick until the batch is sealed."""
        self.submit(job)
        for _ in range(1_000):
            if self.row(job).phase not in (PlanPhase.FREEZING, PlanPhase.MERGING):
                break
            self.tick()
        return self.sealed(job)

    def row(self, job: JobSubmitted) -> BatchPlanRow:
        row: BatchPlanRow = self.part.table(BatchPlanRow).get(batch_id(job.job_id))
        return row

    def sealed(self, job: JobSubmitted) -> BatchSealed:
        """The one batch-sealed of the job."""
        (message,) = (m for m in self.part.sent if isinstance(m, BatchSealed) and m.job_id == job.job_id)
        return message

    def control(self, sealed: BatchSealed, **changes: Any) -> BatchControlled:
        """The publisher's word: run everything, generation 1."""
        fields: dict[str, Any] = {
            "batch_id": sealed.batch_id,
            "job_id": sealed.job_id,
            "dataset_id": sealed.dataset_id,
            "generation": 1,
            "state": ControlState.RUNNING,
            "pipeline_digest": sealed.pipeline_digest,
            "manifest_digest": sealed.manifest_digest,
            "reuse": Reuse.ACCEPTED,
            "priority": sealed.priority,
            "controlled_at_ms": NOW_MS,
            **changes,
        }
        return BatchControlled(**fields)

    def follow(self, word: BatchControlled) -> None:
        self.part.apply(self.planner.on_batch_controlled(word, self.part))

    def admitted(self) -> list[BlockAdmitted]:
        return [message for message in self.part.sent if isinstance(message, BlockAdmitted)]

    def release_all(self, sealed: BatchSealed) -> None:
        """Lets time pass until no block of the batch is left to release, at most 100 ticks."""
        for _ in range(100):
            if self.part.table(BatchPlanRow).get(sealed.batch_id).phase is not PlanPhase.RELEASING:
                return
            self.part.now_ms += 10_000
            self.tick()

    def expand_all(self, sealed: BatchSealed, **word: Any) -> list[ItemPlanned]:
        """The items of all blocks that go out at this word of the publisher."""
        before = len(self.part.sent)
        self.follow(self.control(sealed, **word))
        self.release_all(sealed)
        blocks = [message for message in self.part.sent[before:] if isinstance(message, BlockAdmitted)]
        items: list[ItemPlanned] = []
        for block in blocks:
            decision = self.planner.on_block_admitted(block, self.part)
            items += [message for message in decision.send if isinstance(message, ItemPlanned)]
        return items


MakeStage = Callable[..., Stage]
GOOD = jsonl(tickets(3))
