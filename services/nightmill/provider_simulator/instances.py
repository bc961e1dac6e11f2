"""An instance of a JSON Schema, the same one for the same digest.

Covers what providers accept for structured output: enum, const, types, ranges, lengths, arrays, objects, local
references, anyOf, oneOf and allOf. Texts are quoted from the source where it has words, so a rule that asks for a
quote finds one. A `pattern` is met only if `default`, `examples` or the quote happens to match it.
"""

from __future__ import annotations

import math

from pydantic import JsonValue

from nightmill.provider_simulator.draw import Draw

MAX_DEPTH = 8  # deeper than this only what is required, so that recursive schemas end
_STEPS = 1000  # numbers are drawn on a grid of this many steps
_WORDS = ("north", "river", "ledger", "stone", "harbour", "signal", "winter", "copper", "meadow", "orbit")
_MAX_QUOTE_WORDS = 8
_FORMATS: dict[str, str] = {
    "date": "2026-03-14",
    "time": "09:26:53Z",
    "date-time": "2026-03-14T09:26:53Z",
    "duration": "P3D",
    "email": "reader@example.org",
    "hostname": "example.org",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.org/",
    "uuid": "3f2b8c1e-5d47-4a7b-9c0e-1f6a2d8b4e90",
}

Schema = dict[str, JsonValue]


def instance(schema: JsonValue, *, draw: Draw, source: str) -> JsonValue:
    """A value that `schema` accepts; `source` is the text to quote from."""
    return Maker(root=schema, draw=draw, source=source).make(schema, 0)


def quote(source: str, draw: Draw) -> str:
    """A few words that stand together in the second half of `source` (instructions come first), else made up."""
    words = source[len(source) // 2 :].split(None, 400)[:400]
    if len(words) < 3:
        words = source.split(None, 400)[:400]
    if not words:
        return " ".join(_WORDS[draw.below(len(_WORDS))] for _ in range(3 + draw.below(4)))
    start = 1 + draw.below(len(words) - 1) if len(words) > 2 else 0  # the first word may be cut in half
    return " ".join(words[start : start + 3 + draw.below(_MAX_QUOTE_WORDS - 2)])


class Maker:
    """Walks one schema and draws as it goes."""

    def __init__(self, *, root: JsonValue, draw: Draw, source: str) -> None:
        self._root = root
        self._draw = draw
        self._source = source

    def make(self, schema: JsonValue, depth: int) -> JsonValue:
        """An instance of `schema`, which stands at `depth` in the whole one."""
        if not isinstance(schema, dict):
            return quote(self._source, self._draw)
        schema = self._resolved(schema)
        if "const" in schema:
            return schema["const"]
        choices = schema.get("enum")
        if isinstance(choices, list) and choices:
            return choices[self._draw.below(len(choices))]
        for key in ("anyOf", "oneOf"):
            branches = schema.get(key)
            if isinstance(branches, list) and branches:
                return self.make(self._branch(schema, key, branches, depth), depth)
        return self._typed(schema, depth)

    def _typed(self, schema: Schema, depth: int) -> JsonValue:
        match self._type(schema, depth):
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "integer":
                return self._integer(schema)
            case "number":
                return self._number(schema)
            case "boolean":
                return self._draw.below(2) == 1
            case "null":
                return None
            case _:
                return self._text(schema)

    def _resolved(self, schema: Schema) -> Schema:
        """The schema with local references followed and `allOf` folded in."""
        for _ in range(MAX_DEPTH):
            target = schema.get("$ref")
            if not isinstance(target, str):
                break
            schema = {**self._target(target), **{key: value for key, value in schema.items() if key != "$ref"}}
        parts = schema.get("allOf")
        if not isinstance(parts, list):
            return schema
        merged: Schema = {key: value for key, value in schema.items() if key != "allOf"}
        for part in parts:
            if isinstance(part, dict):
                merged = _merge(merged, self._resolved(part))
        return merged

    def _target(self, reference: str) -> Schema:
        node: JsonValue = self._root
        for step in reference.removeprefix("#").strip("/").split("/"):
            if step and isinstance(node, dict):
                node = node.get(step.replace("~1", "/").replace("~0", "~"))
        return node if isinstance(node, dict) else {}

    def _branch(self, schema: Schema, key: str, branches: list[JsonValue], depth: int) -> JsonValue:
        """One branch with its neighbours' keywords; when it gets deep, the branch that ends soonest."""
        usable = [branch for branch in branches if isinstance(branch, dict)]
        if not usable:
            return {}
        chosen = usable[self._draw.below(len(usable))]
        if depth >= MAX_DEPTH:
            chosen = next((branch for branch in usable if _ends(branch)), usable[0])
        rest: Schema = {name: value for name, value in schema.items() if name != key}
        return _merge(rest, self._resolved(chosen))

    def _type(self, schema: Schema, depth: int) -> str:
        stated = schema.get("type")
        if isinstance(stated, list):
            names = [name for name in stated if isinstance(name, str)] or ["string"]
            if depth >= MAX_DEPTH and "null" in names:
                return "null"
            return names[self._draw.below(len(names))]
        if isinstance(stated, str):
            return stated
        if "properties" in schema or "required" in schema:
            return "object"
        if "items" in schema or "prefixItems" in schema:
            return "array"
        return "number" if "minimum" in schema or "maximum" in schema else "string"

    def _object(self, schema: Schema, depth: int) -> JsonValue:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        required = schema.get("required")
        names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
        if depth < MAX_DEPTH:
            names = [*properties, *(name for name in names if name not in properties)]
        return {name: self.make(properties.get(name, {}), depth + 1) for name in names}

    def _array(self, schema: Schema, depth: int) -> JsonValue:
        fewest = _count(schema.get("minItems"), 0)
        most = _count(schema.get("maxItems"), max(fewest, 3))
        length = fewest if depth >= MAX_DEPTH else min(most, max(fewest, 1) + self._draw.below(3))
        prefix = schema.get("prefixItems")
        prefix = prefix if isinstance(prefix, list) else []
        items = schema.get("items", {})
        if items is False:
            length = min(length, len(prefix))
        values = [self.make(prefix[at] if at < len(prefix) else items, depth + 1) for at in range(length)]
        return _distinct(values) if schema.get("uniqueItems") and len(values) > fewest else values

    def _integer(self, schema: Schema) -> JsonValue:
        low, high = limits(schema)
        first, last = math.ceil(low), math.floor(high)
        if low == schema.get("exclusiveMinimum") and first == low:
            first += 1
        if high == schema.get("exclusiveMaximum") and last == high:
            last -= 1
        step = _number(schema.get("multipleOf"))
        if step is not None and step >= 1:
            return int(step) * self._between(math.ceil(first / step), math.floor(last / step))
        return self._between(first, last)

    def _number(self, schema: Schema) -> JsonValue:
        low, high = limits(schema)
        step = _number(schema.get("multipleOf"))
        if step is not None and step > 0:
            return round(step * self._between(math.ceil(low / step), math.floor(high / step)), 10)
        return rounded(low, high, self._draw)

    def _between(self, first: int, last: int) -> int:
        return first + self._draw.below(max(1, last - first + 1))

    def _text(self, schema: Schema) -> JsonValue:
        for key in ("default", "examples"):
            value = schema.get(key)
            value = value[0] if isinstance(value, list) and value else value
            if isinstance(value, str):
                return value
        known = _FORMATS.get(str(schema.get("format")))
        if known is not None:
            return known
        text = quote(self._source, self._draw)
        fewest = _count(schema.get("minLength"), 0)
        while len(text) < fewest:
            text = f"{text} {_WORDS[self._draw.below(len(_WORDS))]}"
        return text[: _count(schema.get("maxLength"), len(text))]


def rounded(low: float, high: float, draw: Draw) -> float:
    """A number strictly between the limits, with three decimals where those are enough."""
    drawn = low + (high - low) * (1 + draw.below(_STEPS - 1)) / _STEPS
    short = math.floor(drawn * _STEPS + 0.5) / _STEPS  # `round` is ten times slower
    return short if low < short < high else drawn


def _ends(branch: Schema) -> bool:
    return branch.get("type") not in ("object", "array") and "$ref" not in branch


def _merge(left: Schema, right: Schema) -> Schema:
    """Both schemas at once, as far as instances of objects are concerned; elsewhere the right one wins."""
    merged: Schema = {**left, **right}
    for key in ("properties", "$defs"):
        ours, theirs = left.get(key), right.get(key)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            merged[key] = {**ours, **theirs}
    ours, theirs = left.get("required"), right.get("required")
    if isinstance(ours, list) and isinstance(theirs, list):
        merged["required"] = [*ours, *(name for name in theirs if name not in ours)]
    return merged


def limits(schema: Schema) -> tuple[float, float]:
    """The least and the largest number that the schema names, or 100 apart where it names one or none."""
    lows = [v for v in (_number(schema.get("minimum")), _number(schema.get("exclusiveMinimum"))) if v is not None]
    highs = [v for v in (_number(schema.get("maximum")), _number(schema.get("exclusiveMaximum"))) if v is not None]
    if lows:
        return max(lows), min(highs) if highs else max(lows) + 100
    return (min(0.0, min(highs) - 100), min(highs)) if highs else (0.0, 100.0)


def _number(value: JsonValue) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _count(value: JsonValue, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else otherwise


def _distinct(values: list[JsonValue]) -> list[JsonValue]:
    kept: list[JsonValue] = []
    for value in values:
        if value not in kept:
            kept.append(value)
    return kept
