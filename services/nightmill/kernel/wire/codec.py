"""Bytes ↔ messages: magic byte 0, four bytes of schema number, then the schemaless Avro body.

The number is that of contracts/schema-ids.yaml. A record written under an older version is read under the newest by
Avro's resolution rules.
"""

import io
import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from fastavro import parse_schema, schemaless_reader, schemaless_writer

from nightmill.kernel.wire.channel import Message, Table, Topic
from nightmill.kernel.wire.schemas import all_schemas, newest, schema_ids, self_contained
from nightmill.kernel.wire.topics import CHANNELS, TABLES

_HEAD = struct.Struct(">bI")

#: header → field of a message that it is taken from, where the message has it
_HEADER_FIELDS = (
    ("job", "job_id"),
    ("batch", "batch_id"),
    ("generation", "generation"),
    ("item", "item_key"),
    ("ordinal", "ordinal"),
    ("minted", "minted_at_ms"),
    ("shard", "shard_id"),
)


class Undecodable(Exception):
    """Bytes that are no record of the expected message; the text says why."""


@lru_cache(maxsize=1)
def _by_message() -> dict[str, tuple[str, Any]]:
    """Newest `(stem, parsed schema)` by record name."""
    stems = newest(list(all_schemas()))
    return {all_schemas()[stem]["name"]: (stem, parse_schema(self_contained(stem))) for stem in stems}


@lru_cache(maxsize=1)
def _by_id() -> dict[int, tuple[str, Any]]:
    """`(record name, parsed schema)` by number, every version."""
    return {
        schema_ids()[stem]: (schema["name"], parse_schema(self_contained(stem)))
        for stem, schema in all_schemas().items()
    }


class Codec:
    """Encodes and decodes the messages of one topic or table."""

    __slots__ = ("_from_avro", "_head", "_header_fields", "_key", "_name", "_number", "_schema", "channel")

    def __init__(self, channel: Topic | Table) -> None:
        self.channel = channel
        self._name: str = channel.message.__name__
        stem, self._schema = _by_message()[self._name]
        self._number = schema_ids()[stem]
        self._head = _HEAD.pack(0, self._number)
        self._from_avro: Callable[[Any], Any] = channel.message.from_avro
        fields = channel.message.__dataclass_fields__
        self._header_fields = tuple((header, field) for header, field in _HEADER_FIELDS if field in fields)
        self._key = channel.key

    def key(self, message: Message) -> bytes:
        """The record's identity."""
        return str(getattr(message, self._key)).encode()

    def encode(self, message: Message) -> bytes:
        buffer = io.BytesIO()
        buffer.write(self._head)
        schemaless_writer(buffer, self._schema, message.to_avro())
        return buffer.getvalue()

    def headers(self, message: Message) -> list[tuple[str, bytes]]:
        """Whose record it is, readable even where its body is not."""
        found = ((header, getattr(message, field)) for header, field in self._header_fields)
        return [(header, str(value).encode()) for header, value in found if value is not None]

    def decode(self, value: bytes) -> Any:
        """The message in `value`. Raises `Undecodable`."""
        if len(value) < _HEAD.size or value[0] != 0:
            raise Undecodable(f"not a record of {self._name}: no schema number in front")
        number = int.from_bytes(value[1:5], "big")
        buffer = io.BytesIO(value)
        buffer.seek(_HEAD.size)
        if number == self._number:
            return self._read(buffer, self._schema, None)
        name, writer = _by_id().get(number, ("", None))
        if name != self._name:
            raise Undecodable(f"schema number {number} is {name or 'unknown'}, expected {self._name}")
        return self._read(buffer, writer, self._schema)

    def _read(self, buffer: io.BytesIO, writer: Any, reader: Any) -> Any:
        try:
            return self._from_avro(schemaless_reader(buffer, writer, reader))
        except (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, UnicodeDecodeError) as error:
            raise Undecodable(f"not a record of {self._name}: {type(error).__name__}: {error}"[:300]) from error


@lru_cache(maxsize=1)
def codecs() -> dict[type[Any], Codec]:
    """One codec for each message and row class."""
    channels: Iterable[Topic | Table] = (*CHANNELS, *TABLES)
    return {channel.message: Codec(channel) for channel in channels}
