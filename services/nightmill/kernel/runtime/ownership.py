"""The partitions an instance owns: their stores, their positions, and the records that wait in them."""

from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nightmill.kernel.runtime.log import Log, Outgoing, Place, Record, Session
from nightmill.kernel.runtime.observe import metrics
from nightmill.kernel.runtime.service import Service
from nightmill.kernel.runtime.store import StateStore
from nightmill.kernel.runtime.table import restore
from nightmill.kernel.wire.channel import Topic
from nightmill.kernel.wire.topics import TABLES

_NOTE_EVERY_MS = 60_000


class OwnedPartition:
    """One owned partition number: its store, its held records. Satisfies `Partition`."""

    def __init__(self, number: int, store: StateStore, now_ms: int, partitions: int) -> None:
        self.number = number
        self.partitions = partitions
        self.now_ms = now_ms
        self.store = store
        self.held: dict[str, deque[Record]] = {}  #: by topic; the first one waits

    def table(self, row: type[Any]) -> Any:
        return self.store.tables[row]


class Ownership:
    """Opens and closes partitions, and knows how far each of their inputs is handled and committed."""

    def __init__(
        self, service: Service, log: Log, inputs: list[Topic], state_dir: Path, clock_s: Callable[[], float]
    ) -> None:
        self._service = service
        self._log = log
        self._inputs = inputs
        self._tables = [table for table in TABLES if table.owner == service.name]
        self._state_dir = state_dir
        self._clock_s = clock_s
        self._ends = log.reader()
        self._noted_ms = 0
        self.parts: dict[int, OwnedPartition] = {}
        self.positions: dict[Place, int] = {}  #: after the last handled record
        self.committed: dict[Place, int] = {}

    def open(self, number: int, starts: Mapping[Place, int], now_ms: int) -> None:
        """Restore the tables of a partition that was assigned, and tell the service."""
        positions = {place: offset for place, offset in starts.items() if place.partition == number}
        store = StateStore(self._state_dir / str(number), self._tables, self._service.indexes)
        metrics.count("rows_restored", restore(self._log, store, self._tables, number, self._clock_s))
        part = OwnedPartition(number, store, now_ms, self._log.partitions)
        self.parts[number] = part
        self.positions.update(positions)
        self.committed.update(positions)
        self._service.on_open(part)

    def close(self, number: int) -> None:
        """A partition is no longer ours: what is not committed of it is not ours to finish."""
        part = self.parts.pop(number, None)
        if part is None:
            return
        self._service.on_close(number)
        part.store.close()
        for topic in self._inputs:
            self.positions.pop(Place(topic.name, number), None)
            self.committed.pop(Place(topic.name, number), None)

    def at(self, now_ms: int) -> None:
        """The time of a step."""
        for part in self.parts.values():
            part.now_ms = now_ms

    def changelog(self) -> list[Outgoing]:
        """The rows of the open transaction."""
        return [
            Outgoing(table.spec.name, key.encode(), value, number)
            for number, part in self.parts.items()
            for table in part.store.tables.values()
            for key, value in table.encoded().items()
        ]

    def fold(self, now_ms: int | None) -> None:
        """The open transaction is committed: overlays become part of the stores."""
        for part in self.parts.values():
            part.store.fold()
        self.committed = dict(self.positions)
        if now_ms is not None and now_ms - self._noted_ms > _NOTE_EVERY_MS:
            self._noted_ms = now_ms
            self.note_ends()

    def discard(self) -> None:
        """The open transaction is dropped."""
        for part in self.parts.values():
            part.store.discard()
            part.held.clear()

    def rewind(self, session: Session) -> None:
        """Go back to the last commit: nothing of the open transaction happened."""
        self.discard()
        for number in self.parts:
            self._service.on_close(number)
        for place, offset in self.committed.items():
            session.seek(place, offset)
            session.resume(place)
        self.positions = dict(self.committed)
        for part in self.parts.values():
            self._service.on_open(part)

    def note_ends(self) -> None:
        """All that this instance wrote is folded in, so its stores are as new as the changelogs' ends."""
        for number, part in self.parts.items():
            part.store.set_positions({table.name: self._ends.end(Place(table.name, number)) for table in self._tables})

    def release(self) -> None:
        """Let go of every partition and connection."""
        for number in list(self.parts):
            self.close(number)
        self._ends.close()

    def abandon(self) -> None:
        """Let go of local files as a crash does: the service is told nothing."""
        for part in self.parts.values():
            part.store.close()
