"""Writes the ledger (O1): handlers gather rows, `on_flush` inserts them before the positions are committed.

A crash between the two brings the same events again. They give the same keys, so nothing counts twice, whatever the
boundaries of the second delivery. A ClickHouse that is away holds this service's positions and nobody else's work.

What comes once or more for each item is kept as it came and read at the flush, all at once, into columns. If that
shows a record that can not be read, the loop starts over and the record is refused when it comes again.
"""

import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from nightmill.kernel.runtime.service import NOTHING, ContractViolation, Decision, Partition, Service, StartOver
from nightmill.kernel.store.clickhouse import ClickHouse
from nightmill.kernel.store.columns import Table
from nightmill.kernel.wire.codec import Undecodable
from nightmill.kernel.wire.messages import (
    AttemptJudged,
    BatchPublished,
    BatchSealed,
    ItemSettled,
    JobCompleted,
    LeaseRequested,
)
from nightmill.ledger import columns, rows, tables
from nightmill.ledger.http import QueryServer

log = logging.getLogger(__name__)

#: of one partition by table: rows by key and version, or the records to read at the flush by themselves; either way an
#: event that comes again before the flush replaces itself
Gathered = dict[str, dict[Any, rows.Row | None]]


class Ledger(Service):
    """Owns the store, and the endpoint that reads from it."""

    name = "ledger"
    unread = frozenset({AttemptJudged, ItemSettled})

    def __init__(self, store: ClickHouse, server: QueryServer | None = None) -> None:
        self._store = store
        self._server = server
        self._gathered: dict[int, Gathered] = {}
        self._spoilt: dict[bytes, str] = {}  #: records that can not be read, as the last flush found; and why

    def on_attempt_judged(self, record: bytes, part: Partition) -> Decision:
        return self._keep(part, record, tables.ATTEMPTS, tables.VERDICTS)

    def on_item_settled(self, record: bytes, part: Partition) -> Decision:
        return self._keep(part, record, tables.ITEMS)

    def on_batch_sealed(self, event: BatchSealed, part: Partition) -> Decision:
        key = (event.batch_id, event.sealed_at_ms)
        return self._gather(part, tables.BATCHES, key, rows.batch_row, event)

    def on_batch_published(self, event: BatchPublished, part: Partition) -> Decision:
        key = (event.batch_id, event.generation, event.version, event.published_at_ms)
        return self._gather(part, tables.PUBLISHES, key, rows.publish_row, event)

    def on_job_completed(self, event: JobCompleted, part: Partition) -> Decision:
        key = (event.batch_id, event.generation, event.completed_at_ms, event.state)
        return self._gather(part, tables.JOBS, key, rows.job_row, event)

    def on_lease_requested(self, event: LeaseRequested, part: Partition) -> Decision:
        # only the last report of a minute counts, so an earlier one of the same flush need not be written
        key = (event.holder, event.epoch, event.asked_at_ms // 60_000)
        return self._gather(part, tables.LEASE_USAGE, key, rows.lease_row, event)

    def on_flush(self, part: Partition) -> Decision:
        """Insert what all partitions gathered: they share the transaction, and few large inserts cost least."""
        for table in tables.TABLES:
            gathered = [tables_of[table.name] for tables_of in self._gathered.values() if tables_of.get(table.name)]
            if gathered:
                self._insert(table, [entry for by_key in gathered for entry in by_key.items()])
                for by_key in gathered:
                    by_key.clear()
        return NOTHING

    def on_close(self, number: int) -> None:
        self._gathered.pop(number, None)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._store.close()

    def _gather(self, part: Partition, table: Table, key: Any, row: Any, event: Any) -> Decision:
        try:
            self._put(part, table, key, row(event))
        except rows.ForeignId as error:
            raise ContractViolation(str(error)) from error
        return NOTHING

    def _keep(self, part: Partition, record: bytes, *to: Table) -> Decision:
        if self._spoilt and record in self._spoilt:
            raise ContractViolation(self._spoilt.pop(record))
        for table in to:
            self._put(part, table, record, None)
        return NOTHING

    def _put(self, part: Partition, table: Table, key: Any, row: rows.Row | None) -> None:
        gathered = self._gathered.get(part.number)
        if gathered is None:
            gathered = self._gathered[part.number] = defaultdict(dict)
        gathered[table.name][key] = row

    def _insert(self, table: Table, entries: Sequence[tuple[Any, rows.Row | None]]) -> None:
        read = columns.READERS.get(table.name)
        try:
            if read is None:
                block: columns.Block = list(zip(*(row for _, row in entries if row is not None), strict=True))
            else:
                block = read([record for record, _ in entries])
            if len(block[0]):
                self._store.insert(table, block)
        except (Undecodable, ValueError) as error:
            faults = {record: columns.fault(table, record) for record, _ in entries} if read is not None else {}
            self._spoilt = {record: fault for record, fault in faults.items() if fault is not None}
            if not self._spoilt:
                raise
            raise StartOver(f"{len(self._spoilt)} of {len(entries)} records can not be read") from error
        log.debug("rows inserted", extra={"action": "rows_inserted", "table": table.name, "rows": len(block[0])})
