"""Admission of a planned item (M3, E11): is it new, known, already answered, or a repeat of what was said before?

The unit of idempotency is the item key; batches are waiters on it. Each batch waits at most once, under its newest
generation. What an earlier request left behind is settled at once where the plan's `reuse` allows it, so equal work of
two batches is paid once.
"""

from enum import StrEnum

from nightmill.dispatcher.account import owed_by
from nightmill.kernel.domain.lifecycle import ItemEvent, ItemState, Reuse, advance_item
from nightmill.kernel.wire.messages import ItemPlanned, ItemStateRow, Waiter
from nightmill.kernel.wire.totals import NO_TOTALS
from nightmill.kernel.wire.values import replace

_NO_DEADLINE_MS = 2**62

_WAITING = frozenset({ItemState.READY, ItemState.DISPATCHED, ItemState.RETRY_WAIT, ItemState.REPAIR})

#: Ends that a plan takes as they are. An item that waits for a person is not called again by a further batch: that
#: batch is told so, and of the decision too. A dead letter is never taken over: to plan it again is to try it again.
_REUSABLE: dict[Reuse, frozenset[ItemState]] = {
    Reuse.ACCEPTED: frozenset({ItemState.ACCEPTED, ItemState.IN_REVIEW}),
    Reuse.FINAL: frozenset({ItemState.ACCEPTED, ItemState.REJECTED, ItemState.IN_REVIEW}),
    Reuse.NONE: frozenset(),
}


class Admission(StrEnum):
    """What a plan means for an item."""

    REPEATED = "repeated"  #: this batch waits already or was told, under this generation or a newer one
    NEW = "new"  #: nothing is known of the key
    JOINED = "joined"  #: the item is on its way; one more batch waits for it
    REUSED = "reused"  #: an earlier outcome is settled at once
    RESTARTED = "restarted"  #: it had ended, but not so that this plan may take it


def classify(row: ItemStateRow | None, planned: ItemPlanned) -> Admission:
    """How `planned` is to be taken, given what is known of its key. The batch itself is known to be alive."""
    if row is None:
        return Admission.NEW
    if _heard_of(row, planned.batch_id, planned.generation):
        return Admission.REPEATED
    if row.state in _WAITING:
        return Admission.JOINED
    if row.state in _REUSABLE[planned.reuse]:
        return Admission.REUSED
    return Admission.RESTARTED


def _heard_of(row: ItemStateRow, batch_id: str, generation: int) -> bool:
    for told in row.settled:
        if told.batch_id == batch_id and told.generation >= generation:
            return True
    return any(waiter.batch_id == batch_id and waiter.generation >= generation for waiter in row.waiters)


def waiter_of(planned: ItemPlanned) -> Waiter:
    """The batch that a plan speaks for."""
    return Waiter(batch_id=planned.batch_id, generation=planned.generation, ordinal=planned.ordinal)


def start(planned: ItemPlanned, *, pool: str | None, now_ms: int) -> ItemStateRow:
    """The row of a new key, ready for `pool`."""
    return ItemStateRow(
        item_key=planned.item_key,
        state=ItemState.READY,
        job_id=planned.job_id,
        dataset_id=planned.dataset_id,
        source_id=planned.source_id,
        row=planned.row,
        pipeline_digest=planned.pipeline_digest,
        input_tokens=planned.input_tokens,
        max_output_tokens=planned.max_output_tokens,
        prefix=planned.prefix,
        priority=planned.priority,
        deadline_at_ms=planned.deadline_at_ms,
        waiters=(waiter_of(planned),),
        settled=(),
        ordinal=0,
        pool=pool,
        tries=0,
        repairs=0,
        overdue=0,
        totals=NO_TOTALS,
        planned_at_ms=now_ms,
    )


def restart(row: ItemStateRow, planned: ItemPlanned, *, pool: str | None, now_ms: int) -> ItemStateRow:
    """The row of an ended key that is called again, with a fresh retry budget.

    Attempt ordinals go on, for their ids are never used twice. After a cancel the item keeps its planning time, and so
    takes answers of its earlier attempts that come late; after any other end those answers are not wanted any more.
    What an earlier generation of the same batch caused and nobody was charged for stays on the account.
    """
    resumed = row.state is ItemState.CANCELLED
    same_payer = row.payer is not None and row.payer.batch_id == planned.batch_id
    return replace(
        start(planned, pool=pool, now_ms=row.planned_at_ms if resumed else now_ms),
        state=advance_item(row.state, ItemEvent.PLAN),
        waiters=(waiter_of(planned), *_without(row.waiters, planned.batch_id)),
        settled=row.settled,
        ordinal=row.ordinal,
        minted_at_ms=row.minted_at_ms,
        payer=row.payer if same_payer else None,
        totals=owed_by(row, planned.batch_id),
    )


def join(row: ItemStateRow, planned: ItemPlanned, *, lead_runs: bool) -> ItemStateRow:
    """The row with one more waiter; a newer generation of a batch takes the place of its older one.

    The new waiter leads when it is more urgent, or when calls may not start for the one that leads now
    (`lead_runs` false): then the item moves to the new batch's queue.
    """
    waiter = waiter_of(planned)
    replaces_lead = bool(row.waiters) and row.waiters[0].batch_id == planned.batch_id
    others = _without(row.waiters, planned.batch_id)
    leads = replaces_lead or not lead_runs or not others or _urgency(planned) < _urgency(row)
    same_payer = row.payer is not None and row.payer.batch_id == planned.batch_id
    return replace(
        row,
        waiters=(waiter, *others) if leads else (*others, waiter),
        priority=planned.priority if leads else row.priority,
        deadline_at_ms=planned.deadline_at_ms if leads else row.deadline_at_ms,
        payer=waiter if same_payer else row.payer,
    )


def _without(waiters: tuple[Waiter, ...], batch_id: str) -> tuple[Waiter, ...]:
    return tuple(waiter for waiter in waiters if waiter.batch_id != batch_id)


def _urgency(wanted: ItemPlanned | ItemStateRow) -> tuple[int, int]:
    deadline = _NO_DEADLINE_MS if wanted.deadline_at_ms is None else wanted.deadline_at_ms
    return -wanted.priority, deadline
