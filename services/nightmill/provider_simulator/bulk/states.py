"""The states of a batch and the moves between them. An illegal move raises."""

from __future__ import annotations

from enum import StrEnum

from nightmill.provider_simulator.reply import Side


class Status(StrEnum):
    """All states of both providers."""

    VALIDATING = "validating"  # OpenAI: created; its lines are read
    FAILED = "failed"  # OpenAI: the input was no good; nothing ran
    IN_PROGRESS = "in_progress"  # lines run; Anthropic's batches begin here
    FINALIZING = "finalizing"  # OpenAI: all lines ran, the files are made
    COMPLETED = "completed"
    EXPIRED = "expired"  # OpenAI: the window ended before the lines did
    CANCELLING = "cancelling"  # OpenAI: a client asked; lines in flight end
    CANCELLED = "cancelled"
    CANCELING = "canceling"  # Anthropic's spelling
    ENDED = "ended"  # Anthropic's one end


_S = Status
GRAPHS: dict[Side, dict[Status, frozenset[Status]]] = {
    Side.OPENAI: {
        _S.VALIDATING: frozenset({_S.IN_PROGRESS, _S.FAILED, _S.CANCELLING, _S.EXPIRED}),
        _S.IN_PROGRESS: frozenset({_S.FINALIZING, _S.EXPIRED, _S.CANCELLING}),
        _S.FINALIZING: frozenset({_S.COMPLETED, _S.EXPIRED, _S.CANCELLING}),
        _S.CANCELLING: frozenset({_S.CANCELLED, _S.COMPLETED}),  # completed: the cancel came too late
        _S.FAILED: frozenset(),
        _S.COMPLETED: frozenset(),
        _S.EXPIRED: frozenset(),
        _S.CANCELLED: frozenset(),
    },
    Side.ANTHROPIC: {
        _S.IN_PROGRESS: frozenset({_S.CANCELING, _S.ENDED}),
        _S.CANCELING: frozenset({_S.ENDED}),
        _S.ENDED: frozenset(),
    },
}
CANCELLING: dict[Side, Status] = {Side.OPENAI: _S.CANCELLING, Side.ANTHROPIC: _S.CANCELING}


def check_move(side: Side, before: Status, after: Status) -> None:
    """Raises `ValueError` unless the graph has this move."""
    if after not in GRAPHS[side][before]:
        raise ValueError(f"a batch of {side} cannot go from {before} to {after}")


def terminal(side: Side, status: Status) -> bool:
    """Whether nothing more will happen."""
    return not GRAPHS[side][status]
