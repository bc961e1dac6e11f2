"""From an answer's text to a value: finish reason first, then one outer code fence for free, then strict JSON (Q1).

An answer that was cut short is refused even where its text happens to parse: it may be a shorter truth.
"""

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from nightmill.kernel.domain.lifecycle import VerdictKind

_FENCE = re.compile(r"^\s*```[a-zA-Z]*[ \t\r]*\n(?P<body>.*?)\n?```\s*$", re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_SHOWN = 200
_MAX_DEPTH = 64
_TOO_DEEP = f"nested deeper than {_MAX_DEPTH} levels"

#: what a finish reason other than a natural end means (providers.md §2, rows 32-37)
_FINISH = {
    "length": VerdictKind.REPAIRABLE,
    "max_tokens": VerdictKind.REPAIRABLE,
    "model_context_window_exceeded": VerdictKind.REPAIRABLE,
    "pause_turn": VerdictKind.REPAIRABLE,
    "abort": VerdictKind.REPAIRABLE,
    "repetition": VerdictKind.REPAIRABLE,
    "tool_calls": VerdictKind.REPAIRABLE,
    "tool_use": VerdictKind.REPAIRABLE,
    "function_call": VerdictKind.REPAIRABLE,
    "content_filter": VerdictKind.REVIEW,
    "refusal": VerdictKind.REVIEW,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a rule found wrong."""

    kind: VerdictKind
    rule: str
    field: str | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True)
class Parsed:
    """A value that an answer's text stands for."""

    value: Any


class _NotStrict(ValueError):
    """JSON that Python accepts and the standard does not, or that means two things at once."""


def read_answer(text: str, finish_reason: str | None) -> Parsed | Finding:
    """The value of an answer, or why it has none."""
    kind = _FINISH.get(finish_reason or "")
    if kind is not None:
        return Finding(kind=kind, rule="finish_reason", value=finish_reason)
    body = text
    fenced = _FENCE.match(text)
    if fenced is not None:
        body = fenced["body"]
    try:
        return Parsed(_strict(body))
    except _NotStrict as error:
        return Finding(kind=VerdictKind.REPAIRABLE, rule="json", value=str(error))
    except RecursionError:
        return Finding(kind=VerdictKind.REPAIRABLE, rule="json", value=_TOO_DEEP)
    except ValueError:
        return Finding(kind=VerdictKind.REPAIRABLE, rule="json", value=shown(text))


def lookup(value: Any, field: str) -> Any:
    """The value at a dotted field (`a.b`, list positions as numbers), or None where there is none."""
    for part in field.split("."):
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


def shown(value: Any, *, limit: int = _SHOWN) -> str:
    """A value for a verdict: text as it is, all else as JSON, cut to `limit` characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _strict(body: str) -> Any:
    value = _DECODER.decode(body)
    if body.count("[") + body.count("{") > _MAX_DEPTH and _depth(value) > _MAX_DEPTH:
        raise _NotStrict(_TOO_DEEP)
    if _SURROGATE.search(body):
        _whole_characters(value)
    return value


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise _NotStrict(f"{shown(text)} is beyond any number that can be kept")
    return number


def _depth(value: Any) -> int:
    """Levels of objects and lists, without recursion: the value may be as deep as the parser allows."""
    depth, level = 0, [value]
    while level := [each for each in level if isinstance(each, dict | list)]:
        depth += 1
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
    return depth


def _whole_characters(value: Any) -> None:
    """Half of a surrogate pair is no character: it could be neither checked nor stored."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise _NotStrict("an escape stands for half a character") from error


def _no_constant(name: str) -> Any:
    raise _NotStrict(f"{name} is not JSON")


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _NotStrict("a name stands twice in one object")
    return result


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_no_constant, object_pairs_hook=_no_repeats)
