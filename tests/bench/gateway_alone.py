"""The provider gateway's process by itself, on a real broker: fed with bulk shards, its answers counted.

What stands around it in the line is left out, so that a million result lines are a matter of minutes; the process, its
topics, the Batch API and every file are the real ones. Shards come as the dispatcher would send them: 500 items each,
and no more unanswered than it allows; their batch is running by the publisher's word.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench.usage import load_now, peak_rss_mib, reset_peak_rss, snapshot
from bench.workload import BULK, MAX_OUTPUT_TOKENS, MODEL, SYSTEM_PROMPT, Run, Workload, finished, workload
from kit.broker import bootstrap
from kit.laptop import SCHEMA, Laptop
from kit.simulator import Simulator
from nightmill.dispatcher.pools import most_in_bulk
from nightmill.kernel.domain import ids
from nightmill.kernel.domain.lifecycle import AttemptState, ControlState, Lane, Reuse
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.settings import BulkLimits, Pool, PoolLimits
from nightmill.kernel.runtime.kafka import KafkaLog
from nightmill.kernel.runtime.kafka.admin import create_topics, delete_topics
from nightmill.kernel.runtime.log import Place, Reader
from nightmill.kernel.runtime.outbound import Outbound
from nightmill.kernel.store.blobs import BlobStore
from nightmill.kernel.store.blocks import write_block
from nightmill.kernel.wire.codec import codecs
from nightmill.kernel.wire.messages import AttemptAnswered, BatchControlled, RowRef, ShardAttempt, ShardDispatched
from nightmill.kernel.wire.topics import ATTEMPT_ANSWERED

GATEWAY = "Gateway alone"

_SERVICE = "provider_gateway"
_PARTITIONS = 2
_SHARD_ITEMS = 500
_BLOCK_ROWS = 2_000
#: documents are used again from there on; items are not
_BLOCKS = 40
_INPUT_TOKENS = 70
_STALL_S = 120.0
_STOP_TIMEOUT_S = 30.0
_POLL_S, _POLL_RECORDS = 0.2, 5_000


@dataclass(slots=True)
class _Inbox:
    """Which items were answered; each is known by its number."""

    answered: bytearray
    count: int = 0
    wrong: str | None = None

    def take(self, message: AttemptAnswered) -> None:
        number = int(message.source_id)
        if message.state is not AttemptState.ANSWERED:
            self.wrong = self.wrong or f"item {number} is {message.state.value}: {message.failure}"
        elif self.answered[number]:
            self.wrong = self.wrong or f"item {number} was answered twice"
        else:
            self.answered[number] = 1
            self.count += 1


class GatewayAlone:
    """A running gateway; made by `gateway_alone`."""

    def __init__(self, folder: Path, simulator: Simulator) -> None:
        self._simulator = simulator
        self._laptop = Laptop(folder, simulator.base_url, pool={"provider": "openai", "bulk": BULK})
        self._bootstrap, self._namespace = bootstrap(), self._laptop.namespace
        create_topics(self._bootstrap, self._namespace, _PARTITIONS)
        log = KafkaLog(self._bootstrap, self._namespace, _PARTITIONS)
        self._writer, self._reader = log.writer(), _at_start(log)
        self._dispatcher, self._publisher = (Outbound(name, _PARTITIONS) for name in ("dispatcher", "publisher"))
        blobs = BlobStore(str(self._laptop.home / "blobs"))
        self._pipeline = blobs.put(_pipeline().canonical())
        texts = workload("gateway", _BLOCK_ROWS * _BLOCKS).texts
        self._blocks = [
            write_block(blobs, [{"text": text} for text in texts[start : start + _BLOCK_ROWS]]).digest
            for start in range(0, len(texts), _BLOCK_ROWS)
        ]
        (self._laptop.home / "logs").mkdir()
        self._process = self._start()

    def run(self, items: int) -> Run:
        """So many items through the bulk lane, to the last answer."""
        load_before = load_now()
        reset_peak_rss(self._process.pid)
        pids = {_SERVICE: self._process.pid, "simulator": self._simulator.pid}
        before, started_s = snapshot(pids), time.perf_counter()
        problem = self._carry(items)
        run = finished(
            GATEWAY,
            Workload(name="gateway", texts=[""] * items),
            elapsed_s=time.perf_counter() - started_s,
            before=before,
            after=snapshot(pids),
            load_before=load_before,
            problem=problem,
        )
        return replace(run, peak_rss_mib={_SERVICE: peak_rss_mib(self._process.pid)})

    def close(self) -> None:
        """Stop the process and delete its topics."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._writer.close()
        self._reader.close()
        delete_topics(self._bootstrap, self._namespace)

    def _start(self) -> "subprocess.Popen[bytes]":
        own = {"NIGHTMILL_KAFKA": self._bootstrap, "NIGHTMILL_CONFIG": str(self._laptop.config)}
        with (self._laptop.home / "logs" / f"{_SERVICE}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "nightmill.cli.main", "service", _SERVICE],
                env=self._laptop.environment | own,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _carry(self, items: int) -> str | None:
        """Send and count until all is answered; None, or what went wrong."""
        most, run_id = _PARTITIONS * most_in_bulk(_pool()), time.time_ns() // 1_000_000
        self._writer.write(self._publisher.records([self._control(run_id)]))
        inbox, sent, codec = _Inbox(bytearray(items)), 0, codecs()[AttemptAnswered]
        since_s = time.monotonic()
        while inbox.count < items and inbox.wrong is None:
            if self._process.poll() is not None or time.monotonic() - since_s > _STALL_S:
                return f"{inbox.count} of {items} answered{self._laptop.log_tails()}"
            while sent < items and sent - inbox.count + _SHARD_ITEMS <= most:
                last = min(sent + _SHARD_ITEMS, items)
                self._writer.write(self._dispatcher.records([self._shard(range(sent, last), run_id)]))
                sent = last
            for record in self._reader.poll(_POLL_S, _POLL_RECORDS):
                if record.value is not None:
                    inbox.take(codec.decode(record.value))
                    since_s = time.monotonic()
        return inbox.wrong

    def _control(self, run_id: int) -> BatchControlled:
        job_id = _job_id(run_id)
        return BatchControlled(
            batch_id=ids.batch_id(job_id),
            job_id=job_id,
            dataset_id=ids.dataset_of(job_id),
            generation=1,
            state=ControlState.RUNNING,
            pipeline_digest=self._pipeline,
            manifest_digest="",
            reuse=Reuse.ACCEPTED,
            priority=0,
            controlled_at_ms=run_id,
        )

    def _shard(self, numbers: range, run_id: int) -> ShardDispatched:
        job_id = _job_id(run_id)
        attempts = tuple(
            ShardAttempt(
                item_key=f"{run_id}{number:030d}",
                ordinal=1,
                minted_at_ms=run_id,
                batch_id=ids.batch_id(job_id),
                generation=1,
                source_id=str(number),
                row=RowRef(block=self._blocks[number // _BLOCK_ROWS % _BLOCKS], row=number % _BLOCK_ROWS),
                input_tokens=_INPUT_TOKENS,
                max_output_tokens=MAX_OUTPUT_TOKENS,
            )
            for number in numbers
        )
        return ShardDispatched(
            shard_id=f"{run_id}-{numbers.start}",
            pool="sim",
            lane=Lane.BULK,
            job_id=job_id,
            pipeline_digest=self._pipeline,
            attempts=attempts,
            dispatched_at_ms=time.time_ns() // 1_000_000,
        )


@contextmanager
def gateway_alone(folder: Path, simulator: Simulator) -> Iterator[GatewayAlone]:
    """A gateway that runs, and is gone at the end."""
    gateway = GatewayAlone(folder, simulator)
    try:
        yield gateway
    finally:
        gateway.close()


def _at_start(log: KafkaLog) -> Reader:
    reader = log.reader()
    for number in range(log.partitions):
        reader.start(Place(ATTEMPT_ANSWERED.name, number), 0)
    return reader


def _job_id(run_id: int) -> str:
    return ids.job_id("default.gateway", run_id, "memory")


def _pool() -> Pool:
    """The pool as far as its share of unanswered items is concerned."""
    return Pool(
        provider="openai",
        base_url="http://127.0.0.1:1/v1",
        model=MODEL,
        limits=PoolLimits(slots=1),
        context_tokens=1,
        bulk=BulkLimits(**BULK),
    )


def _pipeline() -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": "gateway",
            "lane": "bulk",
            "input": {"id": "id", "fields": ["text"]},
            "prompt": f"system:\n{SYSTEM_PROMPT}\n\nuser:\n{{{{ text }}}}\n",
            "output": SCHEMA,
            "model": {"pools": ["sim"], "max_output_tokens": MAX_OUTPUT_TOKENS},
        }
    )
