"""Instances of schemas that are asked for again and again: the schema is walked once, and each call only draws.

A plan gives exactly what `instances.instance` gives; what it does not know by itself it leaves to it, node by node.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from nightmill.provider_simulator.draw import Draw
from nightmill.provider_simulator.instances import MAX_DEPTH, Maker, Schema, limits, quote, rounded

Plan = Callable[[Draw, str], JsonValue]

_COMPOSED = frozenset({"$ref", "allOf", "anyOf", "oneOf"})
_ODD_NUMBERS = frozenset({"multipleOf", "exclusiveMinimum", "exclusiveMaximum"})
_ODD_TEXTS = frozenset({"default", "examples", "format", "minLength", "maxLength"})
_PLANS = 256


def plan_of(schema: JsonValue) -> Plan:
    """What makes values that `schema` accepts, as `instances.instance` makes them."""
    return _plan(to_json(schema))


@lru_cache(maxsize=_PLANS)
def _plan(encoded: bytes) -> Plan:
    root: JsonValue = from_json(encoded)
    return _node(root, root, 0)


def _node(schema: JsonValue, root: JsonValue, depth: int) -> Plan:
    if isinstance(schema, dict) and not _COMPOSED & schema.keys():
        found = _known(schema, root, depth)
        if found is not None:
            return found

    def walked(draw: Draw, source: str) -> JsonValue:
        return Maker(root=root, draw=draw, source=source).make(schema, depth)

    return walked


def _known(schema: Schema, root: JsonValue, depth: int) -> Plan | None:
    """The plan of a node of a common kind."""
    if "const" in schema:
        const = schema["const"]
        return lambda draw, source: const
    choices = schema.get("enum")
    if isinstance(choices, list) and choices:
        return lambda draw, source: choices[draw.below(len(choices))]
    match schema.get("type"):
        case "object" if depth < MAX_DEPTH:
            return _object(schema, root, depth)
        case "string" if not _ODD_TEXTS & schema.keys():
            return lambda draw, source: quote(source, draw)
        case "boolean":
            return lambda draw, source: draw.below(2) == 1
        case "number" if not _ODD_NUMBERS & schema.keys():
            low, high = limits(schema)
            return lambda draw, source: rounded(low, high, draw)
        case _:
            return None


def _object(schema: Schema, root: JsonValue, depth: int) -> Plan:
    properties, required = schema.get("properties"), schema.get("required")
    known = properties if isinstance(properties, dict) else {}
    more = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    names = [*known, *(name for name in more if name not in known)]
    fields = [(name, _node(known.get(name, {}), root, depth + 1)) for name in names]
    return lambda draw, source: {name: plan(draw, source) for name, plan in fields}
