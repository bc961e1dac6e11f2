"""Whether a reader's schema still understands what an older writer wrote: Avro's resolution rules, told by field.

Rules: https://avro.apache.org/docs/1.12.0/specification/#schema-resolution (read 2026-11-29). Aliases are not used
here, so a renamed field is one that was removed and one that was added.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}


def breaks(*, writer: Any, reader: Any) -> list[str]:
    """Why `reader` may fail on a record of `writer`, each problem with the path of its field; empty when it can not.

    Both are self-contained: a named type is written out where it stands first.
    """
    names = _Names(dict(_named(writer)), dict(_named(reader)))
    return list(_compare(names, writer, reader, path="", open_records=frozenset()))


@dataclass(frozen=True, slots=True)
class _Names:
    """Definitions by name, on each side."""

    writer: dict[str, Any]
    reader: dict[str, Any]


def _compare(names: _Names, writer: Any, reader: Any, *, path: str, open_records: frozenset[str]) -> Iterator[str]:
    writer, reader = _defined(writer, names.writer), _defined(reader, names.reader)
    if isinstance(writer, list):
        for branch in writer:
            yield from _compare(names, branch, reader, path=path, open_records=open_records)
        return
    if isinstance(reader, list):
        reader = next((_defined(b, names.reader) for b in reader if _matches(names, writer, b)), None)
        if reader is None:
            yield f"{path}: {_kind(writer)} is no longer allowed"
            return
    if not _matches(names, writer, reader):
        yield f"{path}: changed from {_title(writer)} to {_title(reader)}"
    elif _kind(writer) == "record":
        if writer["name"] not in open_records:
            yield from _compare_fields(names, writer, reader, path, open_records | {writer["name"]})
    elif _kind(writer) == "enum":
        yield from _removed_symbols(writer, reader, path)
    elif _kind(writer) in ("array", "map"):
        inner = "items" if _kind(writer) == "array" else "values"
        yield from _compare(names, writer[inner], reader[inner], path=path, open_records=open_records)


def _compare_fields(names: _Names, writer: Any, reader: Any, path: str, open_records: frozenset[str]) -> Iterator[str]:
    written = {field["name"]: field["type"] for field in writer["fields"]}
    for field in reader["fields"]:
        inner = f"{path}.{field['name']}" if path else field["name"]
        if field["name"] in written:
            yield from _compare(names, written[field["name"]], field["type"], path=inner, open_records=open_records)
        elif "default" not in field:
            yield f"{inner}: added without a default"


def _removed_symbols(writer: Any, reader: Any, path: str) -> Iterator[str]:
    if "default" not in reader:
        for symbol in writer["symbols"]:
            if symbol not in reader["symbols"]:
                yield f"{path}: symbol {symbol} of {writer['name']} was removed"


def _matches(names: _Names, writer: Any, reader: Any) -> bool:
    """Whether a value of `writer` may be read as `reader`, as far as the two types' own kinds and names tell."""
    writer, reader = _defined(writer, names.writer), _defined(reader, names.reader)
    kind, other = _kind(writer), _kind(reader)
    if kind != other:
        return other in _PROMOTIONS.get(kind, ())
    return kind not in ("record", "enum") or writer["name"] == reader["name"]


def _defined(avro: Any, names: dict[str, Any]) -> Any:
    return names.get(avro.rsplit(".", 1)[-1], avro) if isinstance(avro, str) else avro


def _kind(avro: Any) -> str:
    return avro["type"] if isinstance(avro, dict) else str(avro)


def _title(avro: Any) -> str:
    return f"{_kind(avro)} {avro['name']}" if isinstance(avro, dict) and "name" in avro else _kind(avro)


def _named(avro: Any) -> Iterator[tuple[str, Any]]:
    match avro:
        case list():
            for branch in avro:
                yield from _named(branch)
        case {"type": "record", "name": name, "fields": fields}:
            yield name, avro
            for field in fields:
                yield from _named(field["type"])
        case {"type": "enum", "name": name}:
            yield name, avro
        case {"items": inner} | {"values": inner}:
            yield from _named(inner)
