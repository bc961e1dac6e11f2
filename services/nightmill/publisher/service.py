"""The publisher: accounts for settled items, checks gates, and switches readers; the one authority over a batch.

It alone decides cancel or publish, so they cannot race; it alone writes generations. A switch takes three commits: the
intent, then (outside) the target's pointer, then the version with its notices. After a crash anywhere between, the next
tick finds the intent open and does it again.
"""

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import cast

from nightmill.kernel.domain.failures import Billed, FailureClass
from nightmill.kernel.domain.lifecycle import ItemOutcome
from nightmill.kernel.runtime.observe import metrics
from nightmill.kernel.runtime.service import (
    NOTHING,
    ContractViolation,
    Decision,
    Partition,
    Service,
    Stall,
    Unavailable,
)
from nightmill.kernel.store.blobs import BlobMissing, BlobStore
from nightmill.kernel.store.blocks import PipelineReader
from nightmill.kernel.wire.messages import (
    BatchSealed,
    Failure,
    ItemSettled,
    JobCommanded,
    PartRow,
    PublicationRow,
    RowRef,
)
from nightmill.kernel.wire.totals import NO_TOTALS
from nightmill.kernel.wire.values import replace
from nightmill.publisher import batches
from nightmill.publisher.accounting import disagreement
from nightmill.publisher.book import Book
from nightmill.publisher.desk import INDEXES, Desk, Surroundings
from nightmill.publisher.effects import Effect
from nightmill.publisher.gates import check
from nightmill.publisher.grading import Grader
from nightmill.publisher.moves import follow
from nightmill.publisher.switching import SWEEP_EVERY_MS, intend, land, plan_switches, plan_upkeep
from nightmill.publisher.targets import Targets

log = logging.getLogger(__name__)

_DECISION = "decision"


class Publisher(Service):
    """Owns publication-state, accounting, part and dataset-state."""

    name = "publisher"
    indexes = INDEXES

    def __init__(self, blobs: BlobStore, targets: Targets, executor: Executor) -> None:
        self._around = Surroundings(blobs=blobs, pipelines=PipelineReader(blobs), targets=targets)
        self._executor = executor
        self._grader = Grader(blobs)
        self._desks: dict[int, Desk] = {}

    # -- the runtime's calls

    def on_open(self, part: Partition) -> None:
        self._desks[part.number] = Desk.opened(part, self._around, sweep_at_ms=part.now_ms + SWEEP_EVERY_MS)

    def on_close(self, number: int) -> None:
        self._desks.pop(number, None)

    def on_tick(self, part: Partition) -> Decision:
        desk = self._desks[part.number]
        desk.waits.pop(_DECISION, None)
        try:
            for key, future in desk.landed():
                land(desk, key, future)
            if desk.touched:
                self._decide_touched(desk)
            for batch_id in list(desk.ready):
                intend(desk, batch_id)
            plan_switches(desk)
            plan_upkeep(desk)
        except Unavailable as error:
            # a pipeline could not be read; what was not decided stays marked and is decided at a later tick
            desk.waits[_DECISION] = str(error)
            log.warning("decision waits", extra={"action": "decision_waits", "reason": str(error)})
        return desk.decision()

    def on_flush(self, part: Partition) -> Decision:
        """One part for each batch that had items settled; then the rows. A part is durable before its row commits.

        What was intended since the last commit starts with this one, now that all parts of its version have names.
        """
        desk = self._desks[part.number]
        waiting = [book for book in desk.books.values() if book.pending]
        staged = [(book, desk.target(book).stage(book.batch_id, book.pending)) for book in waiting]
        for book, part_ in staged:
            row = PartRow(
                part_id=f"{book.batch_id}/{part_.digest}",
                batch_id=book.batch_id,
                generation=book.generation,
                digest=part_.digest,
                rows=part_.rows,
                bytes=part_.bytes,
                tier=0,
                staged_at_ms=part.now_ms,
            )
            book.parts[part_.digest] = row
            book.pending.clear()
            desk.puts.append(row)
        for book in desk.books.values():
            desk.puts.extend(book.drain(part.now_ms))
        desk.fresh_intents.clear()
        plan_switches(desk)
        desk.forget_ended()
        return desk.decision()

    def start(self, effects: Sequence[object]) -> None:
        for effect in cast("Sequence[Effect]", effects):
            desk = self._desks.get(effect.partition)
            if desk is not None:
                desk.flights[effect.key] = self._executor.submit(effect.run)

    def stalls(self) -> Sequence[Stall]:
        return [Stall(subject=key, reason=why) for desk in self._desks.values() for key, why in desk.waiting()]

    def busy(self) -> bool:
        return any(future is not None for desk in self._desks.values() for future in desk.flights.values())

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    # -- events

    def on_batch_sealed(self, message: BatchSealed, part: Partition) -> Decision:
        """A plan was frozen or refused: generation 1 begins, or the job ends here."""
        desk = self._desks[part.number]
        following = batches.sealed(desk.row(message.batch_id), message, part.now_ms)
        if following is None:
            metrics.count("duplicates_suppressed", topic="batch-sealed")
            return NOTHING
        try:
            book = desk.open(following.row)
        except (BlobMissing, ValueError) as error:
            raise ContractViolation(f"pipeline {message.pipeline_digest} of {message.batch_id}: {error}") from error
        follow(desk, book, following)
        return desk.decision()

    def on_job_commanded(self, message: JobCommanded, part: Partition) -> Decision:
        """A person cancels, resumes or approves."""
        desk = self._desks[part.number]
        row = desk.row(message.batch_id)
        switching = desk.switching(message.batch_id, message.dataset_id)
        following = batches.command(row, message, switching=switching, now_ms=part.now_ms)
        if following is None:
            log.info("command repeated, or its batch is unknown", extra=_command_keys(message))
            return NOTHING
        why = following.ignored
        log.info("command ignored" if why else "command applied", extra={**_command_keys(message), "reason": why})
        follow(desk, desk.book(message.batch_id) or desk.open(following.row), following)
        return desk.decision()

    def on_item_settled(self, message: ItemSettled, part: Partition) -> Decision:
        """Account for one item in memory; rows and parts follow in `on_flush`, decisions in `on_tick`."""
        desk = self._desks[part.number]
        book = desk.book(message.batch_id)
        is_older = book is not None and message.generation < book.generation
        if book is None or message.generation > book.generation or not (book.taking or book.charging or is_older):
            # published: the ledger has it, readers never will
            metrics.count("duplicates_suppressed", topic="item-settled")
            return NOTHING
        if not 0 <= message.ordinal < book.planned:
            raise ContractViolation(f"ordinal {message.ordinal}: batch {book.batch_id} has {book.planned} items")
        if not book.taking or is_older:
            # what was settled before the dispatcher heard of a cancel or a resume is charged once, here or nowhere
            if not book.charge(message):
                metrics.count("duplicates_suppressed", topic="item-settled")
            elif book.taking:
                desk.touched.add(book.batch_id)
            return NOTHING
        chunk = book.chunk(message.ordinal)
        change = chunk.change_by(message.ordinal, message.outcome, message.revision)
        if change is None:
            metrics.count("duplicates_suppressed", topic="item-settled")
            return NOTHING
        right = None
        if change.after is ItemOutcome.ACCEPTED and book.gold_gate is not None and book.wants_gold():
            right = self._grader.grade(message, book.gold_gate)
        book.settle(message, chunk, change, right)
        desk.touched.add(book.batch_id)
        return NOTHING

    def on_quarantined(self, topic: str, headers: Mapping[str, str], reason: str, part: Partition) -> Decision:
        """An unreadable plan holds its batch; an unreadable settlement ends its item as a dead letter."""
        batch_id = headers.get("batch", "")
        desk = self._desks[part.number]
        row = desk.row(batch_id)
        if topic == "batch-sealed" and headers.get("job"):
            job_id = headers["job"]
            known = row or batches.open_row(batch_id, job_id, ".".join(job_id.split(".")[:2]), part.now_ms)
            following = batches.unreadable(known, reason, part.now_ms)
            if following is not None:
                follow(desk, desk.open(following.row), following)
                return desk.decision()
        if topic == "item-settled" and row is not None and row.sealed is not None:
            buried = _buried(headers, row, part.now_ms)
            if buried is not None and buried.ordinal < row.sealed.planned:
                return self.on_item_settled(buried, part)
        return NOTHING

    # -- decisions

    def _decide_touched(self, desk: Desk) -> None:
        for batch_id in sorted(desk.touched):
            book = desk.book(batch_id)
            if book is not None and book.taking:
                self._decide(desk, book)
        desk.touched.clear()

    def _decide(self, desk: Desk, book: Book) -> None:
        """Items were settled or a person decided: is the batch complete, is its budget spent?"""
        now_ms = desk.part.now_ms
        row = book.row(now_ms)
        if book.settled:
            row = batches.started(row)
        cost_grew, book.settled, book.cost_grew = book.cost_grew, False, False
        following = None
        if batches.complete(row):
            assert book.pipeline is not None
            publish = book.pipeline.publish
            results = check(row.counts, book.planned, row.gold, book.pipeline.gates, partial=publish.partial)
            wrong = disagreement(book.planned, row.counts, book.accounting())
            following = batches.conclude(row, results, wrong, now_ms)
        elif cost_grew:
            following = batches.overspent(row, now_ms)
        if following is not None:
            follow(desk, book, following)
        else:
            book.set_row(row)


def _buried(headers: Mapping[str, str], row: PublicationRow, now_ms: int) -> ItemSettled | None:
    """A dead letter for an item whose settlement could not be read, or None when its headers do not name it."""
    generation, ordinal = headers.get("generation", ""), headers.get("ordinal", "")
    if not (generation.isdigit() and ordinal.isdigit()):
        return None
    return ItemSettled(
        item_key=headers.get("item", ""),
        batch_id=row.batch_id,
        job_id=row.job_id,
        dataset_id=row.dataset_id,
        generation=int(generation),
        ordinal=int(ordinal),
        revision=1,
        source_id="",
        row=RowRef(block="", row=0),
        pipeline_digest="" if row.sealed is None else row.sealed.pipeline_digest,
        outcome=ItemOutcome.DEAD_LETTER,
        failure=Failure(
            failure_class=FailureClass.INTERNAL,
            signal="settlement_unreadable",
            message="the settlement is in item-settled-dlq",
            uses_retry_budget=False,
            billed=Billed.UNKNOWN,
        ),
        reused=False,
        totals=replace(NO_TOTALS, unknown_attempts=1, reserved_nano_usd=batches.worst_of_one(row)),
        planned_at_ms=now_ms,
        settled_at_ms=now_ms,
    )


def _command_keys(order: JobCommanded) -> dict[str, object]:
    return {
        "action": "job_commanded",
        "batch_id": order.batch_id,
        "command": order.command.value,
        "command_id": order.command_id,
    }
