"""decode(encode(m)) == m for every message and row, in the bytes that fastavro writes; and no bytes stop a reader."""

import io
from functools import cache
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nightmill.kernel.wire.channel import Table, Topic
from nightmill.kernel.wire.codec import Undecodable, codecs
from nightmill.kernel.wire.schemas import all_schemas, newest, newest_schemas, self_contained
from nightmill.kernel.wire.topics import CHANNELS, TABLES

ALL = (*CHANNELS, *TABLES)
QUICK = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "string": st.text(max_size=12),
    "bytes": st.binary(max_size=12),
}


@cache
def values(avro_name: str) -> st.SearchStrategy[Any]:
    """Any value of a named type."""
    _, named = newest_schemas()
    schema = named[avro_name]
    if schema["type"] == "enum":
        return st.sampled_from(schema["symbols"])
    return st.fixed_dictionaries({field["name"]: of_type(field["type"]) for field in schema["fields"]})


def of_type(avro: Any) -> st.SearchStrategy[Any]:
    match avro:
        case list():
            return st.one_of([of_type(branch) for branch in avro])
        case {"type": "array", "items": inner}:
            return st.lists(of_type(inner), max_size=3)
        case {"type": "map", "values": inner}:
            return st.dictionaries(st.text(max_size=8), of_type(inner), max_size=3)
    return PRIMITIVES[avro] if avro in PRIMITIVES else values(avro)


def messages(channel: Topic | Table) -> st.SearchStrategy[Any]:
    return values(f"nightmill.{channel.message.__name__}").map(channel.message.from_avro)


def by_fastavro(channel: Topic | Table, message: Any) -> bytes:
    """The body as an independent implementation of Avro writes it."""
    stem = next(s for s in newest(list(all_schemas())) if all_schemas()[s]["name"] == channel.message.__name__)
    buffer = io.BytesIO()
    schemaless_writer(buffer, parse_schema(self_contained(stem)), message.to_avro())
    return buffer.getvalue()


@pytest.mark.parametrize("channel", ALL, ids=lambda each: each.name)
@QUICK
@given(data=st.data())
def test_what_is_encoded_is_decoded_as_it_was(channel: Topic | Table, data: st.DataObject) -> None:
    message = data.draw(messages(channel))
    codec = codecs()[channel.message]
    assert codec.decode(codec.encode(message)) == message
    assert codec.encode(message)[5:] == by_fastavro(channel, message)
    assert codec.key(message).decode() == str(getattr(message, channel.key))
    assert all(value.decode() for _, value in codec.headers(message) if value)


@pytest.mark.parametrize("channel", ALL, ids=lambda each: each.name)
@QUICK
@given(data=st.data())
def test_a_damaged_record_is_a_record_or_undecodable_and_nothing_else(
    channel: Topic | Table, data: st.DataObject
) -> None:
    """A poisoned record reaches the dead-letter topic; it stops no service."""
    codec = codecs()[channel.message]
    raw = bytearray(codec.encode(data.draw(messages(channel))))
    for position in data.draw(st.lists(st.integers(5, max(5, len(raw) - 1)), min_size=1, max_size=4)):
        if position < len(raw):
            raw[position] = data.draw(st.integers(0, 255))
    try:
        found = codec.decode(bytes(raw[: data.draw(st.integers(0, len(raw)))]))
    except Undecodable:
        return
    assert isinstance(found, channel.message)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "no schema number in front"),
        (b"\x00\x00\x00", "no schema number in front"),
        (b"\x01\x00\x00\x00\x16{}", "no schema number in front"),
        (b'{"item_key": "k"}', "no schema number in front"),
        (b"\x00\x00\x00\x03\xe7", "schema number 999 is unknown, expected ItemPlanned"),
        (b"\x00\x00\x00\x00\x16", "schema number 22 is ShardDispatched, expected ItemPlanned"),
        (b"\x00\x00\x00\x00\x0b", "it is cut off"),
        (b"\x00\x00\x00\x00\x0b\x08abc", "not a record of ItemPlanned"),
    ],
)
def test_what_is_no_record_says_why(value: bytes, reason: str) -> None:
    codec = next(codec for cls, codec in codecs().items() if cls.__name__ == "ItemPlanned")
    with pytest.raises(Undecodable) as caught:
        codec.decode(value)
    assert reason in str(caught.value)
