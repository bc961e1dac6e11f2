"""People: they submit jobs, some over equal documents, change their minds, and decide where the line waits for them."""

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nightmill.kernel.domain import ids
from nightmill.kernel.domain.lifecycle import ENDED_BATCH, BatchState, Command, InputFormat, Lane
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.settings import Config
from nightmill.kernel.runtime.outbound import Outbound
from nightmill.kernel.wire.messages import JobCommanded, JobInput, JobSubmitted, PublicationRow
from simulation.mix import Shape
from simulation.provider import LABELS, MARKER

if TYPE_CHECKING:
    from simulation.world import World

CALL_DEADLINE_S = 5
#: nano-USD an item may cost under a tight budget; billed at 20 times the estimate it takes a few items to pass it
_TIGHT_ITEM_NANO_USD = 260_000
_PATIENCE_MS = 5_000


def input_factor_of(shape: Shape) -> int:
    """Billed input tokens for each estimated one."""
    return 20 if shape.tight_budget else 1


def config_of(shape: Shape) -> Config:
    """Two pools of one provider; the second has a short context, so that some items choose."""
    # what a call is billed is debt of its pool, too
    tokens = shape.input_tokens_per_minute
    pool = {
        "provider": "openai_compatible",
        "base_url": "http://provider",
        "model": "simulated",
        "limits": {
            "slots": shape.slots,
            "requests_per_minute": shape.requests_per_minute,
            "input_tokens_per_minute": tokens if tokens is None else tokens * input_factor_of(shape),
        },
        "context_tokens": 4000,
        "call_deadline": f"{CALL_DEADLINE_S}s",
    }
    waits = {
        "transient": ("0.2s", "2s"),
        "capacity": ("0.2s", "3s"),
        "account": ("0.5s", "5s"),
        "internal": ("1s", "2s"),
    }
    config = {
        "pools": {"main": pool, "other": {**pool, "limits": {"slots": 2}}},
        "prices": {
            "version": "1",
            "models": {"simulated": {"input_usd_per_million": 1, "output_usd_per_million": 2}},
        },
        "retry": {"classes": {name: {"base": base, "cap": cap} for name, (base, cap) in waits.items()}},
        "tenants": {"default": {"sensitivity": "restricted"}},
    }
    return Config.model_validate(config)


def pipeline_of(shape: Shape, name: str, pools: tuple[str, ...], lane: Lane = Lane.REALTIME) -> Pipeline:
    known = [*LABELS, "doubtful", "rejected"]
    fields = {"label": {"enum": known}, "about": {"type": "string"}}
    return Pipeline.model_validate(
        {
            "name": name,
            "input": {"id": "id", "fields": ["text"]},
            "prompt": f"system:\nLabel the text. {MARKER}\nuser:\n{{{{ text }}}}",
            "output": {"type": "object", "properties": fields, "required": ["label"]},
            "checks": [
                {"enum": {"field": "label", "values": [*LABELS, "doubtful"], "else": "reject"}},
                {"enum": {"field": "label", "values": list(LABELS), "else": "review"}},
            ],
            "model": {"pools": pools, "max_output_tokens": 16},
            "lane": lane,
            "repair": {"attempts": shape.repairs},
            "gates": {"completion": shape.completion, "rejects": 1.0},
            "publish": {"format": "jsonl", "partial": shape.partial, "columns": shape.columns},
            "limits": {"attempts": shape.attempts},
        }
    )


@dataclass(slots=True)
class Job:
    """One job of a person."""

    message: JobSubmitted
    pipeline: Pipeline
    documents: list[str]
    at_ms: int
    sent: bool = False
    asked_at_ms: int = 0
    asked: list[Command] = field(default_factory=list)


class User:
    """Everybody at the api."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._outbound = Outbound("api", world.broker.partitions)
        self._writer = world.broker.log().writer()
        self._commands = 0
        self._asked: list[JobCommanded] = []
        self.jobs = [self._job(number) for number in range(world.shape.jobs)]
        if world.bulk is not None:
            self.jobs = world.bulk.with_jobs(self.jobs)

    def turn(self) -> None:
        """What is due, a decision where the line waits for one, and now and then a command nobody expected."""
        world = self._world
        if world.broker.down:
            return  # the api refuses, they try again later
        for job in self.jobs:
            if not job.sent and job.at_ms <= world.now_ms:
                self._submit(job)
            self._decide(job)
        if self._asked and world.happens("repeat_record"):
            self._writer.write(self._outbound.records([world.random.choice(self._asked)]))  # a client tries once more
        if world.happens("command"):
            sent = [job for job in self.jobs if job.sent]
            if sent:
                self._ask(world.random.choice(sent), world.random.choice(list(Command)))

    def settle(self) -> bool:
        """Decide what waits for a person; whether every job has ended."""
        ended = True
        for job in self.jobs:
            if not job.sent:
                self._submit(job)
            row = self._row(job)
            if row is None or row.state not in ENDED_BATCH:
                ended = False
                self._decide(job)
        return ended

    def _row(self, job: Job) -> PublicationRow | None:
        return self._world.checker.publications.get(ids.batch_id(job.message.job_id))

    def _decide(self, job: Job) -> None:
        """Let a job that is held go on, after a while."""
        row = self._row(job)
        if row is not None and row.state is BatchState.HELD and self._world.now_ms - job.asked_at_ms > _PATIENCE_MS:
            self._ask(job, self._decision(job))

    def _decision(self, job: Job) -> Command:
        """First approve, then run again what is missing, at last give up."""
        tries = sum(command is not Command.CANCEL for command in job.asked)
        if tries > 6:
            return Command.CANCEL
        return self._world.random.choice((Command.APPROVE, Command.RESUME))

    def _submit(self, job: Job) -> None:
        job.sent = True
        times = 2 if self._world.random.random() < 0.2 else 1  # the answer was lost, so it is sent again
        for _ in range(times):
            self._writer.write(self._outbound.records([job.message]))
        self._world.note("user", f"submits {job.message.job_id} with {len(job.documents)} documents")

    def _ask(self, job: Job, command: Command) -> None:
        self._commands += 1
        job.asked_at_ms = self._world.now_ms
        job.asked.append(command)
        message = JobCommanded(
            command_id=f"{command}-{self._commands}",
            job_id=job.message.job_id,
            batch_id=ids.batch_id(job.message.job_id),
            dataset_id=job.message.dataset_id,
            command=command,
            actor="user",
            reason=None,
            commanded_at_ms=self._world.now_ms,
        )
        self._asked.append(message)
        times = 2 if self._world.random.random() < 0.2 else 1
        for _ in range(times):
            self._writer.write(self._outbound.records([message]))
        self._world.note("user", f"asks to {command} {message.batch_id}")

    def _job(self, number: int) -> Job:
        world, shape, random = self._world, self._world.shape, self._world.random
        equal = number > 0 and shape.equal_jobs
        name = "label" if number == 0 or equal else random.choice(("label", "tag"))
        pipeline = pipeline_of(shape, name, random.choice((("main",), ("main",), ("other", "main"))))
        first = 0 if equal else number * 100
        count = max(1, shape.items // shape.jobs)
        documents = [f"d{index}" for index in range(first, first + count)]
        if equal:
            documents = [
                *documents[: random.randint(1, count)],
                *(f"n{number}-{i}" for i in range(random.randint(0, 3))),
            ]
        at_ms = world.now_ms + (0 if number == 0 else random.choice((0, 300, 5_000, 20_000)))
        return job_of(world, pipeline, documents, number=number, at_ms=at_ms)


def job_of(world: "World", pipeline: Pipeline, documents: list[str], *, number: int, at_ms: int) -> Job:
    """A job over these documents, submitted at a moment."""
    rows: list[dict[str, Any]] = [{"id": d, "text": f"{MARKER} text of {d}"} for d in documents]
    raw = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    dataset = ids.dataset_id("default", pipeline.name)
    message = JobSubmitted(
        job_id=ids.job_id(dataset, at_ms, f"{number:04d}"),
        dataset_id=dataset,
        tenant="default",
        pipeline=pipeline.name,
        pipeline_digest=world.keep_blob(pipeline.canonical()),
        input=JobInput(
            format=InputFormat.JSONL,
            blob=world.keep_blob(raw),
            bytes=len(raw),
            name="rows.jsonl",
            limit=None,
            skip_bad_rows=False,
        ),
        budget_nano_usd=len(documents) * _TIGHT_ITEM_NANO_USD if world.shape.tight_budget else None,
        deadline_at_ms=None,
        priority=world.random.choice((0, 0, 5)),
        tags={},
        submitted_at_ms=at_ms,
    )
    return Job(message=message, pipeline=pipeline, documents=documents, at_ms=at_ms)
