"""Reads `schemas/`: every version of every message, its number on the wire, and the types they share."""

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
    """Types that several messages hold, by full name."""
    files = sorted(resource("schemas", "types").glob("*.avsc"))
    return {f"nightmill.{schema['name']}": schema for schema in (json.loads(f.read_text("utf-8")) for f in files)}


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
    written = {f"nightmill.{all_schemas()[stem]['name']}": all_schemas()[stem] for stem in newest(list(all_schemas()))}
    named: dict[str, dict[str, Any]] = {}
    for full, schema in {**shared_types(), **written}.items():
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
    inlined: dict[str, Any] = _inline(all_schemas()[stem], set())
    return inlined


def _inline(avro: Any, seen: set[str]) -> Any:
    if isinstance(avro, list):
        return [_inline(inner, seen) for inner in avro]
    if isinstance(avro, str) and avro.startswith("nightmill."):
        return avro if avro in seen else _inline(_definition(avro), seen)
    if not isinstance(avro, dict):
        return avro
    if avro["type"] == "array":
        return {**avro, "items": _inline(avro["items"], seen)}
    if avro["type"] in ("record", "enum"):
        seen.add(f"nightmill.{avro['name']}")
    if avro["type"] == "record":
        fields = [{**field, "type": _inline(field["type"], seen)} for field in avro["fields"]]
        return {**avro, "namespace": "nightmill", "fields": fields}
    return avro


def _definition(name: str) -> dict[str, Any]:
    _, named = newest_schemas()
    return named[name]
