"""What happened, in order: a digest to compare runs by, and the events for people to read."""

import hashlib
from dataclasses import dataclass
from typing import Any

from nightmill.kernel.runtime.log import Outgoing


@dataclass(frozen=True, slots=True)
class Event:
    """A note, or a committed message."""

    at_ms: int
    actor: str
    what: Any


class Trace:
    """Events of a world: faults and notes as text, committed messages as they are."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._state = hashlib.sha256()

    def note(self, at_ms: int, actor: str, text: str) -> None:
        self.events.append(Event(at_ms, actor, text))
        self._state.update(f"{at_ms} {actor} {text}\n".encode())

    def message(self, at_ms: int, actor: str, record: Outgoing, message: Any) -> None:
        self.events.append(Event(at_ms, actor, message))
        self._state.update(f"{at_ms} {actor} {record.topic} {record.partition} ".encode() + record.key)
        self._state.update(record.value or b"")

    def digest(self) -> str:
        return self._state.hexdigest()
