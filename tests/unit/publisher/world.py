"""A small world around the publisher: commits, crashes, a folder of results, and effects that run when told to."""

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from kit.partition import StagePartition
from nightmill.kernel.domain.failures import Billed, FailureClass
from nightmill.kernel.domain.ids import batch_id, dataset_id
from nightmill.kernel.domain.lifecycle import Command, ItemOutcome, VerdictKind
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.runtime.service import Wait
from nightmill.kernel.store.blobs import BlobStore
from nightmill.kernel.store.blocks import write_block
from nightmill.kernel.wire.messages import (
    BatchSealed,
    DatasetRow,
    Failure,
    ItemSettled,
    JobCommanded,
    PublicationRow,
    Refusal,
    RowRef,
    Totals,
    Verdict,
)
from nightmill.publisher.service import Publisher
from nightmill.publisher.targets import Targets

T = TypeVar("T")

DATASET = dataset_id("acme", "classify")
JOB = f"{DATASET}.20260801-120000-aa"
BATCH = batch_id(JOB)
A, R, D, V = ItemOutcome.ACCEPTED, ItemOutcome.REJECTED, ItemOutcome.DEAD_LETTER, ItemOutcome.IN_REVIEW
SCHEMA = {
    "type": "object",
    "properties": {"label": {"type": "string"}, "score": {"type": "number"}},
    "additionalProperties": False,
}


class Immediately(Executor):
    """Runs what is submitted at once; what it raises is kept in the future."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def pipeline(**fields: Any) -> Pipeline:
    base: dict[str, Any] = {
        "name": "classify",
        "input": {"id": "id", "fields": ["text"]},
        "prompt": "Label {{ text }}",
        "output": SCHEMA,
        "model": {"pools": ["local"], "max_output_tokens": 16},
    }
    return Pipeline.model_validate(base | fields)


def totals(cost_nano_usd: int = 7, attempts: int = 1) -> Totals:
    return Totals(
        attempts=attempts,
        input_tokens=100 * attempts,
        cached_tokens=0,
        output_tokens=10 * attempts,
        cost_nano_usd=cost_nano_usd,
        unknown_attempts=0,
        repairs=0,
        retries=0,
        reserved_nano_usd=0,
    )


@dataclass
class World:
    """One partition of a publisher whose transactions commit, abort or are lost with the process."""

    home: Path
    lines: Pipeline = field(default_factory=pipeline)
    batch: str = BATCH
    job: str = JOB

    def __post_init__(self) -> None:
        self.blobs = BlobStore(str(self.home / "blobs"))
        self.results = self.home / "results" / DATASET
        self.pipeline_digest = self.blobs.put(self.lines.canonical())
        self.service = self._new_service()
        self.part = StagePartition(self.service)
        self.service.on_open(self.part)
        self.saved = self._tables()
        self.sent: list[Any] = []
        self.block = ""

    # -- what the loop does

    def take(self, *messages: Any) -> None:
        """Handle messages, without a tick."""
        handlers: dict[type[Any], Callable[[Any, Any], Any]] = {
            BatchSealed: self.service.on_batch_sealed,
            ItemSettled: self.service.on_item_settled,
            JobCommanded: self.service.on_job_commanded,
        }
        for message in messages:
            outcome = handlers[type(message)](message, self.part)
            assert not isinstance(outcome, Wait)
            self.part.apply(outcome)

    def tick(self) -> None:
        self.part.now_ms += 100
        self.part.apply(self.service.on_tick(self.part))

    def commit(self, *, start: bool = True) -> None:
        """Flush and commit; with `start`, the effects of the transaction run."""
        self.part.apply(self.service.on_flush(self.part))
        self.saved = self._tables()
        self.sent.extend(self.part.sent)
        effects, self.part.effects = self.part.effects, []
        self.part.sent.clear()
        if start and effects:
            self.service.start(effects)

    def crash(self) -> None:
        """Kill the process: all since the last commit is gone, a new one opens the partition."""
        self.service = self._new_service()
        self._restore()

    def abort(self) -> None:
        """The transaction is aborted; the same process opens the partition again."""
        self.service.on_close(0)
        self._restore()

    def settle_down(self, steps: int = 6) -> None:
        """Tick and commit until nothing more happens."""
        for _ in range(steps):
            self.tick()
            self.commit()

    # -- what the tests ask

    @property
    def row(self) -> PublicationRow:
        found = self.part.table(PublicationRow).get(self.batch)
        assert isinstance(found, PublicationRow)
        return found

    @property
    def dataset(self) -> DatasetRow:
        found = self.part.table(DatasetRow).get(DATASET)
        assert isinstance(found, DatasetRow)
        return found

    def sent_of(self, kind: type[T]) -> list[T]:
        return [message for message in self.sent if isinstance(message, kind)]

    # -- messages

    def rows(self, rows: Sequence[dict[str, Any]]) -> None:
        """The batch's input, in one block."""
        self.block = write_block(self.blobs, rows).digest

    def sealed(self, planned: int, *, budget_nano_usd: int | None = None, refusal: str | None = None) -> BatchSealed:
        return BatchSealed(
            batch_id=self.batch,
            job_id=self.job,
            dataset_id=DATASET,
            tenant="acme",
            pipeline="classify",
            pipeline_digest=self.pipeline_digest,
            refusal=None if refusal is None else Refusal(rule="price", message=refusal),
            planned=planned,
            refused_rows=1,
            blocks=1,
            input_tokens=1,
            max_output_tokens=1,
            budget_nano_usd=budget_nano_usd,
            priority=3,
            manifest_digest="m" * 64,
            tags={},
            submitted_at_ms=1,
            sealed_at_ms=2,
        )

    def begin(self, planned: int, **fields: Any) -> None:
        """The batch's plan comes and is committed."""
        self.take(self.sealed(planned, **fields))
        self.commit()

    def settled(
        self,
        ordinal: int,
        outcome: ItemOutcome = ItemOutcome.ACCEPTED,
        *,
        generation: int = 1,
        revision: int = 1,
        output: str | None = None,
        cost_nano_usd: int = 7,
        reused: bool = False,
    ) -> ItemSettled:
        accepted = outcome is ItemOutcome.ACCEPTED
        judged = outcome in (ItemOutcome.REJECTED, ItemOutcome.IN_REVIEW)
        return ItemSettled(
            item_key=f"key{ordinal}",
            batch_id=self.batch,
            job_id=self.job,
            dataset_id=DATASET,
            generation=generation,
            ordinal=ordinal,
            revision=revision,
            source_id=f"s{ordinal}",
            row=RowRef(block=self.block, row=ordinal),
            pipeline_digest=self.pipeline_digest,
            outcome=outcome,
            verdict=Verdict(kind=VerdictKind.REJECTED, rule="enum", field="label", value="?") if judged else None,
            failure=_FAILURE if outcome is ItemOutcome.DEAD_LETTER else None,
            reused=reused,
            totals=totals(cost_nano_usd),
            output=(output or f'{{"label":"l{ordinal}","score":0.5}}') if accepted else None,
            attempt_id=f"key{ordinal}-1" if accepted else None,
            model="tiny" if accepted else None,
            planned_at_ms=3,
            settled_at_ms=4,
        )

    def ordered(self, command: Command, id_: str) -> JobCommanded:
        return JobCommanded(
            command_id=id_,
            job_id=self.job,
            batch_id=self.batch,
            dataset_id=DATASET,
            command=command,
            actor="me",
            commanded_at_ms=5,
        )

    # -- inside

    def _new_service(self) -> Publisher:
        return Publisher(self.blobs, Targets(self.home / "results", self.blobs), Immediately())

    def _tables(self) -> Any:
        return {row: dict(table.rows) for row, table in self.part._tables.items()}

    def _restore(self) -> None:
        self.part.service = self.service
        for row, rows in copy.copy(self.saved).items():
            self.part.table(row).rows = dict(rows)
        self.part.sent.clear()
        self.part.effects.clear()
        self.service.on_open(self.part)


_FAILURE = Failure(
    failure_class=FailureClass.BAD_INPUT,
    signal="context_too_long",
    message="too long",
    uses_retry_budget=False,
    billed=Billed.NO,
)
