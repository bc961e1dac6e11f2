"""What a submission does next (E6, E1): the table of its states, and what no state ever does."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.kernel.domain.lifecycle import ProviderBatchEvent, ProviderBatchState
from nightmill.provider_gateway.bulk.errands import Harvest
from nightmill.provider_gateway.bulk.results import Places
from nightmill.provider_gateway.bulk.steps import (
    Step,
    Timing,
    backoff_ms,
    doubt_ends_at_ms,
    next_step,
    poll_ms,
    takes_any_size,
)
from unit.provider_gateway.bulk.makers import make_submission
from unit.provider_gateway.makers import NOW_MS

P = ProviderBatchState
TIMING = Timing()
T = TIMING.submit_within
HARVEST = Harvest(paths=(), places=Places(3), strangers=0, repeats=0)

TABLE: list[tuple[P, dict[str, Any], dict[str, Any], int, Step]] = [
    # state, row, memory, ms later, step
    (P.INTENT, {}, {}, 0, Step.UPLOAD),
    (P.ARMED, {}, {}, 0, Step.CREATE),
    (P.ARMED, {}, {}, T - 1, Step.CREATE),
    (P.ARMED, {}, {}, T, Step.ARM),  # its time is over: the row is written anew before anything is sent
    (P.ARMED, {"armed_at_ms": NOW_MS + 5}, {}, 0, Step.ARM),  # a clock that was set back proves nothing
    (P.ARMED, {}, {"doubt": True}, 0, Step.LOOK_UP),
    (P.ARMED, {}, {"doubt": True, "absent": True}, 0, Step.FENCE),
    (P.ARMED, {}, {"doubt": True, "absent": True, "fenced": True}, 0, Step.LOOK_UP),
    (P.SUBMITTED, {"submitted_at_ms": NOW_MS}, {}, 0, Step.POLL),
    (P.SUBMITTED, {"submitted_at_ms": NOW_MS}, {"called_off": True}, 0, Step.CANCEL),
    (P.SUBMITTED, {"submitted_at_ms": NOW_MS}, {}, TIMING.stuck - 1, Step.POLL),
    (P.SUBMITTED, {"submitted_at_ms": NOW_MS}, {}, TIMING.stuck, Step.CANCEL),
    (P.SUBMITTED, {"submitted_at_ms": NOW_MS, "cancelled_at_ms": NOW_MS}, {"called_off": True}, 0, Step.POLL),
    (P.SUBMITTED, {"cancelled_at_ms": NOW_MS}, {}, TIMING.cancel_again, Step.CANCEL),
    (P.ENDED, {}, {}, 0, Step.FETCH),
    (P.ENDED, {}, {"harvest": HARVEST}, 0, Step.READ),
    (P.HARVESTED, {}, {}, 0, Step.REMOVE),
    (P.HARVESTED, {"removed_at_ms": NOW_MS}, {}, 0, Step.WAIT),
    (P.WITHDRAWN, {}, {}, 0, Step.REMOVE),
]


@pytest.mark.parametrize(("state", "row", "memory", "later_ms", "step"), TABLE)
def test_next_step(state: P, row: dict[str, Any], memory: dict[str, Any], later_ms: int, step: Step) -> None:
    submission = make_submission(state, **row)
    for name, value in memory.items():
        setattr(submission, name, value)
    assert next_step(submission, now_ms=NOW_MS + later_ms, timing=TIMING) is step
    for stands_still in ("busy", "uncommitted"):
        setattr(submission, stands_still, True)
        assert next_step(submission, now_ms=NOW_MS + later_ms, timing=TIMING) is Step.WAIT
        setattr(submission, stands_still, False)
    submission.due_at_ms = NOW_MS + later_ms + 1
    assert next_step(submission, now_ms=NOW_MS + later_ms, timing=TIMING) is Step.WAIT


@given(st.sampled_from(P), st.booleans(), st.booleans(), st.booleans(), st.integers(-(10**6), 10**9))
def test_a_create_leaves_only_within_its_time_and_never_in_doubt(
    state: P, doubt: bool, absent: bool, fenced: bool, later_ms: int
) -> None:
    """E6: whatever else holds, what costs money waits for a row that allows it."""
    submission = make_submission(state)
    submission.doubt, submission.absent, submission.fenced, submission.due_at_ms = doubt, absent, fenced, 0
    if next_step(submission, now_ms=NOW_MS + later_ms, timing=TIMING) is Step.CREATE:
        assert state is P.ARMED
        assert not doubt
        assert 0 <= later_ms < TIMING.submit_within


def test_a_look_waits_until_every_create_is_over() -> None:
    submission = make_submission()
    assert doubt_ends_at_ms(submission, TIMING) == NOW_MS + 60_000 + 60_000 + 30_000


def test_waits_grow_to_their_cap() -> None:
    assert [backoff_ms(tries, TIMING) for tries in (1, 2, 3, 8, 30)] == [2_000, 4_000, 8_000, 256_000, 300_000]
    assert [poll_ms(looks, TIMING) for looks in (0, 1, 2, 3, 40)] == [2_000, 3_000, 4_500, 6_750, 300_000]


def test_how_often_a_file_is_brought_for_its_size() -> None:
    """Row 52: not for ever; ten of them take a quarter of an hour."""
    assert [takes_any_size(misfits) for misfits in (0, 1, 9, 10, 11)] == [False, False, False, True, True]
    assert sum(backoff_ms(tries, TIMING) for tries in range(1, 11)) == 2_000 * 255 + 2 * 300_000


def test_a_moved_row_holds_the_submission_still() -> None:
    submission = make_submission()
    submission.tries = 3
    row = submission.move(ProviderBatchEvent.SUBMIT, provider_batch_id="batch_1", submitted_at_ms=NOW_MS)
    assert (row.state, row.provider_batch_id) == (P.SUBMITTED, "batch_1")
    assert submission.uncommitted
    assert submission.tries == 0
