"""Bitmaps equal sets of ordinals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.kernel.domain.bitmap import Bitmap

SIZES = st.integers(1, 20_000)


@st.composite
def sets(draw: st.DrawFn) -> tuple[int, set[int]]:
    size = draw(SIZES)
    return size, draw(st.sets(st.integers(0, size - 1), max_size=60))


@given(sets())
def test_a_bitmap_is_a_set(case: tuple[int, set[int]]) -> None:
    size, members = case
    bitmap = Bitmap.of(size, members)
    assert list(bitmap.ordinals()) == sorted(members)
    assert bitmap.count() == len(members)
    assert all(bitmap.get(ordinal) for ordinal in members)
    assert sum(bitmap.get(ordinal) for ordinal in range(size + 20)) == len(members)


@given(sets())
def test_both_written_forms_are_read_as_they_were(case: tuple[int, set[int]]) -> None:
    size, members = case
    bitmap = Bitmap.of(size, members)
    assert list(Bitmap.from_bytes(bitmap.to_bytes(), size).ordinals()) == sorted(members)
    assert list(Bitmap.from_bytes(bitmap.to_bytes()).ordinals()) == sorted(members)
    assert list(Bitmap.from_text(bitmap.to_text()).ordinals()) == sorted(members)
    assert len(bitmap.to_bytes()) == (size + 7) // 8


@given(sets(), st.data())
def test_set_and_clear_touch_one_ordinal(case: tuple[int, set[int]], data: st.DataObject) -> None:
    size, members = case
    bitmap = Bitmap.of(size, members)
    ordinal = data.draw(st.integers(0, size - 1))
    bitmap.set(ordinal)
    bitmap.set(ordinal)
    assert set(bitmap.ordinals()) == members | {ordinal}
    bitmap.clear(ordinal)
    bitmap.clear(ordinal)
    assert set(bitmap.ordinals()) == members - {ordinal}


def test_bit_i_of_byte_i_over_8_stands_for_ordinal_i() -> None:
    """The form on the wire: ordinals 0, 9 and 15 are 0000 0001, 1000 0010."""
    assert Bitmap.of(16, [0, 9, 15]).to_bytes() == bytes([0b0000_0001, 0b1000_0010])


@pytest.mark.parametrize("ordinal", [-1, -8, 16, 17, 10**9])
def test_beyond_the_size_nothing_can_be_set(ordinal: int) -> None:
    bitmap = Bitmap.empty(16)
    with pytest.raises(IndexError):
        bitmap.set(ordinal)
    with pytest.raises(IndexError):
        bitmap.clear(ordinal)
    assert not bitmap.get(ordinal)


def test_beyond_a_size_that_ends_inside_a_byte_nothing_can_be_set() -> None:
    bitmap = Bitmap.empty(10)
    with pytest.raises(IndexError):
        bitmap.set(10)
    assert Bitmap.from_bytes(b"\xff\xff", 10).count() == 10
    assert not Bitmap.from_bytes(b"\xff\xff", 10).get(10)
