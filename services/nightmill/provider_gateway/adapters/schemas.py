"""Which output schemas a provider's structured output can hold, and the form in which it takes them. Pure.

Rules: OpenAI, "Structured Outputs: supported schemas"; Anthropic, "Structured outputs: JSON Schema limitations" (both
read 2026-11-29). What a provider can not hold is left to the prompt; the validator checks every answer all the same.
"""

from typing import Any

#: OpenAI's strict mode refuses a schema with one of these
_NOT_STRICT = frozenset(
    {
        *("allOf", "oneOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "patternProperties"),
        *("prefixItems", "contains", "uniqueItems", "propertyNames", "minProperties", "maxProperties"),
        *("minLength", "maxLength", "unevaluatedItems", "unevaluatedProperties", "default"),
    }
)
#: Anthropic takes a schema without these: what they forbid, the validator forbids
_DROPPED = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "pattern", "minItems", "maxItems", "uniqueItems", "contains"),
        *("minProperties", "maxProperties", "propertyNames", "default", "examples", "$schema", "$id", "$comment"),
    }
)
_TAKEN = frozenset({"type", "description", "title", "enum", "const", "format", "properties", "required", "items"})
_MOST_DEEP = 10


def is_strict(schema: dict[str, Any]) -> bool:
    """Whether OpenAI takes `schema` with `strict`: closed objects, every property required, no refused keyword."""
    return schema.get("type") == "object" and "anyOf" not in schema and _strict(schema, 0)


def closed(schema: dict[str, Any]) -> dict[str, Any] | None:
    """`schema` as Anthropic takes it: objects closed, limits of values left out; None where that can not be."""
    return _closed(schema, 0) if schema.get("type") == "object" else None


def _strict(schema: Any, depth: int) -> bool:
    if not isinstance(schema, dict) or depth > _MOST_DEEP or _NOT_STRICT & schema.keys():
        return False
    properties = schema.get("properties")
    if properties is not None or "object" in _types(schema):
        if not isinstance(properties, dict) or schema.get("additionalProperties") is not False:
            return False
        if _required(schema) != set(properties):
            return False
    return all(_strict(inner, depth + 1) for inner in _inner(schema))


def _inner(schema: dict[str, Any]) -> list[Any]:
    """The schemas right inside of one."""
    named = [schema.get(name) for name in ("properties", "$defs", "definitions")]
    found = [inner for group in named if isinstance(group, dict) for inner in group.values()]
    return [*found, *_list(schema, "anyOf"), *([schema["items"]] if "items" in schema else [])]


def _closed(schema: Any, depth: int) -> dict[str, Any] | None:
    if not isinstance(schema, dict) or depth > _MOST_DEEP:
        return None
    kept = {name: value for name, value in schema.items() if name not in _DROPPED}
    # an answer that fits exactly one of several schemas fits one of them
    choices = _list(kept, "anyOf") or _list(kept, "oneOf")
    kept = {name: value for name, value in kept.items() if name not in ("anyOf", "oneOf")}
    if kept.keys() - _TAKEN - {"additionalProperties"}:
        return None
    inner = _closed_inner(kept, choices, depth)
    if inner is None or ("object" in _types(kept) and not _closable(kept)):
        return None
    return {**kept, **inner}


def _closable(schema: dict[str, Any]) -> bool:
    """Whether an object may be closed: all that it must have is named, and nothing else is described."""
    properties = schema.get("properties")
    named = isinstance(properties, dict) and _required(schema) <= set(properties)
    return named and isinstance(schema.get("additionalProperties", True), bool)


def _closed_inner(schema: dict[str, Any], choices: list[Any], depth: int) -> dict[str, Any] | None:
    """The parts of a schema that hold others, closed; None where one of them can not be."""
    made: dict[str, Any] = {}
    if isinstance(schema.get("properties"), dict):
        made["properties"] = {name: _closed(inner, depth + 1) for name, inner in schema["properties"].items()}
        made["additionalProperties"] = False
        if None in made["properties"].values():
            return None
    if "items" in schema:
        made["items"] = _closed(schema["items"], depth + 1)
    if choices:
        made["anyOf"] = [_closed(choice, depth + 1) for choice in choices]
    return None if made.get("items", {}) is None or None in made.get("anyOf", ()) else made


def _types(schema: dict[str, Any]) -> tuple[Any, ...]:
    kind = schema.get("type")
    return tuple(kind) if isinstance(kind, list) else (kind,)


def _list(schema: dict[str, Any], name: str) -> list[Any]:
    value = schema.get(name)
    return value if isinstance(value, list) else []


def _required(schema: dict[str, Any]) -> set[str]:
    return {name for name in _list(schema, "required") if isinstance(name, str)}
