"""One partition over plain dictionaries, for tests of handlers; `apply` does with a decision what a commit would do."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from nightmill.kernel.runtime.service import Decision, Index, Service
from nightmill.kernel.wire.topics import TABLES


class DictTable:
    """Rows of one table in key order."""

    def __init__(self, indexes: tuple[Index, ...]) -> None:
        self.rows: dict[str, Any] = {}
        self._indexes = {index.name: index for index in indexes}

    def get(self, key: str) -> Any:
        return self.rows.get(key)

    def prefix(self, prefix: str, *, after: str | None = None) -> Iterator[Any]:
        for key in sorted(self.rows):
            if key.startswith(prefix) and (after is None or key > after):
                yield self.rows[key]

    def index(self, name: str, *, start: bytes = b"", stop: bytes | None = None) -> Iterator[Any]:
        keyed = ((self._indexes[name].key(row), key) for key, row in self.rows.items())
        for sort_key, key in sorted((sort_key, key) for sort_key, key in keyed if sort_key is not None):
            if sort_key >= start and (stop is None or sort_key < stop):
                yield self.rows[key]


@dataclass
class StagePartition:
    """Satisfies `Partition`; keeps everything that decisions sent and started."""

    service: Service
    number: int = 0
    partitions: int = 1
    now_ms: int = 1_796_000_000_000
    sent: list[Any] = field(default_factory=list)
    sent_now: list[Any] = field(default_factory=list)
    effects: list[object] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._tables = {
            table.message: DictTable(tuple(i for i in self.service.indexes if i.row is table.message))
            for table in TABLES
            if table.owner == self.service.name
        }
        self._keys = {table.message: table.key for table in TABLES}

    def table(self, row: type[Any]) -> DictTable:
        return self._tables[row]

    def apply(self, decision: Decision) -> Decision:
        for row in decision.put:
            self.table(type(row)).rows[getattr(row, self._keys[type(row)])] = row
        for gone in decision.delete:
            self.table(gone.row).rows.pop(gone.key, None)
        self.sent.extend(decision.send)
        self.sent_now.extend(decision.send_now)
        self.effects.extend(decision.effects)
        return decision


class DictView:
    """Satisfies `View` over a dictionary that the test fills."""

    def __init__(self, rows: dict[str, Any] | None = None) -> None:
        self.rows = rows if rows is not None else {}

    def get(self, key: str) -> Any:
        return self.rows.get(key)

    def values(self) -> Iterator[Any]:
        return iter(self.rows.values())
