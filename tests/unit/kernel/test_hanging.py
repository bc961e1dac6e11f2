"""Which open transactions hang, and how they are to be ended: decided from what the broker says, without one."""

import struct
from dataclasses import replace

import pytest

from nightmill.kernel.runtime.kafka.hanging import Note, committed, hanging_among, is_current, noted
from nightmill.kernel.runtime.kafka.requests import CoordinatedTransaction, OpenTransaction, Refused

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
    known = CoordinatedTransaction(transactional_id="t", producer_epoch=epoch, began_at_ms=-1, places=frozenset(places))
    return {1: known}


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


HERE, THERE = ("__consumer_offsets", 3), ("item-planned", 0)


def note(commit: bool | None, *places: tuple[str, int], at_ms: int = 1_000, epoch: int = 0, producer: int = 1) -> Note:
    return Note(producer_id=producer, producer_epoch=epoch, commit=commit, places=frozenset(places), at_ms=at_ms)


BEGUN, COMMITTED, ABORTED = (note(commit, HERE, THERE) for commit in (None, True, False))


@pytest.mark.parametrize(
    ("notes", "commit"),
    [
        pytest.param([], False, id="no trace of it"),
        pytest.param([BEGUN, COMMITTED, note(True)], True, id="committed"),
        pytest.param([BEGUN, note(False, HERE, epoch=1), note(False, epoch=1)], False, id="aborted by the coordinator"),
        pytest.param([BEGUN, COMMITTED, note(True, at_ms=1_002), BEGUN, ABORTED], False, id="after a commit, aborted"),
        pytest.param(
            [BEGUN, ABORTED, note(False, at_ms=1_002), BEGUN, COMMITTED], True, id="after an abort, committed"
        ),
        pytest.param([BEGUN, COMMITTED, note(True, at_ms=1_002), BEGUN], False, id="after a commit, not decided"),
        pytest.param([COMMITTED, note(False, THERE), note(False)], True, id="the next one, elsewhere, was aborted"),
        pytest.param([note(True, HERE, at_ms=900)], True, id="the clock was set back meanwhile"),
        pytest.param([note(True, at_ms=1_200)], True, id="the decision is compacted away"),
        pytest.param([note(True, at_ms=999)], False, id="an older decision is compacted away"),
        pytest.param([note(True, HERE, epoch=2)], False, id="a later life of the producer"),
        pytest.param([note(True, HERE, producer=2)], False, id="another producer"),
    ],
)
def test_it_is_ended_as_the_coordinator_decided(notes: list[Note], commit: bool) -> None:
    """M4, E1: by the order of its log. Times overlap: records are made before the end of what was before is noted."""
    assert committed(OPEN, notes) is commit


#: item-planned, partitions 0 and 7, then what follows
PLACES = (
    b"\0\0\0\x01\0\x0citem-planned\0\0\0\x02\0\0\0\0\0\0\0\x07more",
    b"\x02\x0ditem-planned\x03\0\0\0\0\0\0\0\x07\0more",
)


@pytest.mark.parametrize(
    ("status", "commit", "told"),
    [(0, None, False), (1, None, True), (2, True, True), (3, False, True), (4, True, True), (5, False, True)]
    + [(6, None, False), (7, None, False)],
)
@pytest.mark.parametrize("version", [0, 1])
def test_notes_are_found_in_the_coordinators_log(version: int, status: int, commit: bool | None, told: bool) -> None:
    """Fields: version, producer id, producer epoch, timeout, status, places, and what follows."""
    record = struct.pack(">hqhib", version, 2**40, 7, 3_000, status) + PLACES[version]
    expected = note(commit, THERE, ("item-planned", 7), at_ms=5, epoch=7, producer=2**40)
    assert noted(record, 5) == (expected if told else None)


def test_without_places_it_is_over() -> None:
    """Null and an empty list, in both forms."""
    for version, places in ((0, b"\xff" * 4), (0, b"\0" * 4), (1, b"\0"), (1, b"\x01")):
        assert noted(struct.pack(">hqhib", version, 1, 0, 3_000, 4) + places, 1_000) == note(True)


def test_a_form_that_is_not_known_decides_nothing() -> None:
    """Nothing is ended on a guess."""
    with pytest.raises(Refused, match="were expected"):
        noted(struct.pack(">hqhib", 0, 1, 0, 3_000, 2) + b"more", 5)


@pytest.mark.parametrize("value", [None, b"", b"\0" * 16])
def test_what_is_no_record_of_a_transaction_decides_nothing(value: bytes | None) -> None:
    assert noted(value, 5) is None


def test_a_transaction_that_went_on_is_another_one() -> None:
    """It is compared as a whole before it is ended."""
    assert replace(OPEN, last_at_ms=2_000) != OPEN
