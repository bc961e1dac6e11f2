"""The planner service: from a submitted job to a sealed batch, and from the publisher's word to planned items.

Freezing and merging go one bounded step per tick and partition, in turn over the batches; releasing follows the
dispatcher's lag; expanding a block is one event, on whatever partition the block falls. Everything can be done again:
slices, manifests and items depend on rows and blobs alone.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from pydantic import ValidationError

from nightmill.kernel.domain.ids import batch_id
from nightmill.kernel.domain.lifecycle import ControlState, PlanPhase
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.settings import Config
from nightmill.kernel.runtime.service import (
    NOTHING,
    ContractViolation,
    Decision,
    Delete,
    Index,
    Partition,
    Service,
    Stall,
    Unavailable,
)
from nightmill.kernel.runtime.stalls import Waits
from nightmill.kernel.store.blobs import BlobMissing, BlobStore
from nightmill.kernel.wire.messages import (
    BatchControlled,
    BatchPlanRow,
    BlockAdmitted,
    BlockPlanRow,
    JobSubmitted,
    Refusal,
)
from nightmill.kernel.wire.topics import BATCH_CONTROLLED, BLOCK_ADMITTED, JOB_SUBMITTED
from nightmill.planner.control import follow, opened
from nightmill.planner.duplicates import DuplicateSearch
from nightmill.planner.expander import Expander
from nightmill.planner.freezer import Freezer
from nightmill.planner.measured import Measured
from nightmill.planner.meter import Count
from nightmill.planner.release import LAG_MARK_ITEMS
from nightmill.planner.releaser import Releaser
from nightmill.planner.rows import Unreadable
from nightmill.planner.sealing import Sealed, Sealer, refuse, refuse_unread
from nightmill.planner.transforms import Transforms

log = logging.getLogger(__name__)

_PLANNING = (PlanPhase.FREEZING, PlanPhase.MERGING)
_OPEN = frozenset({*_PLANNING, PlanPhase.RELEASING})
#: open batches looked at in one tick
_MAX_OPEN = 256


def _open_key(row: BatchPlanRow) -> bytes | None:
    return row.batch_id.encode() if row.phase in _OPEN else None


@dataclass(slots=True)
class _Desk:
    """What lies open for one partition; all of it can be thrown away at any time."""

    freezer: Freezer
    searches: dict[str, DuplicateSearch] = field(default_factory=dict)
    last_turn: str = ""  #: the batch that planning served last
    busy: bool = False
    goes_on: bool = False  #: the last tick did a step of planning

    def clear(self, batch: str) -> None:
        self.freezer.forget(batch)
        self.searches.pop(batch, None)


class Planner(Service):
    """Owns batch-plan and block-plan. `lag` gives the dispatcher's lag in items, None while it is not known."""

    name = "planner"
    indexes = (Index(name="open", row=BatchPlanRow, key=_open_key),)

    def __init__(
        self,
        *,
        blobs: BlobStore,
        config: Config,
        count: Count,
        lag: Callable[[], int | None],
        mark: int = LAG_MARK_ITEMS,
    ) -> None:
        self._blobs, self._lag = blobs, lag
        self._transforms = Transforms(blobs, config, count)
        self._sealer = Sealer(blobs, config)
        self._releaser = Releaser(blobs, mark)
        self._measured = Measured()
        self._expander = Expander(blobs, self._measured)
        self._desks: dict[int, _Desk] = {}
        self._waits = Waits()

    def on_close(self, number: int) -> None:
        self._waits.over(number)
        self._releaser.forget(number)
        if desk := self._desks.pop(number, None):
            desk.freezer.close()

    def close(self) -> None:
        for number in list(self._desks):
            self.on_close(number)

    def stalls(self) -> Sequence[Stall]:
        return self._waits.stalls()

    def busy(self) -> bool:
        return any(desk.busy for desk in self._desks.values())

    def goes_on(self) -> bool:
        return any(desk.goes_on for desk in self._desks.values())

    # -- events

    def on_job_submitted(self, job: JobSubmitted, part: Partition) -> Decision:
        batch = batch_id(job.job_id)
        if part.table(BatchPlanRow).get(batch) is not None:
            return NOTHING
        row = opened(job, batch, part.now_ms)
        pipeline: Pipeline | None = None
        try:
            pipeline = self._transforms.pipeline(job.pipeline_digest)
            refusal = self._sealer.admit(job, pipeline, None, part.now_ms)
        except (BlobMissing, ValidationError) as error:
            text = f"the frozen pipeline {job.pipeline_digest[:16]} can not be read ({type(error).__name__})"
            refusal = Refusal(rule="unreadable_pipeline", message=f"{text}; submit the job again")
        if refusal is not None:
            return _end(refuse(row, refusal, pipeline, part.now_ms))
        log.info("planning started", extra={"action": "planning_started", "batch": batch, "bytes": job.input.bytes})
        return Decision(put=[row])

    def on_batch_controlled(self, word: BatchControlled, part: Partition) -> Decision:
        row = part.table(BatchPlanRow).get(word.batch_id)
        if row is None:
            raise ContractViolation(f"batch {word.batch_id} was never planned here")
        after = follow(row, word, part.now_ms)
        if after is None:
            return NOTHING
        if word.state is ControlState.RUNNING:
            self._check_blobs(word)
        extra = {"batch": word.batch_id, "generation": word.generation, "phase": str(after.phase)}
        log.info("plan follows the publisher", extra={"action": "plan_follows", **extra})
        return Decision(put=[after])

    def on_block_admitted(self, block: BlockAdmitted, part: Partition) -> Decision:
        try:
            transform = self._transforms.get(block.pipeline_digest, block.tenant)
            items = self._expander.items(block, self._releaser.selection(block.selection_digest), transform)
        except (BlobMissing, ValidationError) as error:
            text = f"block {block.block_id}: a blob is gone or spoilt ({type(error).__name__}: {error})"
            raise ContractViolation(f"{text}; restore it and resume the job") from error
        extra = {"batch": block.batch_id, "generation": block.generation, "items": len(items)}
        log.info("block expanded", extra={"action": "block_expanded", **extra})
        return Decision(send=items) if items else NOTHING

    def on_quarantined(self, topic: str, headers: Mapping[str, str], reason: str, part: Partition) -> Decision:
        job = headers.get("job", "")
        if topic == JOB_SUBMITTED.name and job.count(".") >= 2 and part.table(BatchPlanRow).get(batch_id(job)) is None:
            return Decision(send=[refuse_unread(job, batch_id(job), reason, part.now_ms)])
        if topic in (BATCH_CONTROLLED.name, BLOCK_ADMITTED.name):
            text = "a batch will not end by itself; resume it"
            log.error(text, extra={"action": "batch_needs_resume", "batch": headers.get("batch"), "topic": topic})
        return NOTHING

    # -- ticks

    def on_tick(self, part: Partition) -> Decision:
        rows = list(islice(part.table(BatchPlanRow).index("open"), _MAX_OPEN))
        desk = self._desks.get(part.number)
        if desk is None:
            if not rows:
                return NOTHING
            desk = self._desks[part.number] = _Desk(Freezer(self._blobs, self._measured))
        planning = [row for row in rows if row.phase in _PLANNING]
        desk.busy = bool(planning)  # what is released is committed as soon as it may be: others wait for it
        planned = self._plan_next(planning, desk, part)
        desk.goes_on = planned is not NOTHING
        lag = self._lag() if rows else None  # asked while a batch is planned: by its release the answer is there
        released = self._release([row for row in rows if row.phase is PlanPhase.RELEASING], lag, part)
        decisions = [decision for decision in (planned, released) if decision is not NOTHING]
        if len(decisions) < 2:
            return decisions[0] if decisions else NOTHING
        return Decision(send=[*planned.send, *released.send], put=[*planned.put, *released.put], delete=planned.delete)

    def _plan_next(self, planning: Sequence[BatchPlanRow], desk: _Desk, part: Partition) -> Decision:
        """One step of one batch; the batches take turns."""
        if not planning or self._waits.rests(part.number, "planning", part.now_ms):
            return NOTHING
        row = next((row for row in planning if row.batch_id > desk.last_turn), planning[0])
        desk.last_turn = row.batch_id
        self._waits.over(part.number, "planning")
        try:
            return self._freeze(row, desk, part) if row.phase is PlanPhase.FREEZING else self._merge(row, desk, part)
        except Unavailable as error:
            self._waits.met(part.number, "planning", error, part.now_ms)
            extra = {"action": "planning_waits", "batch": row.batch_id, "reason": str(error)}
            log.warning("planning waits", extra=extra)
            return NOTHING
        except (Unreadable, BlobMissing) as error:
            rule, remedy = (error.rule, "") if isinstance(error, Unreadable) else ("blob_missing", "; submit it again")
            refusal = Refusal(rule=rule, message=f"{row.job.input.name}, {error}{remedy}")
        desk.clear(row.batch_id)
        return _end(refuse(row, refusal, None, part.now_ms), self._block_rows(row, part))

    def _freeze(self, row: BatchPlanRow, desk: _Desk, part: Partition) -> Decision:
        transform = self._transforms.get(row.job.pipeline_digest, row.job.tenant)
        after, block = desk.freezer.freeze(row, transform, part.now_ms)
        return Decision(put=[after] if block is None else [after, block])

    def _merge(self, row: BatchPlanRow, desk: _Desk, part: Partition) -> Decision:
        search = desk.searches.get(row.batch_id)
        if search is None:
            runs = [block.ids_digest for block in self._block_rows(row, part)]
            search = desk.searches[row.batch_id] = DuplicateSearch(runs, row.planned, self._blobs.get)
        if not search.step():
            return NOTHING
        blocks = self._block_rows(row, part)
        transform = self._transforms.get(row.job.pipeline_digest, row.job.tenant)
        sealed = self._sealer.seal(row, blocks, search, transform, part.now_ms)
        desk.clear(row.batch_id)
        return _end(sealed, blocks)

    def _release(self, releasing: Sequence[BatchPlanRow], lag: int | None, part: Partition) -> Decision:
        if self._waits.rests(part.number, "release", part.now_ms):
            return NOTHING
        self._waits.over(part.number, "release")
        if lag is None or not releasing:
            return NOTHING
        try:
            running, stopped = self._releaser.readable(releasing, part.now_ms)
            rows, admitted = self._releaser.release(running, lag, part.number, part.now_ms)
        except Unavailable as error:
            self._waits.met(part.number, "release", error, part.now_ms)
            log.warning("release waits", extra={"action": "release_waits", "reason": str(error)})
            return NOTHING
        if not rows and not stopped:
            return NOTHING
        extra = {"action": "blocks_released", "blocks": len(admitted), "batches": len(rows), "lag": lag}
        log.info("blocks released", extra=extra)
        return Decision(send=admitted, put=[*rows, *stopped])

    # -- gathering

    def _block_rows(self, row: BatchPlanRow, part: Partition) -> list[BlockPlanRow]:
        return list(part.table(BlockPlanRow).prefix(f"{row.batch_id}/"))

    def _check_blobs(self, word: BatchControlled) -> None:
        """What a release needs is read now, so that a tick does not meet a missing blob first."""
        try:
            self._releaser.blocks(word)
            self._releaser.selection(word.selection_digest)
        except BlobMissing as error:
            raise ContractViolation(f"batch {word.batch_id}: {error}; restore it and resume the job") from error


def _end(sealed: Sealed, blocks: Sequence[BlockPlanRow] = ()) -> Decision:
    """Planning is over: the slices' rows are in the manifest, or of no use any more."""
    message, refusal = sealed.message, sealed.row.refusal
    extra = {"action": "batch_sealed", "batch": message.batch_id, "planned": message.planned}
    log.info("batch sealed", extra={**extra, "refused_rows": message.refused_rows, "rule": refusal and refusal.rule})
    gone = [Delete(row=BlockPlanRow, key=block.block_id) for block in blocks]
    return Decision(send=[message], put=[sealed.row], delete=gone)
