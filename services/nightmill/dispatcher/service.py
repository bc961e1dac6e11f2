"""The dispatcher: only here an item starts and ends.

Plans become rows, rows become shards, judgements become outcomes. The row of an item is all that is remembered of it;
work that cannot be done now is a row with a time or in a queue, and a tick finds it. What a tick does is in `rounds`.
"""

import logging
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from pydantic import ValidationError

from nightmill.dispatcher import account, fence, items, outcome, pools
from nightmill.dispatcher.backlog import INDEXES, Backlog
from nightmill.dispatcher.items import Admission
from nightmill.dispatcher.judge import (
    REPAIR_BYTES,
    Mend,
    Rules,
    Ruling,
    accepted,
    buried,
    is_current,
    judge,
    late,
)
from nightmill.dispatcher.lanes import Router
from nightmill.dispatcher.outcome import Change
from nightmill.dispatcher.quarantine import plan_of
from nightmill.dispatcher.rounds import Rounds
from nightmill.dispatcher.stalls import stalls
from nightmill.kernel.domain.lifecycle import ControlState, ItemState, VerdictKind
from nightmill.kernel.domain.settings import Config
from nightmill.kernel.runtime.observe import metrics
from nightmill.kernel.runtime.service import NOTHING, ContractViolation, Decision, Partition, Service, Stall, View, Wait
from nightmill.kernel.store.blobs import BlobMissing, BlobStore
from nightmill.kernel.store.blocks import PipelineReader
from nightmill.kernel.wire.channel import Topic
from nightmill.kernel.wire.messages import (
    AttemptAnswered,
    AttemptJudged,
    BatchControlled,
    Failure,
    ItemPlanned,
    ItemStateRow,
    Repair,
    Totals,
)
from nightmill.kernel.wire.topics import ATTEMPT_JUDGED, ITEM_PLANNED
from nightmill.kernel.wire.values import replace

log = logging.getLogger(__name__)

#: ready items of a batch that are held in memory, a partition; more stay in the log, and the planner sees the lag
_MOST_READY = 50_000


class Dispatcher(Service):
    """Plans, dispatches, retries and settles items.

    What is derived from rows is kept as if every decision committed: after an abort the partition is opened anew.
    """

    name = "dispatcher"
    indexes = INDEXES

    def __init__(self, *, config: Config, blobs: BlobStore, random: Random) -> None:
        self._config = config
        self._blobs = blobs
        self._random = random
        self._pipelines = PipelineReader(blobs)
        self._router = Router(config, self._pipelines)
        self._backlogs: dict[int, Backlog] = {}
        self._control_of: Callable[[str], BatchControlled | None]
        self._rounds: Rounds

    def attach_views(self, views: Mapping[type[Any], View[Any]]) -> None:
        self._control_of = views[BatchControlled].get
        self._rounds = Rounds(config=self._config, control_of=self._control_of, router=self._router)

    def on_open(self, part: Partition) -> None:
        self._backlogs[part.number] = Backlog(part.table(ItemStateRow))

    def on_close(self, number: int) -> None:
        self._backlogs.pop(number, None)

    def on_tick(self, part: Partition) -> Decision:
        return self._rounds.tick(self._backlogs[part.number], part)

    def busy(self) -> bool:
        return any(backlog.has_more for backlog in self._backlogs.values())

    def stalls(self) -> list[Stall]:
        return stalls(self._backlogs.values())

    # plans

    def on_item_planned(self, planned: ItemPlanned, part: Partition) -> Decision | Wait:
        """One item is wanted by a batch."""
        control = self._control_of(planned.batch_id)
        if control is None or control.generation < planned.generation:
            return Wait(f"batch-controlled of {planned.batch_id} generation {planned.generation} is not here yet")
        if fence.standing(planned.generation, control) is fence.Standing.DEAD:
            return NOTHING
        if control.state is ControlState.RUNNING and self._backlogs[part.number].ready[planned.batch_id] >= _MOST_READY:
            return Wait(f"{_MOST_READY} items of {planned.batch_id} are ready and wait for their pools")
        row = part.table(ItemStateRow).get(planned.item_key)
        match items.classify(row, planned):
            case Admission.REPEATED:
                return self._repeated(ITEM_PLANNED)
            case Admission.JOINED if row is not None:
                lead_runs = bool(row.waiters) and fence.may_start(row.waiters[0], self._control_of)
                return self._decide(part, row, Change(row=items.join(row, planned, lead_runs=lead_runs)))
            case Admission.REUSED if row is not None:
                return self._decide(part, row, outcome.reuse(row, planned, now_ms=part.now_ms))
            case _:
                return self._decide(part, row, self._begin(row, planned, part))

    def _begin(self, before: ItemStateRow | None, planned: ItemPlanned, part: Partition) -> Change:
        """A row that is ready for its pool; one that no pool may see or hold is buried at once."""
        tokens, now_ms = planned.input_tokens + planned.max_output_tokens, part.now_ms
        lane = self._router.lane(planned.pipeline_digest, planned.batch_id, planned.deadline_at_ms, part)
        placed = self._router.place(planned.pipeline_digest, planned.dataset_id, tokens, lane)
        pool = placed if isinstance(placed, str) else None
        if before is None:
            row = items.start(planned, pool=pool, now_ms=now_ms)
        else:
            row = items.restart(before, planned, pool=pool, now_ms=now_ms)
        return Change(row=row) if isinstance(placed, str) else self._bury(row, placed, row.totals, now_ms)

    # judgements

    def on_attempt_judged(self, judged: AttemptJudged, part: Partition) -> Decision:
        """An attempt was answered, failed, or was never made."""
        row = part.table(ItemStateRow).get(judged.item_key)
        if row is None:
            return NOTHING
        attempt = judged.attempt
        if attempt.cost_nano_usd is None and not attempt.reserved_nano_usd:  # of an answer that could not be read
            attempt = replace(attempt, reserved_nano_usd=pools.reservation_nano_usd(self._config, row, part.now_ms))
        if is_current(row, attempt):
            ruling = self._rule(row, judged, part.now_ms)
            totals = account.charge(row.totals, attempt, is_retry=row.tries > 0)
            self._take_note(row, attempt, part)
        else:
            given_up = late(row, judged)
            if given_up is None:
                return self._repeated(ATTEMPT_JUDGED)
            ruling, totals = given_up, account.charge_late(row.totals, attempt, row.payer)
        change = outcome.apply(
            row,
            ruling,
            waiters=fence.rank(row.waiters, self._control_of),
            totals=totals,
            repair=self._repair(ruling, judged),
            now_ms=part.now_ms,
            control_of=self._control_of,
        )
        return self._decide(part, row, change)

    def _take_note(self, row: ItemStateRow, attempt: AttemptAnswered, part: Partition) -> None:
        conduct = self._backlogs[part.number].conduct
        if conduct.answered(row.dataset_id, attempt.failure, minted_at_ms=attempt.minted_at_ms):
            extra = {"action": "tenant_slowed", "dataset": row.dataset_id, "partition": part.number}
            log.warning("tenant slowed, its prompts are filtered again and again", extra=extra)

    def _rule(self, row: ItemStateRow, judged: AttemptJudged, now_ms: int) -> Ruling:
        verdict = judged.verdict
        if verdict is not None and verdict.kind is VerdictKind.ACCEPTED:
            return accepted(judged, verdict)
        try:
            pipeline = self._pipelines.get(row.pipeline_digest)
            headroom_tokens = self._router.headroom_tokens(row)
        except (BlobMissing, ValidationError) as error:
            raise ContractViolation(f"pipeline {row.pipeline_digest} of {row.job_id}: {error}") from error
        return judge(
            row,
            judged,
            rules=Rules(
                attempts=pipeline.limits.attempts,
                repairs=pipeline.repair.attempts,
                retry=self._config.retry,
                mends=pipeline.embedding is None,
            ),
            headroom_tokens=headroom_tokens,
            now_ms=now_ms,
            jitter=self._random.random(),
        )

    def _repair(self, ruling: Ruling, judged: AttemptJudged) -> Repair | None:
        """The answer that is to be mended, from the message or its blob."""
        if not isinstance(ruling, Mend):
            return None
        attempt = judged.attempt
        raw = b"" if attempt.output is None else attempt.output.encode()
        if attempt.output is None and attempt.output_digest is not None:
            try:
                raw = self._blobs.get(attempt.output_digest)
            except BlobMissing as error:
                raise ContractViolation(f"answer {attempt.output_digest} of {judged.item_key}: {error}") from error
        return Repair(output=raw[:REPAIR_BYTES].decode(errors="ignore"), problem=ruling.problem)

    # records that could not be read

    def on_quarantined(self, topic: str, headers: Mapping[str, str], reason: str, part: Partition) -> Decision:
        """Buries the item of a record that could not be handled, so that its batch does not wait for ever."""
        failure = pools.internal("quarantined", f"a record of {topic} could not be handled; see {topic}-dlq")
        row = part.table(ItemStateRow).get(headers.get("item", ""))
        if topic == ITEM_PLANNED.name:
            return self._bury_plan(headers, row, failure, part)
        if topic != ATTEMPT_JUDGED.name or row is None or row.state is not ItemState.DISPATCHED:
            return NOTHING
        reserved = pools.reservation_nano_usd(self._config, row, part.now_ms)
        totals = account.with_unknown(row.totals, reserved)
        return self._decide(part, row, self._bury(row, failure, totals, part.now_ms))

    def _bury_plan(
        self, headers: Mapping[str, str], row: ItemStateRow | None, failure: Failure, part: Partition
    ) -> Decision:
        control = self._control_of(headers.get("batch", ""))
        planned = None if control is None else plan_of(headers, control, self._blobs, self._pipelines)
        if planned is None:
            log.error(
                "quarantined plan cannot be settled",
                extra={
                    "action": "quarantine_unsettled",
                    "batch": headers.get("batch"),
                    "item": headers.get("item"),
                    "ordinal": headers.get("ordinal"),
                },
            )
            return NOTHING
        if fence.standing(planned.generation, control) is fence.Standing.DEAD:
            return NOTHING
        if items.classify(row, planned) is Admission.REPEATED:
            return NOTHING
        if row is not None:
            return self._decide(part, row, outcome.refuse(row, planned, failure, now_ms=part.now_ms))
        fresh = items.start(planned, pool=None, now_ms=part.now_ms)
        return self._decide(part, None, self._bury(fresh, failure, fresh.totals, part.now_ms))

    # common

    def _decide(self, part: Partition, before: ItemStateRow | None, change: Change) -> Decision:
        self._backlogs[part.number].moved(before, change.row)
        for settled in change.settled:
            metrics.count("items_settled", outcome=settled.outcome)
        failure = change.row.failure
        if failure is not None and change.row.state is ItemState.DEAD_LETTER:
            log.warning(
                "item dead-lettered",
                extra={
                    "action": "item_dead_lettered",
                    "item": change.row.item_key,
                    "job": change.row.job_id,
                    "failure_class": failure.failure_class.value,
                    "signal": failure.signal,
                },
            )
        return Decision(put=(change.row,), send=change.settled)

    def _repeated(self, topic: Topic) -> Decision:
        metrics.count("duplicates_suppressed", topic=topic.name)
        return NOTHING

    def _bury(self, row: ItemStateRow, failure: Failure, totals: Totals, now_ms: int) -> Change:
        return outcome.conclude(
            row,
            buried(failure),
            waiters=fence.rank(row.waiters, self._control_of),
            totals=totals,
            now_ms=now_ms,
            control_of=self._control_of,
        )
