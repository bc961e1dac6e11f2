"""ClickHouse as the ledger needs it: tables that keep, of each key, the row with the highest version."""

from collections.abc import Callable, Sequence
from typing import Any

from kit.ledger_columns import rows_of
from nightmill.kernel.runtime.service import Unavailable
from nightmill.kernel.store.columns import Table

#: sort keys as deploy/clickhouse creates the tables
KEYS: dict[str, tuple[str, ...]] = {
    "attempts": ("tenant", "pipeline", "item_key", "ordinal", "minted_at"),
    "verdicts": ("tenant", "pipeline", "item_key", "ordinal", "minted_at"),
    "items": ("tenant", "pipeline", "batch_id", "ordinal"),
    "batches": ("tenant", "pipeline", "batch_id"),
    "publishes": ("tenant", "pipeline", "version", "batch_id", "generation"),
    "jobs": ("tenant", "pipeline", "batch_id", "generation"),
    "lease_usage": ("pool", "holder", "epoch", "minute"),
}


class SimulatedClickHouse:
    """A `ReplacingMergeTree` per table, read with FINAL."""

    def __init__(self) -> None:
        self.away = False
        self._rows: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {name: {} for name in KEYS}

    def insert(self, table: Table, columns: Sequence[Any]) -> None:
        if self.away:
            raise Unavailable("ClickHouse does not take rows")
        kept = self._rows[table.name]
        for row in rows_of(table, columns):
            key = tuple(row[name] for name in KEYS[table.name])
            before = kept.get(key)
            if before is None or row["ver"] >= before["ver"]:
                kept[key] = row

    def final(self, table: str) -> list[dict[str, Any]]:
        return list(self._rows[table].values())


class Connection:
    """A process's connection. `point` may raise before and after each insert."""

    def __init__(self, server: SimulatedClickHouse, point: Callable[[str], None]) -> None:
        self._server, self._point = server, point

    def insert(self, table: Table, columns: Sequence[Any]) -> None:
        self._point("insert")
        self._server.insert(table, columns)
        self._point("inserted")

    def close(self) -> None:
        return
