"""The whole line in one process over the memory log: every service's loop, stepped in turn; real HTTP to a provider.

For tests of how the services fit together, without the start-up of a broker and eight processes.
"""

import itertools
import json
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from kit.patience import PATIENCE_S
from nightmill.dispatcher.service import Dispatcher
from nightmill.kernel.domain import ids
from nightmill.kernel.domain.lifecycle import Command, InputFormat
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.settings import Config, LocalServers
from nightmill.kernel.runtime.log import Place
from nightmill.kernel.runtime.loop import Loop
from nightmill.kernel.runtime.memory import MemoryBroker
from nightmill.kernel.runtime.outbound import Outbound
from nightmill.kernel.runtime.service import Service
from nightmill.kernel.runtime.settings import Settings
from nightmill.kernel.runtime.table import Views, viewed_by
from nightmill.kernel.runtime.transaction import Pace
from nightmill.kernel.store.blobs import BlobStore
from nightmill.kernel.wire.codec import codecs
from nightmill.kernel.wire.messages import (
    BatchControlled,
    DatasetRow,
    JobCommanded,
    JobCompleted,
    JobInput,
    JobSubmitted,
    PublicationRow,
)
from nightmill.kernel.wire.topics import BATCH_CONTROLLED
from nightmill.ledger import run as ledger
from nightmill.planner.service import Planner
from nightmill.planner.tokens import count_tokens
from nightmill.provider_gateway.bulk.errands import Runner
from nightmill.provider_gateway.bulk.steps import Timing
from nightmill.provider_gateway.bulk.worker import ThreadRunner
from nightmill.provider_gateway.http import HttpCaller
from nightmill.provider_gateway.outbox import Outbox
from nightmill.provider_gateway.run import access_of
from nightmill.provider_gateway.service import ProviderGateway
from nightmill.publisher.service import Publisher
from nightmill.publisher.targets import Targets
from nightmill.rate_governor.service import RateGovernor
from nightmill.validator.service import Validator

M = TypeVar("M")
#: of the bulk lane: a provider whose day is a second
QUICK = Timing(gather=100, submit_within=800, request=500, guard=200, list_lag=100, poll=50, longest_poll=200, retry=50)
LEDGER_COMMITS_MS = 500  #: an insert costs a server the same whatever it holds
SERVICES = ("planner", "dispatcher", "provider_gateway", "validator", "publisher", "rate_governor")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class Line:
    """All services on one memory broker; the ledger among them if it has a ClickHouse to write to."""

    folder: Path
    config: Config
    broker: MemoryBroker = field(default_factory=lambda: MemoryBroker(partitions=2))
    bulk_timing: Timing = QUICK
    host: str = ""  #: whose disk a service is started on
    instance: str = "0"  #: under which name
    clickhouse_url: str | None = None
    local_servers: LocalServers = LocalServers()
    loops: dict[str, Loop] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.log = self.broker.log("line")
        self.blobs = BlobStore(str(self.folder / "blobs"))
        self._outbound = Outbound("api", self.log.partitions)
        self._writer = self.log.writer()
        self._views = Views(self.log, [*viewed_by("api"), BATCH_CONTROLLED], time.monotonic)
        self._suffixes = (f"{number:04d}" for number in itertools.count(1))
        for name in (*SERVICES, *(["ledger"] if self.clickhouse_url else [])):
            self.start(name)

    def start(self, name: str) -> None:
        """A first or further life of a service, on the state it left."""
        self.loops[name] = Loop(
            self._build(name),
            self.log,
            instance=self.instance,
            state_dir=self.folder / "state" / self.host / name,
            clock_s=time.monotonic,
            pace=Pace(commit_every_ms=LEDGER_COMMITS_MS if name == "ledger" else 20),
        )

    def _build(self, name: str) -> Service:
        match name:
            case "planner":
                lag = partial(self.log.lag, "dispatcher", "item-planned")
                return Planner(blobs=self.blobs, config=self.config, count=count_tokens, lag=lag)
            case "dispatcher":
                return Dispatcher(config=self.config, blobs=self.blobs, random=Random(1))
            case "validator":
                return Validator(self.blobs)
            case "publisher":
                targets = Targets(self.folder / "results", self.blobs)
                return Publisher(self.blobs, targets, ThreadPoolExecutor(max_workers=1))
            case "rate_governor":
                return RateGovernor(self.config.pools)
            case "ledger":
                return ledger.build(self._settings())
        return self._gateway()

    def _settings(self) -> Settings:
        return Settings(
            home=self.folder,
            bootstrap="",
            config_dir=self.folder,
            blobs_url=str(self.folder / "blobs"),
            clickhouse_url=self.clickhouse_url,
            local_servers=self.local_servers,
            environment={},
        )

    def _gateway(self) -> Service:
        settings = self._settings()
        found = {n: access_of(n, p, self.config.prices, settings) for n, p in self.config.pools.items()}
        accesses = {name: access for name, (access, _) in found.items()}
        self.keys = {name: f"Bearer {key}" for name, (_, key) in found.items() if key is not None}
        outbox = Outbox(self.folder / "outbox" / self.host)
        caller = HttpCaller(outbox, put_blob=self.blobs.put, authorizations=self.keys, clock_ms=now_ms)
        self.gateway = ProviderGateway(
            instance=self.instance,
            pools=accesses,
            blobs=self.blobs,
            outbox=outbox,
            caller=caller,
            runner=self.make_runner(self.folder / f"bulk-{next(self._suffixes)}"),
            bulk_timing=self.bulk_timing,
            partitions=self.log.partitions,
        )
        return self.gateway

    def make_runner(self, folder: Path) -> Runner:
        """What carries out the errands of the bulk lane."""
        return ThreadRunner(
            folder,
            blobs=self.blobs,
            authorizations=self.keys,
            clock_ms=now_ms,
            request_s=self.bulk_timing.request / 1000,
        )

    def submit(self, pipeline: Pipeline, rows: Iterable[dict[str, Any]], **fields: Any) -> str:
        """Submit a job over rows as JSONL; returns its id."""
        raw = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        dataset = ids.dataset_id("default", pipeline.name)
        limit_usd = pipeline.limits.budget_usd
        job = JobSubmitted(
            job_id=ids.job_id(dataset, now_ms(), next(self._suffixes)),
            dataset_id=dataset,
            tenant="default",
            pipeline=pipeline.name,
            pipeline_digest=self.blobs.put(pipeline.canonical()),
            input=JobInput(
                format=InputFormat.JSONL,
                blob=self.blobs.put(raw),
                bytes=len(raw),
                name="rows.jsonl",
                limit=None,
                skip_bad_rows=False,
            ),
            budget_nano_usd=None if limit_usd is None else int(limit_usd * 1e9),
            deadline_at_ms=None,
            priority=0,
            tags={},
            submitted_at_ms=now_ms(),
            **fields,
        )
        self._writer.write(self._outbound.records([job]))
        return job.job_id

    def command(self, job_id: str, command: Command) -> None:
        message = JobCommanded(
            command_id=f"{command}-{next(self._suffixes)}",
            job_id=job_id,
            batch_id=ids.batch_id(job_id),
            dataset_id=ids.dataset_of(job_id),
            command=command,
            actor="test",
            reason=None,
            commanded_at_ms=now_ms(),
        )
        self._writer.write(self._outbound.records([message]))

    def step(self) -> None:
        self.broker.now_ms = now_ms()
        for loop in self.loops.values():
            loop.step(now_ms())

    def run_until(self, done: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + patience_s
        while not done():
            self.step()
            assert time.monotonic() < deadline, f"waited in vain: {self.publications()}"

    def publications(self) -> dict[str, PublicationRow]:
        self._views.refresh()
        return {row.job_id: row for row in self._views.by_message[PublicationRow].values()}

    def control(self, job_id: str) -> BatchControlled | None:
        self._views.refresh()
        control: BatchControlled | None = self._views.by_message[BatchControlled].get(ids.batch_id(job_id))
        return control

    def dataset(self, dataset_id: str) -> DatasetRow | None:
        self._views.refresh()
        row: DatasetRow | None = self._views.by_message[DatasetRow].get(dataset_id)
        return row

    def completions(self, job_id: str) -> list[JobCompleted]:
        """Every notice of a job so far, oldest first."""
        return [notice for notice in self.told(JobCompleted, "job-completed") if notice.job_id == job_id]

    def finish(self, job_id: str, *, times: int = 1, patience_s: float = PATIENCE_S) -> JobCompleted:
        """Run until the job has completed `times` times; its last notice."""
        self.run_until(lambda: len(self.completions(job_id)) >= times, patience_s)
        return self.completions(job_id)[-1]

    def told(self, message: type[M], topic: str) -> list[M]:
        """Every message of a topic so far, oldest first in each partition."""
        codec = codecs()[message]
        reader = self.log.reader()
        for number in range(self.log.partitions):
            reader.start(Place(topic, number), 0)
        found: list[M] = [codec.decode(record.value) for record in reader.poll(0, 100_000) if record.value is not None]
        reader.close()
        return found

    def kill(self, name: str) -> None:
        """The service's process is gone: nothing of its open transaction happened."""
        self.loops.pop(name).abandon()
        if name == "provider_gateway":
            self.gateway.close()  # its connections and threads are gone, too; nothing is committed by it

    def close(self) -> None:
        for loop in self.loops.values():
            loop.close()
