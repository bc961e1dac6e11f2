"""Decisions about starting calls. Pure.

A call may be handed to the HTTP side when its batch was not cancelled, its pool is not paused and its lease has room.
A few more than there are slots are handed over, as many as may come free until the poll thread looks again.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from nightmill.kernel.domain.lifecycle import ControlState
from nightmill.kernel.wire.messages import BatchControlled, ShardAttempt

#: the poll thread may be away for a step and a commit
AWAY_S = 0.5
#: calls handed over in one step: bounds the step's length, which is mostly rendering
STARTS_PER_STEP = 400
#: one call is marked ahead for so many slots
MARKED_AHEAD = 4


class Move(StrEnum):
    """What to do with the first order of a queue."""

    START = "start"
    CALL_OFF = "call_off"  #: its batch was cancelled
    WAIT = "wait"  #: its lease has no room


class Amounts(NamedTuple):
    """What a lease lets start. A plain copy: it is counted down call by call."""

    requests: int
    input_tokens: int
    output_tokens: int

    def holds(self, attempt: ShardAttempt) -> bool:
        """Whether this attempt fits, by its estimates."""
        return (
            self.requests >= 1
            and self.input_tokens >= attempt.input_tokens
            and self.output_tokens >= attempt.max_output_tokens
        )

    def less(self, attempts: Sequence[ShardAttempt]) -> "Amounts":
        """What is left after one call for these."""
        return Amounts(
            requests=self.requests - 1,
            input_tokens=self.input_tokens - sum(attempt.input_tokens for attempt in attempts),
            output_tokens=self.output_tokens - sum(attempt.max_output_tokens for attempt in attempts),
        )


def next_move(attempt: ShardAttempt, control: BatchControlled | None, lease: Amounts) -> Move:
    """What to do with an attempt now, given what is left of the lease."""
    if called_off(attempt, control):
        return Move.CALL_OFF
    return Move.START if lease.holds(attempt) else Move.WAIT


def called_off(attempt: ShardAttempt, control: BatchControlled | None) -> bool:
    """Whether the attempt's batch is cancelled. An older word than the attempt's own generation says nothing."""
    return control is not None and control.state is ControlState.CANCELLED and control.generation >= attempt.generation


def room(*, slots: int, handed_over: int, finished_per_s: float) -> int:
    """How many more calls to hand over, given the calls that are with the HTTP side and have not come back."""
    return max(0, slots + ahead(slots=slots, finished_per_s=finished_per_s) - handed_over)


def ahead(*, slots: int, finished_per_s: float) -> int:
    """How many calls may end while the poll thread is away."""
    return max(slots, int(finished_per_s * AWAY_S)) if slots else 0


def marked_ahead(slots: int) -> int:
    """How many calls are marked before there is a slot for them: as many as come free while the disk writes a mark.

    A crash leaves them in doubt, too. The slots of a provider that answers within half a second come free so quickly.
    """
    return slots // MARKED_AHEAD


def finish_rate(before_per_s: float, finished: int, elapsed_ms: int) -> float:
    """Calls finished per second, smoothed over the last few looks."""
    return (before_per_s + finished * 1000 / elapsed_ms) / 2
