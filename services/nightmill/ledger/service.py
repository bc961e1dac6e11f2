"""Writes the ledger (O1): handlers gather rows, `on_flush` inserts them before the positions are committed.

A crash between the two brings the same events again. They give the same keys, so nothing counts twice, whatever the
boundaries of the second delivery. A ClickHouse that is away holds this service's positions and nobody else's work.
"""

import logging
from collections import defaultdict
from typing import Any

from nightmill.kernel.runtime.service import NOTHING, ContractViolation, Decision, Partition, Service
from nightmill.kernel.store.clickhouse import ClickHouse
from nightmill.kernel.store.columns import Table
from nightmill.kernel.wire.messages import (
    AttemptJudged,
    BatchPublished,
    BatchSealed,
    ItemSettled,
    JobCompleted,
    LeaseRequested,
)
from nightmill.ledger import rows, tables
from nightmill.ledger.http import QueryServer

log = logging.getLogger(__name__)

#: rows of one partition by table, then by key and version: an event that comes again before the flush replaces itself
Gathered = dict[str, dict[Any, rows.Row]]


class Ledger(Service):
    """Owns the store, and the endpoint that reads from it."""

    name = "ledger"

    def __init__(self, store: ClickHouse, server: QueryServer | None = None) -> None:
        self._store = store
        self._server = server
        self._gathered: dict[int, Gathered] = {}

    def on_attempt_judged(self, event: AttemptJudged, part: Partition) -> Decision:
        attempt = event.attempt
        if not rows.is_call(attempt):
            return NOTHING
        try:
            row, verdict = rows.attempt_row(event), rows.verdict_row(event)
        except rows.ForeignId as error:
            raise ContractViolation(str(error)) from error
        key = (attempt.item_key, attempt.ordinal, attempt.minted_at_ms, rows.attempt_version(attempt))
        self._put(part, tables.ATTEMPTS, key, row)
        if verdict is not None:
            self._put(part, tables.VERDICTS, key, verdict)
        return NOTHING

    def on_item_settled(self, event: ItemSettled, part: Partition) -> Decision:
        key = (event.batch_id, event.ordinal, event.generation, event.revision)
        return self._gather(part, tables.ITEMS, key, rows.item_row, event)

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
                block = [row for by_key in gathered for row in by_key.values()]
                self._store.insert(table, block)
                log.debug("rows inserted", extra={"action": "rows_inserted", "table": table.name, "rows": len(block)})
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

    def _put(self, part: Partition, table: Table, key: Any, row: rows.Row) -> None:
        gathered = self._gathered.get(part.number)
        if gathered is None:
            gathered = self._gathered[part.number] = defaultdict(dict)
        gathered[table.name][key] = row
