"""Every example is a record of its version, decodes under every later reader and round-trips."""

import io
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer

from contract.schema_files import EXAMPLES, Example, channels, examples, versions
from nightmill.kernel.wire.channel import Table, Topic
from nightmill.kernel.wire.codec import Codec, codecs
from nightmill.kernel.wire.schemas import schema_ids, self_contained
from nightmill.kernel.wire.topics import CHANNELS, TABLES

ALL = list(examples())
EVERYTHING: tuple[Topic | Table, ...] = (*CHANNELS, *TABLES)
CODECS: dict[str, Codec] = {channel.name: codecs()[channel.message] for channel in EVERYTHING}


def written(example: Example) -> bytes:
    """The body as a writer of the example's own version wrote it; a field it does not know is an error."""
    buffer = io.BytesIO()
    schemaless_writer(buffer, parse_schema(self_contained(example.version.stem)), example.record(), strict=True)
    return buffer.getvalue()


@pytest.mark.parametrize("example", ALL, ids=lambda each: each.name)
def test_an_example_decodes_under_its_own_and_every_later_reader(example: Example) -> None:
    body = written(example)
    writer = parse_schema(self_contained(example.version.stem))
    later = [v for v in versions() if v.message == example.version.message and v.number >= example.version.number]
    for version in later:
        reader = parse_schema(self_contained(version.stem))
        assert schemaless_reader(io.BytesIO(body), writer, reader), version.stem


@pytest.mark.parametrize("example", ALL, ids=lambda each: each.name)
def test_an_example_becomes_a_message_and_goes_round(example: Example) -> None:
    """The code's own way: magic byte, number, body → message → bytes → message."""
    codec = CODECS[example.channel]
    head = b"\0" + schema_ids()[example.version.stem].to_bytes(4, "big")
    message = codec.decode(head + written(example))
    again = codec.encode(message)
    assert codec.decode(again) == message
    newest = max(v.number for v in versions() if v.message == example.version.message)
    if example.version.number == newest:
        assert again == head + written(example)
        assert plain(message.to_avro()) == example.record()


def plain(value: Any) -> Any:
    """Lists for tuples, as JSON has them."""
    match value:
        case dict():
            return {name: plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [plain(inner) for inner in value]
    return value


@pytest.mark.parametrize("channel", EVERYTHING, ids=lambda each: each.name)
def test_every_version_of_every_channel_has_an_example(channel: Topic | Table) -> None:
    wanted = {version.stem for version in versions() if version.record == channel.message.__name__}
    assert {example.version.stem for example in ALL if example.channel == channel.name} == wanted


def test_no_example_is_an_orphan() -> None:
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    assert folders == set(channels())
    files = {path for path in EXAMPLES.rglob("*") if path.is_file()} - {EXAMPLES / "README.md"}
    assert files == {example.path for example in ALL}
