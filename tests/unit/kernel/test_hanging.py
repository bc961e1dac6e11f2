"""Which open transactions hang, and how they are to be ended: decided from what the broker says, without one."""

import struct
from dataclasses import replace

import pytest

from nightmill.kernel.runtime.kafka.hanging import Decided, committed, decided, hanging_among, is_current
from nightmill.kernel.runtime.kafka.requests import CoordinatedTransaction, OpenTransaction

OPEN = OpenTransaction(
    topic="__consumer_offsets",
    partition=3,
    producer_id=1,
    producer_epoch=0,
    coordinator_epoch=2,
    first_offset=547,
    last_at_ms=1_000,
)


def coordinated(*places: tuple[str, int], epoch: int = 0) -> dict[int, CoordinatedTransaction]:
    return {1: CoordinatedTransaction(transactional_id="t", producer_epoch=epoch, places=frozenset(places))}


@pytest.mark.parametrize(
    ("known", "hangs", "current"),
    [
        pytest.param(coordinated(("__consumer_offsets", 3)), False, True, id="it will be ended"),
        pytest.param(coordinated(("__consumer_offsets", 2)), True, True, id="the partition is not among those left"),
        pytest.param(coordinated(epoch=1), True, False, id="closed, and its producer fenced"),
        pytest.param({}, True, False, id="nobody knows the producer"),
    ],
)
def test_a_transaction_hangs_when_nobody_will_end_it_there(
    known: dict[int, CoordinatedTransaction], hangs: bool, current: bool
) -> None:
    assert hanging_among([OPEN], known) == ([OPEN] if hangs else [])
    assert is_current(OPEN, known) is current


def decision(at_ms: int, *, commit: bool, epoch: int = 0, producer: int = 1) -> Decided:
    return Decided(producer_id=producer, producer_epoch=epoch, commit=commit, at_ms=at_ms)


@pytest.mark.parametrize(
    ("decisions", "commit"),
    [
        pytest.param([], False, id="no trace of it"),
        pytest.param([decision(1_000, commit=True)], True, id="committed"),
        pytest.param([decision(1_500, commit=False, epoch=1)], False, id="aborted by the coordinator"),
        pytest.param([decision(999, commit=True)], False, id="the one before it was committed"),
        pytest.param([decision(2_000, commit=False), decision(1_200, commit=True)], True, id="the next was aborted"),
        pytest.param([decision(1_200, commit=True, epoch=2)], False, id="a later life of the producer"),
        pytest.param([decision(1_200, commit=True, producer=2)], False, id="another producer"),
    ],
)
def test_it_is_ended_as_the_coordinator_decided_after_its_last_record(decisions: list[Decided], commit: bool) -> None:
    assert committed(OPEN, decisions) is commit


@pytest.mark.parametrize(
    ("status", "commit"),
    [(0, None), (1, None), (2, True), (3, False), (4, True), (5, False), (6, None), (7, None)],
)
@pytest.mark.parametrize("version", [0, 1])
def test_decisions_are_found_in_the_coordinators_log(version: int, status: int, commit: bool | None) -> None:
    """Fields: version, producer id, producer epoch, timeout, status, and what follows."""
    record = struct.pack(">hqhib", version, 2**40, 7, 3_000, status) + b"more"
    found = decided(record, 5)
    expected = None if commit is None else decision(5, commit=commit, epoch=7, producer=2**40)
    assert found == expected


@pytest.mark.parametrize("value", [None, b"", b"\0" * 16])
def test_what_is_no_record_of_a_transaction_decides_nothing(value: bytes | None) -> None:
    assert decided(value, 5) is None


def test_a_transaction_that_went_on_is_another_one() -> None:
    """It is compared as a whole before it is ended."""
    assert replace(OPEN, last_at_ms=2_000) != OPEN
