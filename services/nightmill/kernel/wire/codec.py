"""Bytes ↔ messages: magic byte 0, four bytes of schema number, then the schemaless Avro body.

The number is that of contracts/schema-ids.yaml. A record of the newest version is read by the code made for it
(`binary`); one written under an older version is read under the newest by Avro's resolution rules (fastavro).
"""

import io
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

from fastavro import parse_schema, schemaless_reader

from nightmill.kernel.wire import messages
from nightmill.kernel.wire.binary import reader_of, writer_of
from nightmill.kernel.wire.channel import Message, Table, Topic
from nightmill.kernel.wire.columnar import Columns, columns_of
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
def _newest_stem() -> dict[str, str]:
    """Newest `<message>.v<N>` by record name."""
    return {all_schemas()[stem]["name"]: stem for stem in newest(list(all_schemas()))}


@lru_cache(maxsize=1)
def _by_id() -> dict[int, tuple[str, Any]]:
    """`(record name, parsed schema)` by number, every version."""
    return {
        schema_ids()[stem]: (schema["name"], parse_schema(self_contained(stem)))
        for stem, schema in all_schemas().items()
    }


class Codec:
    """Encodes and decodes the messages of one topic or table."""

    __slots__ = (
        "_head",
        "_header_names",
        "_header_values",
        "_key",
        "_name",
        "_number",
        "_read",
        "_read_columns",
        "_write",
        "channel",
    )

    def __init__(self, channel: Topic | Table) -> None:
        self.channel = channel
        self._name: str = channel.message.__name__
        stem = _newest_stem()[self._name]
        self._number = schema_ids()[stem]
        self._head = _HEAD.pack(0, self._number)
        self._write: Callable[[Message], bytes] = writer_of(self_contained(stem))
        self._read: Callable[[bytes, int], Any] = reader_of(self_contained(stem), messages)
        self._read_columns = columns_of(self_contained(stem))
        fields = channel.message.__struct_fields__
        known = [(header, field) for header, field in _HEADER_FIELDS if field in fields]
        self._header_names = [header for header, _ in known]
        # with the key twice at the end it gives a tuple, whatever the number of headers
        self._header_values = attrgetter(*(field for _, field in known), channel.key, channel.key)
        self._key = channel.key

    def key(self, message: Message) -> bytes:
        """The record's identity."""
        return str(getattr(message, self._key)).encode()

    def encode(self, message: Message) -> bytes:
        return self._head + self._write(message)

    def headers(self, message: Message) -> list[tuple[str, bytes]]:
        """Whose record it is, readable even where its body is not."""
        return [
            (header, value.encode() if isinstance(value, str) else b"%d" % value)
            for header, value in zip(self._header_names, self._header_values(message), strict=False)
            if value is not None
        ]

    def newest(self, value: bytes) -> bytes:
        """The record as its newest version has it, for `columns`; its body is not looked into.

        Raises `Undecodable`.
        """
        return value if value.startswith(self._head) else self.encode(self.decode(value))

    def columns(self, values: Sequence[bytes]) -> Columns:
        """Columns of records of the newest version. Raises `Undecodable` when one is none, without telling which."""
        try:
            return self._read_columns(values, _HEAD.size)
        except ValueError as error:
            raise Undecodable(f"not all are records of {self._name}: {error}") from error

    def decode(self, value: bytes) -> Any:
        """The message in `value`. Raises `Undecodable`."""
        if len(value) < _HEAD.size or value[0] != 0:
            raise Undecodable(f"not a record of {self._name}: no schema number in front")
        try:
            if value.startswith(self._head):
                return self._read(value, _HEAD.size)
            return self._older(int.from_bytes(value[1:5], "big"), value[_HEAD.size :])
        except IndexError as error:
            raise Undecodable(f"not a record of {self._name}: it is cut off") from error
        except (EOFError, ValueError, KeyError, TypeError, OverflowError) as error:
            raise Undecodable(f"not a record of {self._name}: {type(error).__name__}: {error}"[:300]) from error

    def _older(self, number: int, body: bytes) -> Any:
        name, schema = _by_id().get(number, ("", None))
        if name != self._name:
            raise Undecodable(f"schema number {number} is {name or 'unknown'}, expected {self._name}")
        newest_schema = _by_id()[self._number][1]
        return self.channel.message.from_avro(schemaless_reader(io.BytesIO(body), schema, newest_schema))


@lru_cache(maxsize=1)
def codecs() -> dict[type[Any], Codec]:
    """One codec for each message and row class."""
    channels: Iterable[Topic | Table] = (*CHANNELS, *TABLES)
    return {channel.message: Codec(channel) for channel in channels}
