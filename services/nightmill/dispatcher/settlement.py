"""The message that tells one batch what became of an item, and the memory of whom it was told to.

A settlement of a generation is revision 1; revision 2 follows only where revision 1 said that the item is in review.
"""

from collections.abc import Sequence

from nightmill.dispatcher.fence import ControlOf
from nightmill.kernel.domain.ids import dataset_of, job_of
from nightmill.kernel.domain.lifecycle import ItemOutcome
from nightmill.kernel.wire.messages import ItemPlanned, ItemSettled, ItemStateRow, Settlement, Totals, Waiter
from nightmill.kernel.wire.totals import NO_TOTALS


def next_revision(settled: tuple[Settlement, ...], waiter: Waiter) -> int:
    """Revision of the next settlement for a waiter: 2 when its generation was told before."""
    for told in settled:
        if told.batch_id == waiter.batch_id and told.generation == waiter.generation:
            return told.revision + 1
    return 1


def told_of(settled: tuple[Settlement, ...], to_tell: Sequence[tuple[Waiter, int]]) -> tuple[Settlement, ...]:
    """The memory with these waiters told; one entry a batch, of the newest generation."""
    if not to_tell:
        return settled
    batches = {waiter.batch_id for waiter, _ in to_tell}
    return (
        *(told for told in settled if told.batch_id not in batches),
        *(
            Settlement(batch_id=waiter.batch_id, generation=waiter.generation, revision=revision)
            for waiter, revision in to_tell
        ),
    )


def settlement(
    row: ItemStateRow,
    outcome: ItemOutcome,
    waiter: Waiter,
    revision: int,
    payer: str | None,
    totals: Totals,
    now_ms: int,
    control_of: ControlOf,
) -> ItemSettled:
    """The row's end for one waiter: the batch that pays is charged `totals`, for others a call was reused."""
    batch = control_of(waiter.batch_id)
    pays = waiter.batch_id == payer
    return ItemSettled(
        item_key=row.item_key,
        batch_id=waiter.batch_id,
        job_id=batch.job_id if batch else job_of(waiter.batch_id),
        dataset_id=batch.dataset_id if batch else dataset_of(waiter.batch_id),
        generation=waiter.generation,
        ordinal=waiter.ordinal,
        revision=revision,
        source_id=row.source_id,
        row=row.row,
        pipeline_digest=batch.pipeline_digest if batch else row.pipeline_digest,
        outcome=outcome,
        verdict=row.verdict,
        failure=row.failure,
        reused=payer is not None and not pays,
        totals=totals if pays else NO_TOTALS,
        output=row.output,
        output_digest=row.output_digest,
        attempt_id=row.attempt_id,
        model=row.model,
        planned_at_ms=row.planned_at_ms,
        settled_at_ms=now_ms,
    )


def settled_at_once(
    row: ItemStateRow, planned: ItemPlanned, outcome: ItemOutcome, *, reused: bool, totals: Totals, now_ms: int
) -> ItemSettled:
    """An outcome that a plan meets at once; its batch is charged `totals`."""
    return ItemSettled(
        item_key=row.item_key,
        batch_id=planned.batch_id,
        job_id=planned.job_id,
        dataset_id=planned.dataset_id,
        generation=planned.generation,
        ordinal=planned.ordinal,
        revision=1,
        source_id=planned.source_id,
        row=planned.row,
        pipeline_digest=planned.pipeline_digest,
        outcome=outcome,
        verdict=row.verdict,
        failure=row.failure,
        reused=reused,
        totals=totals,
        output=row.output,
        output_digest=row.output_digest,
        attempt_id=row.attempt_id,
        model=row.model,
        planned_at_ms=now_ms,
        settled_at_ms=now_ms,
    )
