"""How a batch's plan begins, and what the publisher's word does to it (E11)."""

from nightmill.kernel.domain.lifecycle import ControlState, PlanPhase
from nightmill.kernel.wire.messages import BatchControlled, BatchPlanRow, JobSubmitted
from nightmill.kernel.wire.values import replace

#: planning is not over: there is nothing to release or to stop yet, and the publisher has not been told of the batch
_BEFORE_SEALING = frozenset({PlanPhase.FREEZING, PlanPhase.MERGING, PlanPhase.REFUSED})


def opened(job: JobSubmitted, batch: str, now_ms: int) -> BatchPlanRow:
    """The plan of a job that was just submitted: nothing is read yet."""
    return BatchPlanRow(
        batch_id=batch,
        job=job,
        phase=PlanPhase.FREEZING,
        cursor_row=0,
        cursor_bytes=0,
        blocks=0,
        planned=0,
        refused_rows=0,
        input_tokens=0,
        longest_input_tokens=0,
        max_output_tokens=0,
        generation=0,
        released_blocks=0,
        updated_at_ms=now_ms,
    )


def follow(row: BatchPlanRow, word: BatchControlled, now_ms: int) -> BatchPlanRow | None:
    """The row after the word; None for a stale or repeated one.

    A newer generation starts from its first block. The same generation, running again after it was held, goes on
    where it stopped.
    """
    if row.phase in _BEFORE_SEALING or _is_stale(row, word):
        return None
    running = word.state is ControlState.RUNNING
    if word.generation > row.generation:
        phase = PlanPhase.RELEASING if running else PlanPhase.STOPPED
        return replace(
            row, phase=phase, generation=word.generation, released_blocks=0, control=word, updated_at_ms=now_ms
        )
    if running and row.phase is PlanPhase.STOPPED:
        return replace(row, phase=PlanPhase.RELEASING, control=word, updated_at_ms=now_ms)
    if not running and row.phase in (PlanPhase.RELEASING, PlanPhase.RELEASED):
        return replace(row, phase=PlanPhase.STOPPED, control=word, updated_at_ms=now_ms)
    return None


def _is_stale(row: BatchPlanRow, word: BatchControlled) -> bool:
    if word.generation < row.generation:
        return True
    known = row.control
    return known is not None and (word.generation, word.controlled_at_ms) < (known.generation, known.controlled_at_ms)
