"""Guards of the bulk lane, as in `simulation.guards`."""

from collections.abc import Mapping

from simulation.bulk import removals
from simulation.bulk.mix import FILES, INLINE, BulkFocus
from simulation.guards import Guard
from simulation.mix import Focus

_TWICE = "an attempt is called at most once"


def _focus(
    pool: str,
    faults: Mapping[str, float],
    *others: str,
    idle_ms: tuple[int, ...] = (50, 250, 1_000, 3_000),
    enqueued_tokens: int | None = None,
    max_requests: int = 8,
    **weights: float,
) -> Focus:
    """One bulk job alone, with these faults of the lane, `others` and `weights` as everywhere."""
    bulk = {
        "pools": (pool,),
        "alone": True,
        "items": 12,
        "enqueued_tokens": enqueued_tokens,
        "max_requests": max_requests,
        "pace": 1,
    }
    line = {"tight_budget": False, "turns": 1200, "tempo_ms": 25, "idle_ms": idle_ms}
    return Focus(others, line, weights, BulkFocus(faults, bulk))


BULK_GUARDS: tuple[Guard, ...] = (
    Guard(
        name="bulk-create-in-time",
        where="provider_gateway.bulk.requests: a create looks at the clock before it leaves",
        protects="an owner that slept before it sent creates nothing that another has made meanwhile",
        off=removals.create_in_time,
        focus=_focus(INLINE, {"pause_before_errand": 0.08}),
        invariants=(_TWICE, "no batch is forgotten"),
        seeds=(13, 16),
    ),
    Guard(
        name="bulk-known-by-ids",
        where="provider_gateway.bulk.requests._recognised: custom ids in the results",
        protects="where a batch has no key of ours, another one of the same size is not taken for it",
        off=removals.orphan_by_ids,
        focus=_focus(INLINE, {"lost_answer": 0.15, "lost_request": 0.1}, max_requests=3),
        invariants=(_TWICE, "no batch is forgotten", "a batch has one submission", "an answer that was told is known"),
        seeds=(0, 2),
    ),
    Guard(
        name="bulk-enqueued-tokens",
        where="provider_gateway.bulk.limits.room",
        protects="unfinished batches hold no more tokens than the pool may have enqueued",
        off=removals.enqueued_room,
        focus=_focus(FILES, {}, enqueued_tokens=200),
        invariants=("submissions keep to their limits",),
        seeds=(0, 1),
    ),
    Guard(
        name="views-at-take-over",
        where="runtime.loop._assign: views are read to their end before partitions are opened",
        protects="who takes partitions over sees what their last owners have enqueued in others",
        off=removals.views_at_take_over,
        focus=_focus(
            FILES, {"late_request": 0.15}, enqueued_tokens=400, max_requests=3, crash=0.02, pause=0.02, late_view=0.1
        ),
        invariants=("submissions keep to their limits",),
        seeds=(68,),
    ),
    Guard(
        name="bulk-missing-is-unknown",
        where="provider_gateway.bulk.answers.answer: no line, and the batch was not cancelled",
        protects="what the results do not tell of counts as paid",
        off=removals.missing_is_unknown,
        focus=_focus(FILES, {"line_missing": 0.4}),
        invariants=("ledger = bill",),
        seeds=(0, 1),
    ),
    Guard(
        name="bulk-intent",
        where="provider_gateway.bulk.office: a submission stands still until its row is committed",
        protects="what is created at the provider is in a committed row before",
        off=removals.intent_before_create,
        focus=_focus(FILES, {}, crash_before_commit=0.3),
        invariants=(_TWICE, "no batch is forgotten"),
        seeds=(0, 6),
    ),
    Guard(
        name="bulk-look-up",
        where="provider_gateway.bulk.requests: LookUp",
        protects="what may have been created is looked for before it is submitted again",
        off=removals.orphan_look_up,
        focus=_focus(FILES, {"lost_answer": 0.15}),
        invariants=(_TWICE, "no batch is forgotten"),
        seeds=(0, 1),
    ),
    Guard(
        name="bulk-look-up-late",
        where="provider_gateway.bulk.steps.doubt_ends_at_ms: T, the request's deadline, the clocks' guard",
        protects="a create that is still on its way is not taken for one that never was",
        off=removals.orphan_wait,
        focus=_focus(INLINE, {"late_request": 0.2}, idle_ms=(50,)),
        invariants=(_TWICE, "no batch is forgotten"),
        seeds=(7, 10),
    ),
    Guard(
        name="bulk-second-look",
        where="provider_gateway.bulk.outcomes: a second look after the input was removed",
        protects="what a sleeping owner created between the look and the removal is found",
        off=removals.second_look,
        focus=_focus(FILES, {"late_list": 1.0, "sleep_in_request": 0.3}, max_requests=2),
        invariants=(_TWICE, "no batch is forgotten"),
        seeds=(21,),
    ),
    Guard(
        name="bulk-input-fence",
        where="provider_gateway.bulk.outcomes._absent: the input file is removed before a submission is withdrawn",
        protects="an owner that slept since it looked at its clock creates nothing any more",
        off=removals.input_fence,
        focus=_focus(FILES, {"sleep_in_request": 0.3}, max_requests=2),
        invariants=(_TWICE, "no batch is forgotten"),
        seeds=(4, 17),
    ),
    Guard(
        name="bulk-first-line",
        where="provider_gateway.bulk.results.sort_lines: the first valid line of a request",
        protects="a second line for a request does not replace what was billed",
        off=removals.first_valid_line,
        focus=_focus(FILES, {"line_twice": 0.5}),
        invariants=("published = accepted", "ledger = bill"),
        seeds=(0, 1),
    ),
    Guard(
        name="bulk-closed-attempts",
        where="provider_gateway.book.Book.enter: attempts that are answered in the shard's row",
        protects="a second harvest answers nothing a second time",
        off=removals.closed_attempts,
        focus=_focus(FILES, {"crash_in_errand": 0.05}, "crash", "crash_after_commit"),
        invariants=("states go forward", "an attempt is answered once", _TWICE),
        seeds=(3,),
    ),
)
