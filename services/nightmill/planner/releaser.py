"""Releasing: the next blocks of every running batch, as many as the dispatcher can take."""

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from nightmill.kernel.domain.bitmap import Bitmap
from nightmill.kernel.domain.ids import block_id
from nightmill.kernel.domain.lifecycle import PlanPhase
from nightmill.kernel.store.blobs import BlobMissing, BlobStore
from nightmill.kernel.wire.messages import BatchControlled, BatchPlanRow, BlockAdmitted
from nightmill.kernel.wire.values import replace
from nightmill.planner.manifest import PlannedBlock, blocks_of
from nightmill.planner.release import LAG_MARK_ITEMS, MAX_RELEASES, Waiting, choose

log = logging.getLogger(__name__)

#: released items show in the dispatcher's lag only after two commits and its next reading; until then they count here
_UNSEEN_MS = 3_000


@dataclass(slots=True)
class _Memory:
    """What one partition remembers between ticks: shares, and releases that the lag does not show yet."""

    shares: Mapping[str, int] = field(default_factory=dict)
    unseen: deque[tuple[int, int]] = field(default_factory=deque)  #: (released_at_ms, items)


class Releaser:
    """Decides what goes out. Forgetting its memory costs a little fairness or lag, never a block."""

    def __init__(self, blobs: BlobStore, mark: int = LAG_MARK_ITEMS) -> None:
        self._blobs, self._mark = blobs, mark
        self._memory: dict[int, _Memory] = {}
        self._manifest = lru_cache(maxsize=32)(self._read_manifest)
        self._selection = lru_cache(maxsize=16)(self._read_selection)
        self._selected = lru_cache(maxsize=1 << 16)(self._count_selected)

    def blocks(self, control: BatchControlled) -> tuple[PlannedBlock, ...]:
        """Blocks of the manifest that `control` names. Raises `BlobMissing`, `Unavailable`."""
        return self._manifest(control.manifest_digest)

    def selection(self, digest: str | None) -> Bitmap | None:
        """The ordinals to plan; None means all. Raises `BlobMissing`, `Unavailable`."""
        return None if digest is None else self._selection(digest)

    def forget(self, partition: int) -> None:
        self._memory.pop(partition, None)

    def readable(
        self, releasing: Sequence[BatchPlanRow], now_ms: int
    ) -> tuple[list[tuple[BatchPlanRow, BatchControlled]], list[BatchPlanRow]]:
        """Batches whose manifest and selection can be read; the others stop, so that they do not stop the rest.

        Raises `Unavailable`.
        """
        running: list[tuple[BatchPlanRow, BatchControlled]] = []
        stopped: list[BatchPlanRow] = []
        for row, word in ((row, row.control) for row in releasing if row.control is not None):
            try:
                self.blocks(word)
                self.selection(word.selection_digest)
                running.append((row, word))
            except BlobMissing as error:
                extra = {"action": "release_stopped", "batch": row.batch_id, "reason": str(error)}
                log.error("a batch stops: restore the blob and resume the job", extra=extra)
                stopped.append(replace(row, phase=PlanPhase.STOPPED, updated_at_ms=now_ms))
        return running, stopped

    def release(
        self, running: Sequence[tuple[BatchPlanRow, BatchControlled]], lag: int, partition: int, now_ms: int
    ) -> tuple[list[BatchPlanRow], list[BlockAdmitted]]:
        """Rows that moved on and the blocks that go out. Raises `BlobMissing`, `Unavailable`."""
        memory = self._memory.setdefault(partition, _Memory())
        while memory.unseen and memory.unseen[0][0] <= now_ms - _UNSEEN_MS:
            memory.unseen.popleft()
        lag_items = lag + sum(items for _, items in memory.unseen)
        waiting = [Waiting(batch_id=row.batch_id, blocks=self._sizes(row, control)) for row, control in running]
        chosen = choose(waiting, memory.shares, lag_items=lag_items, mark=self._mark)
        memory.shares = chosen.shares
        if chosen.items:
            memory.unseen.append((now_ms, chosen.items))
        rows: list[BatchPlanRow] = []
        admitted: list[BlockAdmitted] = []
        for (row, control), batch in zip(running, waiting, strict=True):
            count = chosen.blocks.get(row.batch_id, 0)
            if count or not batch.blocks:
                following = self.blocks(control)[row.released_blocks : row.released_blocks + count]
                wanted = zip(following, batch.blocks, strict=False)
                admitted += [_admitted(row, control, block) for block, items in wanted if items]
                rows.append(self._moved_on(row, control, count, now_ms))
        return rows, admitted

    def _sizes(self, row: BatchPlanRow, control: BatchControlled) -> tuple[int, ...]:
        """Selected items of the next blocks."""
        following = self.blocks(control)[row.released_blocks : row.released_blocks + MAX_RELEASES]
        if control.selection_digest is None:
            return tuple(entry.block.rows for entry in following)
        return tuple(
            self._selected(control.selection_digest, entry.first_ordinal, entry.block.rows) for entry in following
        )

    def _moved_on(self, row: BatchPlanRow, control: BatchControlled, count: int, now_ms: int) -> BatchPlanRow:
        released = row.released_blocks + count
        done = released >= len(self.blocks(control))
        phase = PlanPhase.RELEASED if done else PlanPhase.RELEASING
        return replace(row, phase=phase, released_blocks=released, updated_at_ms=now_ms)

    def _read_manifest(self, digest: str) -> tuple[PlannedBlock, ...]:
        return blocks_of(self._blobs.get_json(digest))

    def _count_selected(self, digest: str, first_ordinal: int, rows: int) -> int:
        return sum(map(self._selection(digest).get, range(first_ordinal, first_ordinal + rows)))

    def _read_selection(self, digest: str) -> Bitmap:
        return Bitmap.from_text(self._blobs.get_json(digest)["ordinals"])


def _admitted(row: BatchPlanRow, control: BatchControlled, block: PlannedBlock) -> BlockAdmitted:
    return BlockAdmitted(
        block_id=block_id(row.batch_id, control.generation, block.first_ordinal),
        batch_id=row.batch_id,
        job_id=control.job_id,
        dataset_id=control.dataset_id,
        generation=control.generation,
        tenant=row.job.tenant,
        pipeline_digest=control.pipeline_digest,
        block=block.block,
        first_ordinal=block.first_ordinal,
        selection_digest=control.selection_digest,
        reuse=control.reuse,
        priority=control.priority,
        deadline_at_ms=control.deadline_at_ms,
    )
