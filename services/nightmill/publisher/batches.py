"""What an event means for a batch: the publisher's decisions over one `PublicationRow` (M2, E10, E11).

Cancel and publish are decided here and nowhere else, so they cannot race: once the intent to switch is recorded a
cancel does nothing, and a cancelled batch never gets an intent. Repeats are recognised before a state is advanced.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from nightmill.kernel.domain.lifecycle import (
    BATCH_MOVES,
    ENDED_BATCH,
    BatchEvent,
    BatchState,
    Command,
    ControlState,
    advance_batch,
)
from nightmill.kernel.wire.messages import BatchSealed, JobCommanded, OutcomeCounts, PublicationRow
from nightmill.kernel.wire.totals import NO_TOTALS
from nightmill.kernel.wire.values import replace
from nightmill.publisher.accounting import accounted, missing, no_counts
from nightmill.publisher.gates import GateResult, objection

_REMEMBERED_COMMANDS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """What follows from an event for one batch."""

    row: PublicationRow
    control: ControlState | None = None  #: to be told to planner, dispatcher and gateway
    notice: bool = False  #: a `job-completed` goes out
    restart: bool = False  #: a new generation: the accounting is copied, what is open is selected
    switch: bool = False  #: readers may be switched as soon as the dataset has no open intent
    ignored: str | None = None  #: why a command changed nothing


def open_row(batch_id: str, job_id: str, dataset_id: str, now_ms: int) -> PublicationRow:
    """A batch of which nothing is known yet but its ids."""
    return PublicationRow(
        batch_id=batch_id,
        job_id=job_id,
        dataset_id=dataset_id,
        generation=1,
        state=BatchState.CREATED,
        counts=no_counts(),
        totals=NO_TOTALS,
        approved=False,
        commands=(),
        opened_at_ms=now_ms,
        updated_at_ms=now_ms,
    )


def planned_of(row: PublicationRow) -> int:
    """Items to account for; 0 while the plan is not known."""
    return 0 if row.sealed is None else row.sealed.planned


def worst_of_one(row: PublicationRow) -> int:
    """What an item costs at the most, on average over the plan; 0 where the plan knows no price."""
    worst = None if row.sealed is None else row.sealed.worst_cost_nano_usd
    return 0 if worst is None else -(-worst // max(planned_of(row), 1))


def complete(row: PublicationRow) -> bool:
    """Whether every planned item is accounted for."""
    return row.sealed is not None and row.sealed.refusal is None and accounted(row.counts) == row.sealed.planned


def takes_settlements(row: PublicationRow, *, switching: bool) -> bool:
    """Whether settlements of the row's generation still count: not once it ended or its switch is intended."""
    return row.state not in ENDED_BATCH and row.sealed is not None and not switching


def takes_costs(row: PublicationRow) -> bool:
    """Whether late settlements of the row's generation are charged, although their outcomes count nowhere.

    The dispatcher may have settled items before it heard of a cancel, and it charges no call twice.
    """
    return row.state is BatchState.CANCELLED and row.sealed is not None


def sealed(row: PublicationRow | None, message: BatchSealed, now_ms: int) -> Next | None:
    """The planner froze or refused a batch. None: it is known already."""
    if row is not None and row.sealed is not None:
        return None
    opened = row or open_row(message.batch_id, message.job_id, message.dataset_id, now_ms)
    known = replace(opened, sealed=message, updated_at_ms=now_ms)
    if known.state is BatchState.CANCELLED:
        return Next(row=known, control=None if message.refusal else ControlState.CANCELLED)
    if message.refusal is not None:
        state = advance_batch(BatchState.CREATED, BatchEvent.REFUSE)
        return Next(row=replace(known, state=state, reason=message.refusal.message, ended_at_ms=now_ms), notice=True)
    state = advance_batch(BatchState.CREATED, BatchEvent.SEAL)
    return Next(row=replace(known, state=state, reason=None), control=ControlState.RUNNING)


def unreadable(row: PublicationRow, reason: str, now_ms: int) -> Next | None:
    """The plan of a batch was quarantined: a person must look, nothing hangs. None: a plan is known already."""
    if row.sealed is not None or row.state is not BatchState.CREATED:
        return None
    text = f"its plan could not be read: {reason}; mend the record in batch-sealed-dlq and replay it, or cancel"
    return Next(row=replace(row, state=BatchState.HELD, reason=text, updated_at_ms=now_ms), notice=True)


def command(row: PublicationRow | None, order: JobCommanded, *, switching: bool, now_ms: int) -> Next | None:
    """A person's command; `switching`: the dataset's intent names this batch.

    None: the same command was applied before, or there is no such batch. A cancel may come before the plan.
    """
    if row is None and order.command is not Command.CANCEL:
        return None
    known = row or open_row(order.batch_id, order.job_id, order.dataset_id, now_ms)
    if order.command_id in known.commands:
        return None
    commands = (*known.commands, order.command_id)[-_REMEMBERED_COMMANDS:]
    noted = replace(known, commands=commands, updated_at_ms=now_ms)
    match order.command:
        case Command.CANCEL:
            return _cancel(noted, order.reason, switching, now_ms)
        case Command.RESUME:
            return _resume(noted)
        case Command.APPROVE:
            return _approve(noted)


def started(row: PublicationRow) -> PublicationRow:
    """Items were settled for the row's generation."""
    return replace(row, state=advance_batch(row.state, BatchEvent.SETTLE)) if row.state in _SETTLING else row


def overspent(row: PublicationRow, now_ms: int) -> Next | None:
    """The spend stop (E10): more was spent than the budget allows. None while it was not, or the batch stands still.

    A cost that is not known counts as spent, with what was reserved for it.
    """
    budget = None if row.sealed is None else row.sealed.budget_nano_usd
    spent, reserved = row.totals.cost_nano_usd, row.totals.reserved_nano_usd
    if budget is None or spent + reserved <= budget or (row.state, BatchEvent.HOLD) not in BATCH_MOVES:
        return None
    unknown = f" and {_usd(reserved)} reserved for {row.totals.unknown_attempts} unknown costs" if reserved else ""
    reason = (
        f"budget: {_usd(spent)} spent{unknown} of {_usd(budget)}; "
        "resume goes on and stops at the next cost, cancel ends the job"
    )
    return Next(row=_held(row, reason, now_ms), control=ControlState.HELD, notice=True)


def conclude(row: PublicationRow, results: Sequence[GateResult], disagreement: str | None, now_ms: int) -> Next | None:
    """Every item is accounted for: switch, or hold with the gates' figures. None: it stands as before.

    A person's approval passes over the gates, never over an accounting that does not add up.
    """
    reason = disagreement or (None if row.approved else objection(results))
    if reason is not None and row.state is BatchState.HELD and row.reason == reason:
        return None
    validating = row
    if row.state is not BatchState.VALIDATING:
        validating = replace(row, state=advance_batch(row.state, BatchEvent.COMPLETE), reason=None)
    if reason is None:
        return Next(row=replace(validating, updated_at_ms=now_ms), switch=True)
    return Next(row=_held(validating, reason, now_ms), notice=True)


def unpublishable(row: PublicationRow, reason: str, now_ms: int) -> Next:
    """The target could not assemble the version: the switch is withdrawn and a person must look."""
    return Next(row=replace(_held(row, reason, now_ms), approved=False), notice=True)


def published_state(counts: OutcomeCounts) -> BatchState:
    """State a batch is published in: partial when any item is missing from what readers see (Q6)."""
    return BatchState.PARTIAL_FAILED if missing(counts) else BatchState.PUBLISHED


def published(row: PublicationRow, version: int, location: str, now_ms: int) -> Next:
    """Readers see the batch."""
    partial = published_state(row.counts) is BatchState.PARTIAL_FAILED
    event = BatchEvent.PUBLISH_PARTIAL if partial else BatchEvent.PUBLISH
    reason = f"published without {missing(row.counts)} of {planned_of(row)} items" if partial else None
    state = advance_batch(row.state, event)
    ended = replace(
        row,
        state=state,
        reason=reason,
        version=version,
        location=location,
        ended_at_ms=now_ms,
        updated_at_ms=now_ms,
    )
    return Next(row=ended, notice=True)


_SETTLING = frozenset(state for state, event in BATCH_MOVES if event is BatchEvent.SETTLE)


def _cancel(row: PublicationRow, reason: str | None, switching: bool, now_ms: int) -> Next:
    if switching:
        return Next(row=row, ignored="its switch is already committed")
    if row.state in ENDED_BATCH:
        return Next(row=row, ignored=f"it is {row.state} already")
    state = advance_batch(row.state, BatchEvent.CANCEL)
    cancelled = replace(row, state=state, reason=reason, ended_at_ms=now_ms)
    return Next(row=cancelled, control=None if row.sealed is None else ControlState.CANCELLED, notice=True)


def _resume(row: PublicationRow) -> Next:
    if row.sealed is None and row.state is BatchState.CANCELLED:
        # nothing was released yet: the cancel is taken back and the plan decides when it comes
        return Next(row=replace(row, state=BatchState.CREATED, reason=None, ended_at_ms=None))
    if (row.state, BatchEvent.RESUME) not in BATCH_MOVES:
        return Next(row=row, ignored=f"a batch that is {row.state} cannot be resumed")
    if row.sealed is None or row.sealed.refusal is not None:
        return Next(row=row, ignored="it has no plan to go on with; submit the job again")
    following = replace(
        row,
        generation=row.generation + 1,
        state=advance_batch(row.state, BatchEvent.RESUME),
        reason=None,
        approved=False,
        version=None,
        location=None,
        ended_at_ms=None,
    )
    return Next(row=following, control=ControlState.RUNNING, restart=True)


def _approve(row: PublicationRow) -> Next:
    if row.state is not BatchState.HELD:
        return Next(row=row, ignored=f"a batch that is {row.state} needs no approval")
    if not complete(row):
        return Next(row=row, ignored="not every item is accounted for; resume it first")
    return Next(row=replace(row, approved=True))


def _held(row: PublicationRow, reason: str, now_ms: int) -> PublicationRow:
    return replace(row, state=advance_batch(row.state, BatchEvent.HOLD), reason=reason, updated_at_ms=now_ms)


def _usd(nano: int) -> str:
    whole, rest = divmod(nano, 1_000_000_000)
    return f"{whole}.{rest:09d}".rstrip("0").rstrip(".") + " USD"
