"""Lane and pool of an item, and the look at deadlines that moves a batch from bulk to realtime (P5, P6).

Where the pipeline lets the deadline decide, what was chosen for a batch stands in a row of each partition. A batch
never goes back to bulk. The gateway follows the row: what was not submitted comes back as not sent; a submission that
is called back is cancelled, and what it has not done by then comes back, too. So nothing is paid twice. The decision
itself is `kernel.domain.lanes`.
"""

import logging
from functools import lru_cache

from pydantic import ValidationError

from nightmill.dispatcher import pools
from nightmill.dispatcher.backlog import Backlog
from nightmill.dispatcher.fence import ControlOf
from nightmill.kernel.domain.lanes import Outlook, choose, danger_words, in_danger, pools_for, realtime_per_s
from nightmill.kernel.domain.lifecycle import ControlState, Lane
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.settings import Config, Tenant
from nightmill.kernel.runtime.service import Partition
from nightmill.kernel.store.blobs import BlobMissing
from nightmill.kernel.store.blocks import PipelineReader
from nightmill.kernel.wire.messages import BatchControlled, Failure, ItemStateRow, LaneChoiceRow
from nightmill.kernel.wire.values import replace

log = logging.getLogger(__name__)

_LOOK_EVERY_MS = 1_000
#: a pool counts as busy, and what it answers as all that it can, with so much of what it may have under way
_BUSY_SHARE = 2


class Router:
    """Decides lanes and pools. Remembers nothing but what the rows of choices say."""

    def __init__(self, config: Config, pipelines: PipelineReader) -> None:
        self._config, self._pipelines = config, pipelines
        self._allowed = lru_cache(maxsize=256)(self._find_allowed)

    def lane(self, pipeline_digest: str, batch_id: str, deadline_at_ms: int | None, part: Partition) -> Lane:
        """The lane of a batch's items that are not dispatched yet."""
        rule = self._rule(pipeline_digest)
        if isinstance(rule, Lane):
            return rule
        chosen = part.table(LaneChoiceRow).get(_choice_id(batch_id, part))
        if chosen is not None:
            return chosen.lane
        outlook = Outlook(left_ms=_left_ms(deadline_at_ms, part.now_ms), items=0, per_s=1.0, call_ms=0)
        tenant = batch_id.partition(".")[0]
        return choose(rule, has_bulk=self._has_bulk(pipeline_digest, tenant), outlook=outlook).lane

    def lane_to(self, pool: str, lane: Lane) -> Lane:
        """How items of a batch in `lane` reach a pool."""
        return pools.lane_of(self._config, pool, lane)

    def place(self, pipeline_digest: str, dataset_id: str, tokens: int, lane: Lane) -> str | Failure:
        """The pool for an item, or why there is none."""
        tenant = dataset_id.partition(".")[0]
        try:
            allowed = self._allowed(pipeline_digest, tenant, lane)
            pool = pools.choose_pool(self._config, allowed, tokens)
            if pool is not None:
                return pool
            if allowed:
                return pools.too_long(self._config, self._pipelines.get(pipeline_digest), allowed, tokens)
            return pools.forbidden(self._config, self._pipelines.get(pipeline_digest), tenant, lane)
        except (BlobMissing, ValidationError):
            return pools.internal("pipeline_unreadable", f"the frozen pipeline {pipeline_digest} cannot be read")

    def headroom_tokens(self, row: ItemStateRow) -> int:
        """What the longest allowed context leaves for a repair. Raises `BlobMissing`, pydantic's ValidationError."""
        tenant = row.dataset_id.partition(".")[0]
        allowed = self._allowed(row.pipeline_digest, tenant, row.lane or Lane.REALTIME)
        return pools.headroom_tokens(self._config, allowed, row.input_tokens + row.max_output_tokens)

    def look(self, backlog: Backlog, control_of: ControlOf, part: Partition) -> list[LaneChoiceRow]:
        """Choices that are new, or have changed: they are looked at once a second."""
        is_time = part.now_ms >= backlog.next_lanes_ms
        if is_time:
            backlog.next_lanes_ms = part.now_ms + _LOOK_EVERY_MS
        changed = []
        for batch_id in sorted(backlog.batches()):
            control = control_of(batch_id)
            if control is None or control.state is not ControlState.RUNNING:
                continue
            rule = self._rule(control.pipeline_digest)
            if isinstance(rule, Lane):
                continue
            before = part.table(LaneChoiceRow).get(_choice_id(batch_id, part))
            row = self._decide(before, control, rule, backlog, part) if is_time or before is None else None
            if row is not None:
                _log(row)
                changed.append(row)
        return changed

    def _decide(
        self,
        before: LaneChoiceRow | None,
        control: BatchControlled,
        pipeline: Pipeline,
        backlog: Backlog,
        part: Partition,
    ) -> LaneChoiceRow | None:
        """The row of a batch as it must be now; None when nothing changes."""
        batch_id, now_ms = control.batch_id, part.now_ms
        waits_in_bulk = backlog.in_bulk[batch_id] > 0
        if before is not None and before.lane is Lane.REALTIME and (before.recalled_at_ms or not waits_in_bulk):
            return None
        tenant = batch_id.partition(".")[0]
        outlook = self._outlook(control, pipeline, tenant, backlog, part)
        choice = choose(pipeline, has_bulk=self._has_bulk(control.pipeline_digest, tenant), outlook=outlook)
        why = f"{choice.reason}; {self._pools_in(pipeline, tenant, choice.lane)}"
        row = before
        if row is None:
            row = LaneChoiceRow(
                choice_id=_choice_id(batch_id, part),
                batch_id=batch_id,
                partition=part.number,
                lane=choice.lane,
                reason=why,
                chosen_at_ms=now_ms,
            )
        elif row.lane is Lane.BULK and choice.lane is Lane.REALTIME:
            row = replace(row, lane=Lane.REALTIME, moved_at_ms=now_ms, moved_reason=why)
        if row.lane is Lane.REALTIME and waits_in_bulk and in_danger(pipeline, outlook):
            row = replace(row, recalled_at_ms=now_ms, recalled_reason=danger_words(outlook))
        return None if row is before else row

    def _outlook(
        self, control: BatchControlled, pipeline: Pipeline, tenant: str, backlog: Backlog, part: Partition
    ) -> Outlook:
        """What is left of a batch here, and this partition's share of what its first realtime pool does.

        A pool that is busy does what it answers. Of another one its limits tell more, divided by the partitions.
        """
        items = backlog.unanswered(control.batch_id)
        name = next(iter(self._allowed(control.pipeline_digest, tenant, Lane.REALTIME)), None)
        left_ms = _left_ms(control.deadline_at_ms, part.now_ms)
        if name is None or items == 0:
            return Outlook(left_ms=left_ms, items=0, per_s=1.0, call_ms=0)
        pool = self._config.pools[name]
        per_s = realtime_per_s(
            pool,
            input_tokens=backlog.tokens[control.batch_id] / items,
            output_tokens=pipeline.model.max_output_tokens,
        )
        per_s /= part.partitions
        seen = backlog.rate.mean_per_s(name)
        if seen > 0:
            busy = backlog.outstanding[name, Lane.REALTIME] * _BUSY_SHARE >= pools.most_in_realtime(pool)
            per_s = seen if busy else max(seen, per_s)
        return Outlook(left_ms=left_ms, items=items, per_s=per_s, call_ms=round(pool.call_deadline * 1000))

    def _has_bulk(self, pipeline_digest: str, tenant: str) -> bool:
        allowed = self._allowed(pipeline_digest, tenant, Lane.BULK)
        return any(self._config.pools[name].bulk is not None for name in allowed)

    def _pools_in(self, pipeline: Pipeline, tenant: str, lane: Lane) -> str:
        return pools_for(pipeline, lane, self._config.pools, self._config.tenants.get(tenant) or Tenant()).words

    def _find_allowed(self, pipeline_digest: str, tenant: str, lane: Lane) -> tuple[str, ...]:
        return pools.allowed_pools(self._config, self._pipelines.get(pipeline_digest), tenant, lane)

    def _rule(self, pipeline_digest: str) -> Lane | Pipeline:
        """The lane that a pipeline fixes; the pipeline itself where the deadline decides.

        One that can not be read is told so where its items are placed.
        """
        try:
            pipeline = self._pipelines.get(pipeline_digest)
        except (BlobMissing, ValidationError):
            return Lane.REALTIME
        return pipeline.lane if isinstance(pipeline.lane, Lane) else pipeline


def _choice_id(batch_id: str, part: Partition) -> str:
    return f"{batch_id}/{part.number}"


def _left_ms(deadline_at_ms: int | None, now_ms: int) -> int | None:
    return None if deadline_at_ms is None else deadline_at_ms - now_ms


def _log(row: LaneChoiceRow) -> None:
    what = "recalled" if row.recalled_at_ms else "moved" if row.moved_at_ms else "chosen"
    why = row.recalled_reason or row.moved_reason or row.reason
    extra = {"batch": row.batch_id, "partition": row.partition, "lane": row.lane.value, "reason": why}
    log.info("lane %s", what, extra={"action": f"lane_{what}", **extra})
