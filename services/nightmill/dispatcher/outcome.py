"""Carries a ruling over to the item's row and its waiters (M3, E9, E11).

An item that ends is settled once for each live waiter; the row's account is charged, whole, to the payer's settlement.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from nightmill.dispatcher.account import owed_by
from nightmill.dispatcher.fence import ControlOf
from nightmill.dispatcher.items import waiter_of
from nightmill.dispatcher.judge import CallAgain, End, Mend, Requeue, Ruling
from nightmill.dispatcher.settlement import next_revision, settled_at_once, settlement, told_of
from nightmill.kernel.domain.lifecycle import ItemEvent, ItemOutcome, advance_item
from nightmill.kernel.wire.messages import (
    Failure,
    ItemPlanned,
    ItemSettled,
    ItemStateRow,
    Repair,
    Totals,
    Waiter,
)
from nightmill.kernel.wire.totals import NO_TOTALS
from nightmill.kernel.wire.values import replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The row to put, and whom to tell."""

    row: ItemStateRow
    settled: Sequence[ItemSettled] = ()


def apply(
    row: ItemStateRow,
    ruling: Ruling,
    *,
    waiters: tuple[Waiter, ...],
    totals: Totals,
    repair: Repair | None,
    now_ms: int,
    control_of: ControlOf,
) -> Change:
    """What a ruling on a dispatched item changes. `waiters` are its live ones, ranked; `repair` goes with `Mend`."""
    if isinstance(ruling, End):
        return conclude(row, ruling, waiters=waiters, totals=totals, now_ms=now_ms, control_of=control_of)
    if not waiters:
        return Change(row=cancel(row, totals=totals, now_ms=now_ms))
    match ruling:
        case CallAgain():
            return Change(
                row=replace(
                    row,
                    state=advance_item(row.state, ItemEvent.RETRY),
                    waiters=waiters,
                    tries=ruling.at.tries,
                    max_output_tokens=ruling.max_output_tokens,
                    due_at_ms=ruling.at.due_at_ms,
                    failure=ruling.failure,
                    shard_id=None,
                    totals=totals,
                )
            )
        case Mend():
            return Change(
                row=replace(
                    row,
                    state=advance_item(row.state, ItemEvent.REPAIR),
                    waiters=waiters,
                    tries=row.tries + 1,
                    repairs=row.repairs + 1,
                    repair=repair,
                    max_output_tokens=ruling.max_output_tokens,
                    due_at_ms=None,
                    failure=ruling.failure,
                    verdict=ruling.verdict,
                    shard_id=None,
                    totals=totals,
                )
            )
        case Requeue():
            return Change(
                row=replace(
                    row,
                    state=advance_item(row.state, ItemEvent.REQUEUE),
                    waiters=waiters,
                    due_at_ms=None,
                    shard_id=None,
                    totals=totals,
                )
            )


def conclude(
    row: ItemStateRow,
    end: End,
    *,
    waiters: tuple[Waiter, ...],
    totals: Totals,
    now_ms: int,
    control_of: ControlOf,
) -> Change:
    """Ends the item, or parks it for review, and settles it for the live `waiters`.

    Waiters of a parked item stay, to be told of the decision; those that were told of the parking are not told twice.
    """
    parked = end.outcome is ItemOutcome.IN_REVIEW
    to_tell = [(waiter, next_revision(row.settled, waiter)) for waiter in waiters]
    if parked:
        to_tell = [(waiter, revision) for waiter, revision in to_tell if revision == 1]
    payer = None if row.payer is None else row.payer.batch_id
    charged = any(waiter.batch_id == payer for waiter, _ in to_tell)
    ended = replace(
        row,
        state=advance_item(row.state, end.event),
        waiters=waiters if parked else (),
        settled=told_of(row.settled, to_tell),
        totals=NO_TOTALS if charged else totals,
        shard_id=None,
        due_at_ms=None,
        repair=None,
        failure=end.failure,
        verdict=end.verdict,
        outcome=end.outcome,
        output=end.output,
        output_digest=end.output_digest,
        attempt_id=end.attempt_id,
        model=end.model,
        # a parked item that nobody waits for is not kept for ever
        ended_at_ms=None if parked and waiters else now_ms,
    )
    return Change(
        row=ended,
        settled=[
            settlement(ended, end.outcome, waiter, revision, payer, totals, now_ms, control_of)
            for waiter, revision in to_tell
        ],
    )


def reuse(row: ItemStateRow, planned: ItemPlanned, *, now_ms: int) -> Change:
    """Settles an ended or parked item at once for one more batch.

    It pays nothing, unless it caused calls itself that ended while nobody live was there to be charged: a resumed batch
    pays for what was under way when it was cancelled.
    """
    if row.outcome is None:
        raise ValueError(f"item {row.item_key} in state {row.state} has no outcome to reuse")
    waiter, owed = waiter_of(planned), owed_by(row, planned.batch_id)
    paid = owed != NO_TOTALS
    told = replace(row, settled=told_of(row.settled, [(waiter, 1)]), totals=NO_TOTALS if paid else row.totals)
    if row.outcome is ItemOutcome.IN_REVIEW:
        told = replace(told, waiters=(*_others(row, planned), waiter), ended_at_ms=None)
    settled = settled_at_once(row, planned, row.outcome, reused=not paid, totals=owed, now_ms=now_ms)
    return Change(row=told, settled=[settled])


def refuse(row: ItemStateRow, planned: ItemPlanned, failure: Failure, *, now_ms: int) -> Change:
    """Settles one batch's plan as dead, whatever becomes of the item for others."""
    told = replace(row, settled=told_of(row.settled, [(waiter_of(planned), 1)]))
    nothing = replace(row, failure=failure, verdict=None, output=None, output_digest=None, attempt_id=None, model=None)
    dead = settled_at_once(nothing, planned, ItemOutcome.DEAD_LETTER, reused=False, totals=NO_TOTALS, now_ms=now_ms)
    return Change(row=told, settled=[dead])


def _others(row: ItemStateRow, planned: ItemPlanned) -> tuple[Waiter, ...]:
    return tuple(other for other in row.waiters if other.batch_id != planned.batch_id)


def cancel(row: ItemStateRow, *, totals: Totals, now_ms: int) -> ItemStateRow:
    """The row when nobody live waits for it any more. Nobody is told: the publisher decided it."""
    return replace(
        row,
        state=advance_item(row.state, ItemEvent.CANCEL),
        waiters=(),
        totals=totals,
        shard_id=None,
        due_at_ms=None,
        ended_at_ms=now_ms,
    )
