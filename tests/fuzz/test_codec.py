"""Bytes on topics: every message goes round; any other bytes decode to a whole message or are named undecodable.

A codec that raised anything else would kill its process at the same record for ever; one that believed a length of
2^60 would take the machine with it.
"""

import io
import struct
from collections.abc import Callable
from typing import Any

import fastavro
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fuzz.bytes_of import CLEAN_TEXTS, damaged, searched
from nightmill.kernel.wire.codec import Codec, Undecodable, codecs
from nightmill.kernel.wire.schemas import newest, schema_ids, self_contained

CODECS = {message.__name__: codec for message, codec in sorted(codecs().items(), key=lambda each: each[0].__name__)}
STEMS = {self_contained(stem)["name"]: stem for stem in newest(list(schema_ids()))}
HEAD = 5


def varint(number: int) -> bytes:
    """As a hostile writer has it: any number, whatever it means after zigzag."""
    out = b""
    while number > 0x7F:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number])


#: lengths and counts beyond any memory, below zero, and numbers of more than 64 bits
LIES = [varint(n) for n in (1 << 61, (1 << 61) + 1, (1 << 64) - 1, 1 << 32, 1, 3, 1 << 20)]
LIES += [b"\xff" * 9 + b"\x02", b"\xff" * 40, b"\x80" * 10 + b"\x00", b"\x00", b"\x02", b"\x04", b"\x7f"]


def of_avro(avro: Any, named: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values of an Avro type, as `to_avro` has them."""
    match avro:
        case [*branches]:
            return st.one_of([of_avro(each, named) for each in branches])
        case {"type": "record", "name": name, "fields": fields}:
            record = st.fixed_dictionaries({each["name"]: of_avro(each["type"], named) for each in fields})
            named[name] = record
            return record
        case {"type": "enum", "name": name, "symbols": symbols}:
            enum: st.SearchStrategy[Any] = st.sampled_from(symbols)
            named[name] = enum
            return enum
        case {"type": "array", "items": inner}:
            return st.lists(of_avro(inner, named), max_size=3)
        case {"type": "map", "values": inner}:
            return st.dictionaries(CLEAN_TEXTS, of_avro(inner, named), max_size=3)
    plain: dict[str, Callable[[], st.SearchStrategy[Any]]] = {
        "null": st.none,
        "boolean": st.booleans,
        "string": lambda: CLEAN_TEXTS,
        "bytes": lambda: st.binary(max_size=20),
        "int": lambda: st.integers(-(2**31), 2**31 - 1),
        "long": lambda: st.integers(-(2**63), 2**63 - 1),
    }
    known: st.SearchStrategy[Any] = plain[avro]() if avro in plain else named[avro.removeprefix("nightmill.")]
    return known


def records(name: str) -> st.SearchStrategy[Any]:
    """Messages of a class, of every shape that its schema allows."""
    message = CODECS[name].channel.message
    return of_avro(self_contained(STEMS[name]), {}).map(message.from_avro)


def whole_or_named(codec: Codec, value: bytes) -> None:
    try:
        message = codec.decode(value)
    except Undecodable as error:
        said = str(error)
        assert codec.channel.message.__name__ in said
        assert len(said) < 1_000
    else:
        assert codec.decode(codec.encode(message)) == message


@pytest.mark.parametrize("name", CODECS)
def test_every_message_goes_round(name: str) -> None:
    """E9: and its bytes are those that any other Avro library writes and reads."""
    codec = CODECS[name]
    schema = fastavro.parse_schema(self_contained(STEMS[name]))

    @given(message=records(name))
    @searched(25)
    def goes_round(message: Any) -> None:
        value = codec.encode(message)
        assert codec.decode(value) == message
        theirs = io.BytesIO()
        fastavro.schemaless_writer(theirs, schema, message.to_avro())
        assert value[HEAD:] == theirs.getvalue()

    goes_round()


@pytest.mark.parametrize("name", CODECS)
def test_any_bytes_are_a_whole_message_or_named_undecodable(name: str) -> None:
    """E9, O1: garbage, damaged records, lies about lengths, other and unknown schema numbers."""
    codec = CODECS[name]
    head = struct.pack(">bI", 0, schema_ids()[STEMS[name]])
    numbers = st.sampled_from([*schema_ids().values(), 0, 2**32 - 1]).map(lambda number: struct.pack(">bI", 0, number))
    bodies = st.lists(st.binary(max_size=12) | st.sampled_from(LIES), max_size=6).map(b"".join)

    @given(body=bodies)
    @example(body=b"\xff" * 9 + b"\x02")
    @example(body=b"\xff" * 9 + b"\x7f")
    @searched(40)
    def garbage(body: bytes) -> None:
        whole_or_named(codec, head + body)

    @given(value=st.binary(max_size=30) | st.tuples(numbers, bodies).map(b"".join))
    @searched(30)
    def strangers(value: bytes) -> None:
        whole_or_named(codec, value)

    @given(value=damaged(records(name).map(codec.encode), inserts=LIES))
    @searched(40)
    def damage(value: bytes) -> None:
        whole_or_named(codec, value)

    garbage()
    strangers()
    damage()


@pytest.mark.parametrize("name", CODECS)
def test_a_record_that_is_cut_or_goes_on_is_never_taken_for_a_whole_one(name: str) -> None:
    @given(data=st.data(), message=records(name))
    @searched(10)
    def cut(data: st.DataObject, message: Any) -> None:
        value = CODECS[name].encode(message)
        for wrong in (value[: data.draw(st.integers(0, len(value) - 1))], value + b"\x00"):
            with pytest.raises(Undecodable):
                CODECS[name].decode(wrong)

    cut()


def test_a_megabyte_of_number_is_refused_at_its_eleventh_byte() -> None:
    """Otherwise the number itself, of seven million bits, would be built byte by byte."""
    for name, codec in CODECS.items():
        head = struct.pack(">bI", 0, schema_ids()[STEMS[name]])
        for filler in (b"\xff", b"\x80"):
            with pytest.raises(Undecodable):
                codec.decode(head + filler * (1 << 20))
