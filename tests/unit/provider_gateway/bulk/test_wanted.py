"""Which orders are still wanted in the bulk lane (P5, E11)."""

import pytest

from kit.partition import DictView
from nightmill.kernel.domain.lifecycle import ControlState, Lane
from nightmill.kernel.runtime.log import partition_of
from nightmill.kernel.wire.messages import LaneChoiceRow
from nightmill.kernel.wire.values import replace
from nightmill.provider_gateway.bulk.wanted import Wanted
from unit.provider_gateway.bulk.makers import make_order
from unit.provider_gateway.makers import BATCH, NOW_MS, make_control

PARTITIONS = 4
#: one order of each of several shards: shards are what a partition of the dispatcher makes
ORDERS = [make_order(number, f"s{number}", index=0) for number in range(12)]


def partition(number: int) -> int:
    return partition_of(ORDERS[number].attempt.item_key.encode(), PARTITIONS)


def choice(at: int, lane: Lane = Lane.REALTIME, recalled_at_ms: int | None = None) -> LaneChoiceRow:
    return LaneChoiceRow(
        choice_id=f"{BATCH}/{at}",
        batch_id=BATCH,
        partition=at,
        lane=lane,
        reason="",
        chosen_at_ms=NOW_MS,
        recalled_at_ms=recalled_at_ms,
    )


def wanted(*choices: LaneChoiceRow, state: ControlState = ControlState.RUNNING) -> Wanted:
    controls = DictView({BATCH: replace(make_control(), state=state)})
    return Wanted(controls, DictView({row.choice_id: row for row in choices}), PARTITIONS)


def test_only_the_partition_that_moved_takes_its_orders_back() -> None:
    """P5: the others go on in bulk, so that no order goes to and fro."""
    moved = partition(0)
    gone = wanted(choice(moved), choice((moved + 1) % PARTITIONS, Lane.BULK)).unwanted(ORDERS)
    assert gone == [order for number, order in enumerate(ORDERS) if partition(number) == moved]
    assert 0 < len(gone) < len(ORDERS)


@pytest.mark.parametrize("state", [ControlState.RUNNING, ControlState.HELD])
def test_without_a_choice_all_stay(state: ControlState) -> None:
    assert wanted(state=state).unwanted(ORDERS) == []
    assert not wanted(state=state).none_awaited(ORDERS)


def test_a_cancelled_batch_is_wanted_nowhere() -> None:
    """E11."""
    look = wanted(state=ControlState.CANCELLED)
    assert look.unwanted(ORDERS) == ORDERS
    assert look.none_awaited(ORDERS)


def test_a_submission_is_called_back_only_as_a_whole() -> None:
    """P5: moved is not called back, and one partition that waits for it keeps it."""
    everywhere = {partition(number) for number in range(len(ORDERS))}
    recalled = [choice(each, recalled_at_ms=NOW_MS) for each in everywhere]
    assert wanted(*recalled).none_awaited(ORDERS)
    assert not wanted(*recalled[1:]).none_awaited(ORDERS)
    assert not wanted(*(choice(each) for each in everywhere)).none_awaited(ORDERS)
