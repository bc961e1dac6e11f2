"""How much work a schema makes, found before it is done: `$ref`s can make it grow with every level of an answer.

Where several branches lead to one place of an answer and each refers back to the schema, `branches ** levels` ways lead
to its deepest value. The engine judges such an answer in time all the same: it remembers what it found of an object or
list at each reference that leads back to where it came from (`PendingSchemaNode` of the crate jsonschema, as of
jsonschema-rs 0.61). Two things it pays in full, and both are measured here:

* `ways`, by the schema alone: in how many ways one value may be met until a reference leads back;
* `may_list_errors`, by schema and answer: an error is told with all that led to it, and of that nothing is remembered.

Neither limits how deep an answer may be: trees, linked lists and expressions are judged at any depth.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from nightmill.validator.references import REFERENCES, References

MAX_WAYS = 20_000  #: each takes the engine up to 2 µs, for each object and list of an answer
_MAX_LEVELS = 64  #: no answer is nested deeper
_ERROR_STEPS = 10_000  #: each takes the engine up to 50 µs
_ERROR_STEPS_PER_VALUE = 8  #: plain schemas take two or three, whatever the size of the answer

_IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")
_IN_PLACE_BY_NAME = ("dependentSchemas", "dependencies")
_MEANT: dict[str, Any] = {  #: the types of a keyword's value that say something; else an object
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), list),
    "items": (dict, list),
}

_Met = Iterable[tuple[Any, Any]]


class Effort:
    """The work that `schema` makes. Raises ValueError for a reference that leads nowhere, or to where it stands."""

    def __init__(self, schema: Any) -> None:
        # parts are told apart by identity, and what a caller shares between two places stands at both
        schema = self._schema = json.loads(json.dumps(schema))
        self._references = References(schema)
        self.ways = _most_ways(self._in_finishing_order())

    def may_list_errors(self, value: Any) -> bool:
        """Whether the engine can tell in time what is wrong with `value`."""
        limit = max(_ERROR_STEPS, _ERROR_STEPS_PER_VALUE * _values(value))
        steps, work = 0, [(self._schema, value)]
        while work:
            steps += 1
            if steps > limit:
                return False
            schema, at = work.pop()
            if isinstance(schema, dict):
                work.extend(self._met(schema, at))
        return True

    def _in_finishing_order(self) -> dict[int, "_Part"]:
        """All parts that can be reached; those that a part leads to stand before it, except where it leads back."""
        finished: dict[int, _Part] = {}
        entered: dict[int, _Part] = {}
        open_ = [self._schema]
        while open_:
            schema = open_[-1]
            if id(schema) in finished:
                open_.pop()
            elif id(schema) in entered:
                finished[id(schema)] = entered[id(schema)]
                open_.pop()
            else:
                here, below = self._led_to(schema)
                entered[id(schema)] = _Part(schema, [id(each) for each in here], [[*map(id, group)] for group in below])
                inner = [*here, *(each for group in below for each in group)]
                open_.extend(each for each in reversed(inner) if id(each) not in entered)
        return finished

    def _led_to(self, schema: Any) -> tuple[list[Any], list[list[Any]]]:
        """What meets the same value as `schema` does, and in groups what meets one and the same value below it."""
        if not isinstance(schema, dict):
            return [], []
        here = [each for name in REFERENCES if name in schema for each in self._targets(schema, name)]
        here += [each for name in _IN_PLACE if name in schema for each in _listed(schema[name])]
        here += [each for name in _IN_PLACE_BY_NAME for each in _named(schema, name)]
        return here, [group for group in (*_for_names(schema), *_for_positions(schema)) if group]

    def _targets(self, schema: dict[str, Any], name: str) -> list[Any]:
        return self._references.targets(schema, schema[name])

    def _met(self, schema: dict[str, Any], at: Any) -> _Met:
        """The subschemas that a value at `schema` is met by, each with the value it meets."""
        for keyword, part in schema.items():
            if keyword in REFERENCES:
                yield from ((target, at) for target in self._references.targets(schema, part))
            elif keyword in _MEETS and isinstance(part, _MEANT.get(keyword, dict)):
                yield from _MEETS[keyword](part, at, schema)


@dataclass(frozen=True, slots=True)
class _Part:
    """A subschema: what meets the same value, and in groups what meets one and the same value below it."""

    schema: Any
    here: list[int]
    below: list[list[int]]


def _most_ways(parts: Mapping[int, _Part]) -> int:
    """The most ways in which parts meet one value, counted from any part on, level by level; cut above the cap.

    Behind a reference that leads back nothing is counted but what meets the very same value: there the engine has
    remembered, though not of a value that is neither object nor list.
    """
    here = _ways_here(parts)
    rank = {each: number for number, each in enumerate(parts)}
    forward = [
        ([to for to in part.here if rank[to] < rank[each]], [_ahead(group, rank, rank[each]) for group in part.below])
        for each, part in parts.items()
    ]
    most, above = max(here.values()), here
    for level in range(1, _MAX_LEVELS + 1):
        now: dict[int, int] = {}
        for each, (beside, ahead) in zip(parts, forward, strict=True):
            groups = parts[each].below if level == 1 else ahead
            below = max([sum([above[to] for to in group]) for group in groups], default=0)
            now[each] = min(below + sum([now[to] for to in beside]), MAX_WAYS + 1)
        most, above = max(most, *now.values()), now
        if not any(now.values()):
            break
    return most


def _ahead(group: list[int], rank: Mapping[int, int], own: int) -> list[int]:
    return [to for to in group if rank[to] < own]


def _ways_here(parts: Mapping[int, _Part]) -> dict[int, int]:
    """In how many ways parts meet a value that this part meets."""
    ways: dict[int, int] = {}
    try:
        for each in TopologicalSorter({each: part.here for each, part in parts.items()}).static_order():
            ways[each] = min(1 + sum([ways[to] for to in parts[each].here]), MAX_WAYS + 1)
    except CycleError as error:
        names = (parts[each].schema.get(name) for each in error.args[1] for name in REFERENCES)
        raise ValueError(
            f"the reference {next(filter(None, names))} leads back to where it stands and says nothing of a value; "
            "let it stand under properties or items, or leave it out"
        ) from error
    return ways


def _for_names(schema: dict[str, Any]) -> Iterator[list[Any]]:
    """What meets a property's value: of a known name, of any other one; and what meets a name."""
    patterns = _named(schema, "patternProperties")
    rest = _listed(schema.get("unevaluatedProperties"))
    for each in _named(schema, "properties"):
        yield [each, *patterns]
    yield [*patterns, *rest]
    yield [*_listed(schema.get("additionalProperties")), *rest]
    yield _listed(schema.get("propertyNames"))


def _for_positions(schema: dict[str, Any]) -> Iterator[list[Any]]:
    """What meets an element of a list: at a known position, at any other one."""
    first, rest = schema.get("prefixItems"), schema.get("items")
    if isinstance(rest, list):  # as they were called up to draft 2019-09
        first, rest = rest, schema.get("additionalItems")
    always = [*_listed(schema.get("contains")), *_listed(schema.get("unevaluatedItems"))]
    for each in _listed(first):
        yield [each, *always]
    yield [*_listed(rest), *always]


def _named(schema: dict[str, Any], keyword: str) -> list[Any]:
    """As `_listed` under the names of a keyword. A keyword that its draft does not know may have any value."""
    part = schema.get(keyword)
    return _listed(list(part.values())) if isinstance(part, dict) else []


def _listed(part: Any) -> list[Any]:
    """The schemas that are not just true or false."""
    return [each for each in (part if isinstance(part, list) else (part,)) if isinstance(each, dict)]


def _here(part: Any, at: Any, _: dict[str, Any]) -> _Met:
    return ((each, at) for each in (part if isinstance(part, list) else (part,)))


def _dependent(part: Any, at: Any, _: dict[str, Any]) -> _Met:
    return ((each, at) for name, each in part.items() if isinstance(at, dict) and name in at)


def _properties(part: Any, at: Any, _: dict[str, Any]) -> _Met:
    return ((each, at[name]) for name, each in part.items() if isinstance(at, dict) and name in at)


def _patterns(part: Any, at: Any, _: dict[str, Any]) -> _Met:
    """As if every pattern fitted every name."""
    return ((each, inner) for each in part.values() if isinstance(at, dict) for inner in at.values())


def _other_properties(part: Any, at: Any, schema: dict[str, Any]) -> _Met:
    known = schema.get("properties") or ()
    return ((part, inner) for name, inner in (at.items() if isinstance(at, dict) else ()) if name not in known)


def _names(part: Any, at: Any, _: dict[str, Any]) -> _Met:
    return ((part, name) for name in (at if isinstance(at, dict) else ()))


def _elements(part: Any, at: Any, _: dict[str, Any]) -> _Met:
    if not isinstance(at, list):
        return ()
    return zip(part, at, strict=False) if isinstance(part, list) else ((part, inner) for inner in at)


#: keyword → what it leads to
_MEETS: dict[str, Callable[[Any, Any, dict[str, Any]], _Met]] = {
    **dict.fromkeys(_IN_PLACE, _here),
    **dict.fromkeys(_IN_PLACE_BY_NAME, _dependent),
    "properties": _properties,
    "patternProperties": _patterns,
    **dict.fromkeys(("additionalProperties", "unevaluatedProperties"), _other_properties),
    "propertyNames": _names,
    **dict.fromkeys(("prefixItems", "items", "additionalItems", "contains", "unevaluatedItems"), _elements),
}


def _values(value: Any) -> int:
    count, open_ = 0, [value]
    while open_:
        each = open_.pop()
        count += 1
        if isinstance(each, dict | list):
            open_.extend(each.values() if isinstance(each, dict) else each)
    return count
