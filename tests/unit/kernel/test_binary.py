"""The made readers and writers on forms of Avro that other writers may choose, and on bytes that lie."""

from types import SimpleNamespace

import pytest

from nightmill.kernel.wire.binary import reader_of, writer_of

SCHEMA = {
    "type": "record",
    "name": "Basket",
    "fields": [
        {"name": "fruits", "type": {"type": "array", "items": "string"}},
        {"name": "prices", "type": {"type": "map", "values": ["null", "long"]}},
    ],
}
CLASSES = SimpleNamespace(Basket=SimpleNamespace)
read, write = reader_of(SCHEMA, CLASSES), writer_of(SCHEMA)


def test_blocks_with_and_without_their_size() -> None:
    """An array may come in several blocks; a negative count has the block's size in bytes after it."""
    one_block = b"\x06\x02a\x02b\x02c\x00\x00"
    with_sizes = b"\x03\x08\x02a\x02b\x01\x04\x02c\x00\x00"
    assert read(one_block, 0).fruits == read(with_sizes, 0).fruits == ("a", "b", "c")
    assert write(read(with_sizes, 0)) == one_block


def test_a_map_keeps_keys_and_nulls() -> None:
    basket = SimpleNamespace(fruits=(), prices={"fig": None, "sloe": -(2**63), "": 5000})
    assert read(write(basket), 0) == basket


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x00", IndexError),  # two to the 62 fruits, a handful of bytes
        (b"\x02\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01a\x00\x00", IndexError),  # a fruit of eight exabytes
        (b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01\x00\x00", ValueError),  # a number of 77 bits
        (b"\x02\x01a\x00\x00", ValueError),  # a length below zero
        (b"\x00\x02\x02a\x04\x00", ValueError),  # a third branch of two
        (b"\x00\x00\x00", ValueError),  # a byte too many
        (b"\x00", IndexError),
        (b"\x02\x02\xff\x00\x00", UnicodeDecodeError),
    ],
)
def test_bytes_that_lie_are_refused_where_they_end(body: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        read(body, 0)


def test_a_number_that_avro_has_no_room_for_is_not_written() -> None:
    with pytest.raises(OverflowError, match="has more than 64 bits"):
        write(SimpleNamespace(fruits=(), prices={"fig": 2**63}))
