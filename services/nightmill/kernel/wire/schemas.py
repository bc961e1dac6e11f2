"""Reads `schemas/`: every version of every message, its number on the wire, and the types they share.

A message that holds a type by its name holds version 1 of it, or the version that its `holds` names, for example
`"holds": {"Usage": 2}`; that goes for all that is inside, too. So a new version of a type changes no published message:
each that is to hold it gets a new version of its own.
"""

import json
import re
from functools import lru_cache
from typing import Any

import yaml

from nightmill.kernel.resources import resource

_VERSION = re.compile(r"^(?P<name>\w+)\.v(?P<version>\d+)$")


@lru_cache(maxsize=1)
def schema_ids() -> dict[str, int]:
    """Number on the wire by `<message>.v<N>`, from contracts/schema-ids.yaml."""
    text = resource("contracts", "schema-ids.yaml").read_text(encoding="utf-8")
    ids: dict[str, int] = yaml.safe_load(text)
    return ids


@lru_cache(maxsize=1)
def all_schemas() -> dict[str, dict[str, Any]]:
    """Every message schema by `<message>.v<N>`, as written."""
    return {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(resource("schemas").glob("*.avsc"))}


@lru_cache(maxsize=1)
def shared_types() -> dict[str, dict[str, Any]]:
    """Every type that several messages hold by `<type>.v<N>`, as written."""
    files = sorted(resource("schemas", "types").glob("*.avsc"))
    return {path.stem: json.loads(path.read_text("utf-8")) for path in files}


def newest(stems: list[str]) -> list[str]:
    """Of `<message>.v<N>` stems, the newest of each message."""
    best: dict[str, int] = {}
    for stem in stems:
        match = _VERSION.match(stem)
        if match is None:
            raise ValueError(f"schemas/{stem}.avsc: a schema file is named <message>.v<N>.avsc")
        best[match["name"]] = max(best.get(match["name"], 0), int(match["version"]))
    return [f"{name}.v{version}" for name, version in best.items()]


@lru_cache(maxsize=1)
def newest_schemas() -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Full names of the newest messages, and every named type they may hold (inline enums pulled out)."""
    written, shared = (
        {f"nightmill.{files[stem]['name']}": files[stem] for stem in newest(list(files))}
        for files in (all_schemas(), shared_types())
    )
    named: dict[str, dict[str, Any]] = {}
    for full, schema in {**shared, **written}.items():
        fields = [{**field, "type": _pull_inline(field["type"], named)} for field in schema.get("fields", ())]
        named[full] = {**schema, "fields": fields} if fields else schema
    return list(written), named


def _pull_inline(avro: Any, named: dict[str, dict[str, Any]]) -> Any:
    if isinstance(avro, dict) and avro["type"] in ("enum", "record"):
        full = f"{avro.get('namespace', 'nightmill')}.{avro['name']}"
        named[full] = avro
        return full
    if isinstance(avro, list):
        return [_pull_inline(inner, named) for inner in avro]
    return avro


def self_contained(stem: str) -> dict[str, Any]:
    """The schema `<message>.v<N>` with every type it names written out at its first use."""
    schema = all_schemas()[stem]
    inlined: dict[str, Any] = _inline(schema, schema.get("holds", {}), set())
    return inlined


def _inline(avro: Any, holds: dict[str, int], seen: set[str]) -> Any:
    if isinstance(avro, list):
        return [_inline(inner, holds, seen) for inner in avro]
    if isinstance(avro, str) and avro.startswith("nightmill."):
        name = avro.removeprefix("nightmill.")
        return avro if avro in seen else _inline(_definitions()[name, holds.get(name, 1)], holds, seen)
    if not isinstance(avro, dict):
        return avro
    if avro["type"] == "array":
        return {**avro, "items": _inline(avro["items"], holds, seen)}
    if avro["type"] in ("record", "enum"):
        seen.add(f"nightmill.{avro['name']}")
    if avro["type"] == "record":
        fields = [{**field, "type": _inline(field["type"], holds, seen)} for field in avro["fields"]]
        return {**avro, "namespace": "nightmill", "fields": fields}
    return avro


@lru_cache(maxsize=1)
def _definitions() -> dict[tuple[str, int], dict[str, Any]]:
    """Messages and shared types by name and version."""
    files = {**shared_types(), **all_schemas()}
    return {(schema["name"], int(stem.rsplit(".v", 1)[1])): schema for stem, schema in files.items()}
