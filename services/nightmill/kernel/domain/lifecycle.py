"""States of batches, items, attempts and shards, and the moves between them (M1, M2).

One table `{(state, event): next}` per machine. An illegal move raises `IllegalMove`. Whether an event is stale or
repeated is recognised by the caller *before* it asks for the next state, so that a repeat changes nothing.
"""

from enum import StrEnum
from typing import TypeVar


class Lane(StrEnum):
    """How work reaches a provider."""

    REALTIME = "realtime"
    BULK = "bulk"


class Reuse(StrEnum):
    """Which earlier outcome of an equal key may be settled at once for a new waiter."""

    ACCEPTED = "accepted"  #: a new batch
    FINAL = "final"  #: the unselected rows of a resume: any final outcome
    NONE = "none"  #: the selection of a rerun


class InputFormat(StrEnum):
    """Formats of an uploaded input."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


class Command(StrEnum):
    """What a person may ask of a job."""

    CANCEL = "cancel"
    RESUME = "resume"
    APPROVE = "approve"


class ControlState(StrEnum):
    """What the publisher allows a batch's generation to do."""

    RUNNING = "running"
    HELD = "held"
    CANCELLED = "cancelled"


class PlanPhase(StrEnum):
    """Where the planner stands with a batch."""

    FREEZING = "freezing"  #: rows are being read into blocks
    MERGING = "merging"  #: all rows frozen; duplicates are looked for and the plan is admitted or refused
    SEALED = "sealed"  #: admitted; waits for the publisher's word
    REFUSED = "refused"  #: ends here
    RELEASING = "releasing"  #: blocks go out while the dispatcher keeps up
    RELEASED = "released"  #: every block of the generation is out
    STOPPED = "stopped"  #: held or cancelled; a newer word of the publisher moves it on


class BatchState(StrEnum):
    """State of a batch, per generation."""

    CREATED = "created"  #: a job was submitted; the planner moves it on
    PLANNING = "planning"  #: the planner freezes the input
    REFUSED = "refused"  #: ends here: price, budget, deadline or input forbid it
    QUEUED = "queued"  #: sealed, and every new generation starts here; the first settlement moves it on
    RUNNING = "running"  #: items are being settled
    HELD = "held"  #: budget, gate or review: a person decides (resume, approve, cancel)
    VALIDATING = "validating"  #: every item is accounted for; gates are checked and the switch is intended
    PUBLISHED = "published"  #: readers see it
    PARTIAL_FAILED = "partial_failed"  #: readers see it under the pipeline's partial contract
    CANCELLED = "cancelled"  #: by a person; a new generation starts it again


class BatchEvent(StrEnum):
    """What happens to a batch."""

    PLAN = "plan"
    REFUSE = "refuse"
    SEAL = "seal"
    SETTLE = "settle"
    HOLD = "hold"
    RESUME = "resume"
    COMPLETE = "complete"
    PUBLISH = "publish"
    PUBLISH_PARTIAL = "publish_partial"
    CANCEL = "cancel"


class ItemState(StrEnum):
    """State of an item. Only the dispatcher starts and ends one."""

    READY = "ready"  #: planned, or due again; packing moves it on
    DISPATCHED = "dispatched"  #: its current attempt is in a shard; a judgement moves it on
    RETRY_WAIT = "retry_wait"  #: waits until due_at_ms
    REPAIR = "repair"  #: its next attempt is a repair call; packing moves it on
    IN_REVIEW = "in_review"  #: settled as revision 1; a person's decision ends it
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    DEAD_LETTER = "dead_letter"
    CANCELLED = "cancelled"  #: no live waiter; READY again on a new one


class ItemEvent(StrEnum):
    """What happens to an item."""

    DISPATCH = "dispatch"
    RETRY = "retry"
    REPAIR = "repair"
    DUE = "due"
    REQUEUE = "requeue"
    ACCEPT = "accept"
    REJECT = "reject"
    PARK = "park"
    BURY = "bury"
    CANCEL = "cancel"
    PLAN = "plan"


class ItemOutcome(StrEnum):
    """How an item was settled for a waiter."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    DEAD_LETTER = "dead_letter"
    IN_REVIEW = "in_review"
    CANCELLED = "cancelled"


class AttemptState(StrEnum):
    """What is known of one upstream call."""

    MINTED = "minted"
    NOT_SENT = "not_sent"  #: surely never left; the same attempt may still be made
    UNKNOWN = "unknown"  #: may have been done and billed
    ANSWERED = "answered"
    FAILED = "failed"


class ShardState(StrEnum):
    """State of a shard in the gateway."""

    ACCEPTED = "accepted"  #: its row is committed; calls may start
    RUNNING = "running"
    DONE = "done"


class ProviderBatchState(StrEnum):
    """State of one submission to a provider's Batch API. Only the gateway moves it."""

    INTENT = "intent"  #: what goes together is decided; nothing has been created at the provider
    ARMED = "armed"  #: the input is there; a create may leave, until a fixed time after this
    SUBMITTED = "submitted"  #: the provider's id is known; polled until it ends
    ENDED = "ended"  #: in whatever way; its results are fetched and published
    HARVESTED = "harvested"  #: every attempt has its answer; its files are removed
    WITHDRAWN = "withdrawn"  #: it surely never ran; its attempts wait for another submission


class ProviderBatchEvent(StrEnum):
    """What happens to a submission."""

    ARM = "arm"
    SUBMIT = "submit"
    END = "end"
    HARVEST = "harvest"
    WITHDRAW = "withdraw"


class VerdictKind(StrEnum):
    """The validator's word on one answer."""

    ACCEPTED = "accepted"
    REPAIRABLE = "repairable"
    REVIEW = "review"
    REJECTED = "rejected"


class IllegalMove(Exception):
    """An event arrived in a state that has no such move: a defect, never a user's mistake."""


_B, _BE, _I, _IE = BatchState, BatchEvent, ItemState, ItemEvent

_OPEN_BATCH = (_B.CREATED, _B.PLANNING, _B.QUEUED, _B.RUNNING, _B.HELD, _B.VALIDATING)

BATCH_MOVES: dict[tuple[BatchState, BatchEvent], BatchState] = {
    (_B.CREATED, _BE.PLAN): _B.PLANNING,
    (_B.CREATED, _BE.REFUSE): _B.REFUSED,
    (_B.CREATED, _BE.SEAL): _B.QUEUED,
    (_B.PLANNING, _BE.REFUSE): _B.REFUSED,
    (_B.PLANNING, _BE.SEAL): _B.QUEUED,
    (_B.QUEUED, _BE.SETTLE): _B.RUNNING,
    (_B.QUEUED, _BE.COMPLETE): _B.VALIDATING,
    (_B.QUEUED, _BE.HOLD): _B.HELD,
    (_B.RUNNING, _BE.SETTLE): _B.RUNNING,
    (_B.RUNNING, _BE.HOLD): _B.HELD,
    (_B.RUNNING, _BE.COMPLETE): _B.VALIDATING,
    (_B.HELD, _BE.SETTLE): _B.HELD,
    (_B.HELD, _BE.RESUME): _B.QUEUED,
    (_B.HELD, _BE.COMPLETE): _B.VALIDATING,
    (_B.VALIDATING, _BE.HOLD): _B.HELD,
    (_B.VALIDATING, _BE.PUBLISH): _B.PUBLISHED,
    (_B.VALIDATING, _BE.PUBLISH_PARTIAL): _B.PARTIAL_FAILED,
    (_B.CANCELLED, _BE.RESUME): _B.QUEUED,
    (_B.PARTIAL_FAILED, _BE.RESUME): _B.QUEUED,
    **{(state, _BE.CANCEL): _B.CANCELLED for state in _OPEN_BATCH},
}

_WAITING_ITEM = (_I.READY, _I.RETRY_WAIT, _I.REPAIR, _I.DISPATCHED)

ITEM_MOVES: dict[tuple[ItemState, ItemEvent], ItemState] = {
    (_I.READY, _IE.DISPATCH): _I.DISPATCHED,
    (_I.REPAIR, _IE.DISPATCH): _I.DISPATCHED,
    (_I.RETRY_WAIT, _IE.DUE): _I.READY,
    (_I.DISPATCHED, _IE.RETRY): _I.RETRY_WAIT,
    (_I.DISPATCHED, _IE.REPAIR): _I.REPAIR,
    (_I.DISPATCHED, _IE.REQUEUE): _I.READY,
    (_I.DISPATCHED, _IE.ACCEPT): _I.ACCEPTED,
    (_I.DISPATCHED, _IE.REJECT): _I.REJECTED,
    (_I.DISPATCHED, _IE.PARK): _I.IN_REVIEW,
    (_I.IN_REVIEW, _IE.ACCEPT): _I.ACCEPTED,
    (_I.IN_REVIEW, _IE.REJECT): _I.REJECTED,
    (_I.CANCELLED, _IE.PLAN): _I.READY,
    # a late answer of an attempt that had been given up is kept: it was paid for
    **{(state, _IE.ACCEPT): _I.ACCEPTED for state in (_I.READY, _I.RETRY_WAIT, _I.REPAIR, _I.CANCELLED)},
    # a selected row of a rerun starts again whatever its end was
    **{(state, _IE.PLAN): _I.READY for state in (_I.ACCEPTED, _I.REJECTED, _I.DEAD_LETTER, _I.IN_REVIEW)},
    **{(state, _IE.BURY): _I.DEAD_LETTER for state in _WAITING_ITEM},
    **{(state, _IE.CANCEL): _I.CANCELLED for state in _WAITING_ITEM},
}

_P, _PE = ProviderBatchState, ProviderBatchEvent

PROVIDER_BATCH_MOVES: dict[tuple[ProviderBatchState, ProviderBatchEvent], ProviderBatchState] = {
    (_P.INTENT, _PE.ARM): _P.ARMED,
    (_P.ARMED, _PE.ARM): _P.ARMED,  # its time went by before the create was sent
    (_P.ARMED, _PE.SUBMIT): _P.SUBMITTED,
    (_P.SUBMITTED, _PE.END): _P.ENDED,
    (_P.ENDED, _PE.HARVEST): _P.HARVESTED,
    # nothing was created, or the provider refused the whole of it before any of it ran
    **{(state, _PE.WITHDRAW): _P.WITHDRAWN for state in (_P.INTENT, _P.ARMED, _P.SUBMITTED)},
}

ENDED_ITEM = frozenset({_I.ACCEPTED, _I.REJECTED, _I.DEAD_LETTER})
ENDED_BATCH = frozenset({_B.REFUSED, _B.PUBLISHED, _B.PARTIAL_FAILED, _B.CANCELLED})

_State = TypeVar("_State", BatchState, ItemState, ProviderBatchState)
_Event = TypeVar("_Event", BatchEvent, ItemEvent, ProviderBatchEvent)


def advance_batch(state: BatchState, event: BatchEvent) -> BatchState:
    """Next state of a batch. Raises `IllegalMove`."""
    return _advance(BATCH_MOVES, state, event)


def advance_item(state: ItemState, event: ItemEvent) -> ItemState:
    """Next state of an item. Raises `IllegalMove`."""
    return _advance(ITEM_MOVES, state, event)


def advance_provider_batch(state: ProviderBatchState, event: ProviderBatchEvent) -> ProviderBatchState:
    """Next state of a submission. Raises `IllegalMove`."""
    return _advance(PROVIDER_BATCH_MOVES, state, event)


def _advance(moves: dict[tuple[_State, _Event], _State], state: _State, event: _Event) -> _State:
    following = moves.get((state, event))
    if following is None:
        raise IllegalMove(f"no move {event!s} from state {state!s}")
    return following
