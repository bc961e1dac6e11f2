"""Lines that differ from an earlier one in nothing but their id and their last text, and how such a line is read.

A batch is mostly one prompt over many documents. Where all bytes of a line around those two texts are the same as in a
line that was read before, all that was found out about them holds again: it is the same JSON value but for the two
texts, and no check asks more of a last text than that it is one and not empty. So only the two are read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from pydantic import JsonValue
from pydantic_core import from_json

from nightmill.provider_simulator.asks import Ask, AskPattern, Object, pattern_of

_MOST_SHAPES = 4
_LONGEST_PAUSE = 1023
_HOLDERS = ("messages", "input", "content", "text")  # names under which the last text is
_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')  # the texts of a line that is known to be JSON
_PROBE_ID, _PROBE_TEXT = "a probe", "another probe"

Path = tuple[str | int, ...]


@dataclass(slots=True, kw_only=True)
class Shape:
    """The bytes around the two texts, and the object that they came from."""

    head: bytes  # up to and with the quote before the id
    middle: bytes  # from the quote after the id to the quote before the text
    tail: bytes
    data: Object
    path: Path  # to the text
    checked_by: object = None  # under whose rules a line of this shape was good
    asks: AskPattern | None = None  # of such lines

    def read(self, raw: bytes) -> Line | None:
        """The line, if it has this shape."""
        head, middle, tail = self.head, self.middle, self.tail
        end = raw.find(b'"', len(head))
        if not (raw.startswith(middle, end) and raw.endswith(tail) and raw.startswith(head)):
            return None
        begin, stop = end + len(middle), len(raw) - len(tail)
        try:
            custom_id = raw[len(head) : end].decode("ascii")
            text = from_json(raw[begin - 1 : stop + 1], cache_strings="none")
        except ValueError:  # other letters; no text, or not one alone
            return None
        if begin >= stop or "\\" in custom_id or not custom_id.isprintable():
            return None
        return Line(self, custom_id, text)


class Line(NamedTuple):
    """One line: whole, or what it has of its own in a shape."""

    shape: Shape | None  # None: one that no other line is known to have
    custom_id: JsonValue
    text: str = ""
    whole: Object | None = None

    def is_checked(self, checker: object) -> bool:
        """Whether a line of its shape was good under these rules."""
        return self.shape is not None and self.shape.checked_by is checker

    def ask(self, checker: object) -> Ask | None:
        """What it asks, if that is known from a line which was good under these rules."""
        shape = self.shape
        if shape is None or shape.asks is None or shape.checked_by is not checker:
            return None
        return shape.asks.ask_with(self.text)

    def data(self) -> Object:
        """The line's object."""
        if self.shape is None or self.whole is not None:
            return self.whole or {}
        return {**_with(self.shape.data, self.shape.path, self.text), "custom_id": self.custom_id}

    def passed(self, checker: object, ask: Ask | None = None) -> None:
        """The line is good under these rules, and that is what it asks."""
        if self.shape is not None and self.shape.checked_by is not checker:
            self.shape.checked_by = checker
            self.shape.asks = None if ask is None else pattern_of(ask, self.text)


class LineReader:
    """Reads the lines of one file; `body` is where the request is in each."""

    def __init__(self, body: str) -> None:
        self._body = body
        self._shapes: list[Shape] = []  # the one that was met last comes first
        self._rest = 0  # so many lines go by before another shape is learned
        self._pause = 0  # grows while shapes are learned that no other line has

    def read(self, raw: bytes) -> Line | None:
        """The line, or None if it is no JSON object."""
        for place, shape in enumerate(self._shapes):
            line = shape.read(raw)
            if line is not None:
                if place:
                    self._shapes.insert(0, self._shapes.pop(place))
                self._pause = 0
                return line
        data = parsed(raw)
        return None if data is None else self._whole(raw, data)

    def _whole(self, raw: bytes, data: Object) -> Line:
        shape = None
        if self._rest:
            self._rest -= 1
        else:
            self._rest, self._pause = self._pause, min(2 * self._pause + 1, _LONGEST_PAUSE)
            shape = shape_of(raw, data, self._body)
        if shape is None:
            return Line(None, data.get("custom_id"), "", data)
        self._shapes = [shape, *self._shapes[: _MOST_SHAPES - 1]]
        return Line(shape, data["custom_id"], str(_at(data, shape.path)), data)


def parsed(raw: bytes) -> Object | None:
    """The line's object, or None."""
    try:
        value = from_json(raw, allow_inf_nan=False, cache_strings="keys")  # the texts are seldom the same
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def shape_of(raw: bytes, data: Object, body: str) -> Shape | None:
    """The shape of a line, or None where it has not both texts, the id first."""
    path = _last_text(data.get(body), (body,))
    if path is None:
        return None
    spans = [match.span() for match in _TEXT.finditer(raw)]
    custom_id, text = data.get("custom_id"), _at(data, path)
    first = next((span for span in spans if from_json(raw[slice(*span)]) == custom_id), None)
    last = next((span for span in reversed(spans) if from_json(raw[slice(*span)]) == text), None)
    if first is None or last is None or first[1] >= last[0]:
        return None
    head, middle, tail = raw[: first[0] + 1], raw[first[1] - 1 : last[0] + 1], raw[last[1] - 1 :]
    # other texts may be equal to these two: a change of both tells whether the right ones were found
    probed = parsed(head + _PROBE_ID.encode() + middle + _PROBE_TEXT.encode() + tail)
    changed = {**_with(data, path, _PROBE_TEXT), "custom_id": _PROBE_ID}
    if custom_id == _PROBE_ID or text == _PROBE_TEXT or probed != changed:
        return None
    return Shape(head=head, middle=middle, tail=tail, data=data, path=path)


def _last_text(value: JsonValue, path: Path) -> Path | None:
    """Where the last text of the last message or input is, unless it is empty."""
    while not isinstance(value, str):
        step: str | int | None = None
        if isinstance(value, dict):
            step = next((name for name in _HOLDERS if name in value), None)
        elif isinstance(value, list) and value:
            step = len(value) - 1
        if step is None:
            return None
        path = (*path, step)
        value = _step(value, step)
    return path if value else None


def _at(value: JsonValue, path: Path) -> JsonValue:
    for step in path:
        value = _step(value, step)
    return value


def _step(value: JsonValue, step: str | int) -> JsonValue:
    if isinstance(value, dict) and isinstance(step, str):
        return value[step]
    if isinstance(value, list) and isinstance(step, int):
        return value[step]
    raise TypeError(f"there is no {step!r} in a {type(value).__name__}")


def _with(value: Object, path: Path, text: str) -> Object:
    """The object with `text` at `path`; what is not on the way is shared."""
    return {**value, str(path[0]): _put(_step(value, path[0]), path[1:], text)}


def _put(value: JsonValue, path: Path, text: str) -> JsonValue:
    if not path:
        return text
    inner = _put(_step(value, path[0]), path[1:], text)
    if isinstance(value, dict):
        return {**value, str(path[0]): inner}
    return [*value[:-1], inner] if isinstance(value, list) else inner
