"""Checks of JSON values, compiled once from tables of fields: a value in, the first problem out, or None.

A check builds no path and no text unless it fails, which keeps strict validation at a few microseconds a request.
Problems are neutral; each provider words them itself (`openai.words`, `anthropic.words`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from pydantic import JsonValue
from pydantic_core import to_json


class Trouble(StrEnum):
    """What is wrong with a value."""

    UNKNOWN = "unknown"  # a field that is not in the table
    MISSING = "missing"
    TYPE = "type"  # `expected` names the type wanted
    CHOICE = "choice"  # `expected` lists what is allowed
    BELOW = "below"  # a number; `limit` is the least allowed
    ABOVE = "above"
    EMPTY = "empty"  # an array or text without content
    SHORT = "short"
    LONG = "long"  # an array, object or text; `limit` is the most allowed
    PATTERN = "pattern"  # a text; `expected` is the pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The first thing wrong with a value, and where."""

    trouble: Trouble
    at: tuple[str | int, ...] = ()
    expected: str = ""
    limit: float = 0
    got: JsonValue = None

    def under(self, step: str | int) -> Problem:
        """The same problem seen from the container that holds the value at `step`."""
        return replace(self, at=(step, *self.at))


Check = Callable[[JsonValue], Problem | None]
Fields = Mapping[str, Check]

TYPE_NAMES: dict[type, str] = {
    str: "a string",
    int: "an integer",
    float: "a decimal",
    bool: "a boolean",
    list: "an array",
    dict: "an object",
    type(None): "null",
}


def anything(value: JsonValue) -> Problem | None:
    """Every value is fine."""
    return None


def flag(value: JsonValue) -> Problem | None:
    """true or false."""
    return None if value is True or value is False else _type("a boolean", value)


def text(*, shortest: int = 0, longest: int | None = None, pattern: str | None = None) -> Check:
    """A string with its length in characters."""
    # Python's `$` also stands before a line feed at the end, that of providers does not
    found = None if pattern is None else re.compile(re.sub(r"\$$", r"\\Z", pattern)).search

    def check(value: JsonValue) -> Problem | None:
        if not isinstance(value, str):
            return _type("a string", value)
        if len(value) < shortest:
            return Problem(trouble=Trouble.EMPTY if not value else Trouble.SHORT, limit=shortest, got=value)
        if longest is not None and len(value) > longest:
            return Problem(trouble=Trouble.LONG, limit=longest, got=value)
        if found is not None and found(value) is None:
            return Problem(trouble=Trouble.PATTERN, expected=pattern or "", got=value)
        return None

    return check


def integer(*, least: int | None = None, most: int | None = None) -> Check:
    """A whole number; `true` is none."""

    def check(value: JsonValue) -> Problem | None:
        if type(value) is not int:
            return _type("an integer", value)
        return _range(value, least, most, "an integer")

    return check


def decimal(least: float, most: float) -> Check:
    """A number within both limits."""

    def check(value: JsonValue) -> Problem | None:
        if type(value) is not int and type(value) is not float:
            return _type("a decimal", value)
        return _range(value, least, most, "a decimal")

    return check


def choice(*names: str) -> Check:
    """One of a few texts."""
    allowed = frozenset(names)
    listed = "\n".join(names)

    def check(value: JsonValue) -> Problem | None:
        if not isinstance(value, str):
            return _type("a string", value)
        return None if value in allowed else Problem(trouble=Trouble.CHOICE, expected=listed, got=value)

    return check


def nullable(inner: Check) -> Check:
    """null, or what `inner` accepts."""

    def check(value: JsonValue) -> Problem | None:
        return None if value is None else inner(value)

    return check


def remembered(inner: Check) -> Check:
    """The same check, which knows the value that passed last: callers send the same large value again and again."""
    passed = b""

    def check(value: JsonValue) -> Problem | None:
        nonlocal passed
        encoded = to_json(value)
        if encoded == passed:
            return None
        problem = inner(value)
        if problem is None:
            passed = encoded
        return problem

    return check


def array(item: Check, *, shortest: int = 0, longest: int | None = None) -> Check:
    """A list whose items all pass."""

    def check(value: JsonValue) -> Problem | None:
        if not isinstance(value, list):
            return _type("an array", value)
        if len(value) < shortest:
            return Problem(trouble=Trouble.EMPTY if not value else Trouble.SHORT, limit=shortest, got=len(value))
        if longest is not None and len(value) > longest:
            return Problem(trouble=Trouble.LONG, limit=longest, got=len(value))
        for place, one in enumerate(value):
            problem = item(one)
            if problem is not None:
                return problem.under(place)
        return None

    return check


def record(fields: Fields, *required: str, open_ended: bool = False) -> Check:
    """An object with these fields and, unless it is open-ended, no others. A required null counts as missing."""
    known = dict(fields).get

    def check(value: JsonValue) -> Problem | None:
        if not isinstance(value, dict):
            return _type("an object", value)
        for name in required:
            if value.get(name) is None:
                return Problem(trouble=Trouble.MISSING, at=(name,))
        for name, inner in value.items():
            field = known(name)
            if field is anything:
                continue
            if field is None:
                if open_ended:
                    continue
                return Problem(trouble=Trouble.UNKNOWN, at=(name,), got=name)
            problem = field(inner)
            if problem is not None:
                return problem.under(name)
        return None

    return check


def mapping(entry: Check, *, most: int | None = None, longest_key: int | None = None) -> Check:
    """An object with free names."""

    def check(value: JsonValue) -> Problem | None:
        if not isinstance(value, dict):
            return _type("an object", value)
        if most is not None and len(value) > most:
            return Problem(trouble=Trouble.LONG, limit=most, got=len(value))
        for name, inner in value.items():
            if longest_key is not None and len(name) > longest_key:
                return Problem(trouble=Trouble.LONG, at=(name,), limit=longest_key, got=name)
            problem = entry(inner)
            if problem is not None:
                return problem.under(name)
        return None

    return check


def tagged(tag: str, kinds: Mapping[str, Check], *, default: str | None = None) -> Check:
    """An object whose field `tag` says which check is for it."""
    allowed = "\n".join(kinds)

    def check(value: JsonValue) -> Problem | None:
        if not isinstance(value, dict):
            return _type("an object", value)
        name = value.get(tag, default)
        if name is None:
            return Problem(trouble=Trouble.MISSING, at=(tag,))
        inner = kinds.get(name) if isinstance(name, str) else None
        if inner is None:
            return Problem(trouble=Trouble.CHOICE, at=(tag,), expected=allowed, got=name)
        return inner(value)

    return check


def by_type(expected: str, **checks: Check) -> Check:
    """Texts, arrays or objects, each with its own check: `by_type("a string or ...", text=..., array=...)`."""
    on_text, on_array, on_object = checks.get("text"), checks.get("array"), checks.get("record")

    def check(value: JsonValue) -> Problem | None:
        chosen = None
        if isinstance(value, str):
            chosen = on_text
        elif isinstance(value, list):
            chosen = on_array
        elif isinstance(value, dict):
            chosen = on_object
        return _type(expected, value) if chosen is None else chosen(value)

    return check


def type_name(value: JsonValue) -> str:
    """`a string`, `an integer`, ... as providers say it."""
    return TYPE_NAMES.get(type(value), "an object")


def _type(expected: str, value: JsonValue) -> Problem:
    return Problem(trouble=Trouble.TYPE, expected=expected, got=value)


def _range(value: float, least: float | None, most: float | None, kind: str) -> Problem | None:
    if least is not None and value < least:
        return Problem(trouble=Trouble.BELOW, limit=least, got=value, expected=kind)
    if most is not None and value > most:
        return Problem(trouble=Trouble.ABOVE, limit=most, got=value, expected=kind)
    return None
