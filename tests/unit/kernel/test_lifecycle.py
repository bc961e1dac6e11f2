"""State machines: illegal moves raise, ends are ends, every state is reached."""

import itertools
from enum import StrEnum
from typing import Any

import pytest

from nightmill.kernel.domain import lifecycle as lc
from nightmill.kernel.domain.lifecycle import BatchEvent, BatchState, ItemEvent, ItemState

B, BE, I, IE = BatchState, BatchEvent, ItemState, ItemEvent  # noqa: E741

BATCHES = list(itertools.product(BatchState, BatchEvent))
ITEMS = list(itertools.product(ItemState, ItemEvent))


@pytest.mark.parametrize(("state", "event"), BATCHES)
def test_a_batch_makes_the_moves_of_its_table_and_refuses_all_others(state: BatchState, event: BatchEvent) -> None:
    """M2: a state machine that refuses illegal moves."""
    following = lc.BATCH_MOVES.get((state, event))
    if following is not None:
        assert lc.advance_batch(state, event) is following
        return
    with pytest.raises(lc.IllegalMove, match=f"no move {event} from state {state}"):
        lc.advance_batch(state, event)


@pytest.mark.parametrize(("state", "event"), ITEMS)
def test_an_item_makes_the_moves_of_its_table_and_refuses_all_others(state: ItemState, event: ItemEvent) -> None:
    """M2."""
    following = lc.ITEM_MOVES.get((state, event))
    if following is not None:
        assert lc.advance_item(state, event) is following
        return
    with pytest.raises(lc.IllegalMove, match=f"no move {event} from state {state}"):
        lc.advance_item(state, event)


@pytest.mark.parametrize(
    "way",
    [
        [B.CREATED, BE.PLAN, B.PLANNING, BE.SEAL, B.QUEUED, BE.SETTLE, B.RUNNING, BE.COMPLETE, B.VALIDATING],
        [B.VALIDATING, BE.PUBLISH, B.PUBLISHED],
        [B.VALIDATING, BE.PUBLISH_PARTIAL, B.PARTIAL_FAILED, BE.RESUME, B.QUEUED],
        [B.VALIDATING, BE.HOLD, B.HELD, BE.COMPLETE, B.VALIDATING],
        [B.PLANNING, BE.REFUSE, B.REFUSED],
        [B.RUNNING, BE.HOLD, B.HELD, BE.SETTLE, B.HELD, BE.RESUME, B.QUEUED],
        [B.RUNNING, BE.CANCEL, B.CANCELLED, BE.RESUME, B.QUEUED],
    ],
)
def test_the_ways_of_a_batch(way: list[Any]) -> None:
    for state, event, following in zip(way[::2], way[1::2], way[2::2], strict=False):
        assert lc.advance_batch(state, event) is following


@pytest.mark.parametrize(
    "way",
    [
        [I.READY, IE.DISPATCH, I.DISPATCHED, IE.ACCEPT, I.ACCEPTED],
        [I.DISPATCHED, IE.RETRY, I.RETRY_WAIT, IE.DUE, I.READY],
        [I.DISPATCHED, IE.REPAIR, I.REPAIR, IE.DISPATCH, I.DISPATCHED],
        [I.DISPATCHED, IE.PARK, I.IN_REVIEW, IE.ACCEPT, I.ACCEPTED],
        [I.IN_REVIEW, IE.REJECT, I.REJECTED],
        [I.DISPATCHED, IE.BURY, I.DEAD_LETTER],
        [I.RETRY_WAIT, IE.CANCEL, I.CANCELLED, IE.PLAN, I.READY],
        [I.CANCELLED, IE.ACCEPT, I.ACCEPTED],  # its answer came late and was paid for
    ],
)
def test_the_ways_of_an_item(way: list[Any]) -> None:
    for state, event, following in zip(way[::2], way[1::2], way[2::2], strict=False):
        assert lc.advance_item(state, event) is following


def test_nothing_leaves_the_end_of_a_batch_but_a_new_generation() -> None:
    """M2, E11: terminal states absorb."""
    leaving = {(state, event) for state, event in lc.BATCH_MOVES if state in lc.ENDED_BATCH}
    assert leaving == {(B.CANCELLED, BE.RESUME), (B.PARTIAL_FAILED, BE.RESUME)}


def test_nothing_leaves_the_end_of_an_item_but_a_rerun() -> None:
    """Q8: and that starts it from the beginning."""
    leaving = {(state, event): to for (state, event), to in lc.ITEM_MOVES.items() if state in lc.ENDED_ITEM}
    assert leaving == {(state, IE.PLAN): I.READY for state in lc.ENDED_ITEM}


def test_a_batch_can_be_cancelled_until_it_ends() -> None:
    """E11."""
    cancellable = {state for state, event in lc.BATCH_MOVES if event is BE.CANCEL}
    assert cancellable == set(BatchState) - lc.ENDED_BATCH


@pytest.mark.parametrize(
    ("moves", "start", "states", "events"),
    [
        (lc.BATCH_MOVES, B.CREATED, BatchState, BatchEvent),
        (lc.ITEM_MOVES, I.READY, ItemState, ItemEvent),
    ],
)
def test_every_state_is_reached_and_every_event_has_a_move(
    moves: dict[tuple[StrEnum, StrEnum], StrEnum], start: StrEnum, states: type[StrEnum], events: type[StrEnum]
) -> None:
    reached, fresh = {start}, {start}
    while fresh := {to for (state, _), to in moves.items() if state in fresh} - reached:
        reached |= fresh
    assert reached == set(states)
    assert {event for _, event in moves} == set(events)


def test_every_open_state_has_a_way_out() -> None:
    """Nothing hangs for ever: from each state an end is reached."""
    for moves, ends in ((lc.BATCH_MOVES, lc.ENDED_BATCH), (lc.ITEM_MOVES, lc.ENDED_ITEM)):
        ending: set[StrEnum] = set(ends)
        while more := {state for (state, _), to in moves.items() if to in ending} - ending:
            ending |= more
        assert ending >= {state for state, _ in moves}
