"""What must hold of the bulk lane, all the time and at the end."""

import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from nightmill.kernel.domain.ids import attempt_id
from nightmill.kernel.domain.lifecycle import Lane, ProviderBatchState
from nightmill.kernel.runtime.log import Outgoing
from nightmill.kernel.wire.messages import AttemptAnswered, ProviderBatchRow, ShardDispatched
from nightmill.provider_gateway.bulk.limits import configured
from nightmill.provider_gateway.bulk.submission import ENQUEUED
from simulation.bulk.batch import Batch, Line, Ran
from simulation.violation import Violation

if TYPE_CHECKING:
    from simulation.bulk.lane import BulkLane

_ORDER = list(ProviderBatchState)
_CLOSED = (ProviderBatchState.HARVESTED, ProviderBatchState.WITHDRAWN)


class BulkChecks:
    """Follows the submissions of one world."""

    def __init__(self, lane: "BulkLane") -> None:
        self._lane = lane
        self._rows: dict[str, ProviderBatchRow] = {}
        self._made: list[ProviderBatchRow] = []  #: by the transaction that is looked at
        self._actors: dict[str, str] = {}  #: who put the row last
        self._answered: dict[str, AttemptAnswered] = {}
        self._known_files: dict[str, str] = {}  #: submission by the id of a file that stood in a committed row
        self._left_behind: set[str] = set()  #: submissions whose files the provider would not remove

    # -- all the time

    def committed(self, actor: str, record: Outgoing, message: Any) -> None:
        """A message of a process's committed transaction."""
        match message:
            case ShardDispatched(lane=Lane.BULK):
                for attempt in message.attempts:
                    ident = attempt_id(attempt.item_key, attempt.ordinal)
                    self._lane.api.attempts[ident] = (f"{ident}-{attempt.minted_at_ms}", attempt)
            case ProviderBatchRow():
                self._row(message)
                self._actors[message.submission_id] = actor
            case AttemptAnswered(lane=Lane.BULK):
                self._answer(message)

    def whole(self) -> None:
        """All messages of a transaction were looked at: what it ends has made room for what it makes."""
        for row in self._made:
            self._check_size(row)
        self._made = []

    def heard(self, record: logging.LogRecord) -> None:
        """A line of the log."""
        if getattr(record, "action", None) == "files_left":
            self._left_behind.add(vars(record)["submission"])

    def _row(self, row: ProviderBatchRow) -> None:
        before = self._rows.get(row.submission_id)
        self._rows[row.submission_id] = row
        for file_id in (row.file_id, row.output_id, row.error_id):
            if file_id is not None:
                self._known_files[file_id] = row.submission_id
        if before is None:
            self._made.append(row)
        elif before.state in _CLOSED and row.state is not before.state:
            raise Violation("terminal states absorb", f"submission {before.state} -> {row.state}")
        elif _ORDER.index(row.state) < _ORDER.index(before.state):
            raise Violation("states go forward", f"submission {before.state} -> {row.state}")

    def _check_size(self, row: ProviderBatchRow) -> None:
        """A new submission is within the pool's limits, and with all unfinished ones too."""
        limits = self._lane.world.config.pools[row.pool].bulk
        assert limits is not None
        most = configured(limits)
        if row.requests > most.requests or (row.bytes > most.bytes and row.requests > 1):
            raise Violation("submissions keep to their limits", f"{row.requests} requests, {row.bytes} bytes")
        beside = [
            each.input_tokens
            for each in self._rows.values()
            if each.pool == row.pool and each.state in ENQUEUED and each is not row
        ]
        if most.tokens is None or not beside or sum(beside) + row.input_tokens <= most.tokens:
            return
        # a request that is larger than anybody's share goes without one
        if row.requests > 1 or row.input_tokens <= most.tokens // self._lane.world.broker.partitions:
            text = f"{row.input_tokens} tokens beside {sum(beside)} of {most.tokens}"
            raise Violation("submissions keep to their limits", text)

    def _answer(self, answered: AttemptAnswered) -> None:
        key = f"{attempt_id(answered.item_key, answered.ordinal)}-{answered.minted_at_ms}"
        if key in self._answered and not answered.late:
            raise Violation("an attempt is answered once", key, answered.item_key)
        self._answered[key] = answered

    def left(self) -> str | None:
        """What is still to be done."""
        for row in self._rows.values():
            if row.removed_at_ms is None:
                return f"submission {row.submission_id} is {row.state}"
        if not self._lane.api.is_idle:
            return "a batch is under way"
        for process in self._lane.world.processes:
            if process.runner is not None and not process.runner.is_idle:
                return f"errands of {process.name}"
        return None

    # -- the end

    def at_end(self) -> None:
        """Every batch was found, every answer that could be had is known, and no file is left."""
        rows = {
            f"{row['item_key']}-{row['ordinal']}-{row['minted_at']}": row
            for row in self._lane.world.clickhouse.final("attempts")
        }
        named = {row.provider_batch_id for row in self._rows.values()}
        by_batch: dict[str, list[str]] = defaultdict(list)
        for row in self._rows.values():
            by_batch[row.provider_batch_id or ""].append(row.submission_id)
        for batch in self._lane.api.batches.values():
            if batch.id not in named:
                raise Violation("no batch is forgotten", f"{batch.id} of {len(batch.lines)} requests is in no row")
            if len(by_batch[batch.id]) > 1:
                raise Violation("a batch has one submission", f"{batch.id}: {by_batch[batch.id]}")
            for line in batch.lines:
                self._check_line(batch, line, rows.get(line.key))
        self._check_files()

    def _check_line(self, batch: Batch, line: Line, row: dict[str, Any] | None) -> None:
        if not line.told or line.state is not Ran.RAN:
            return
        if row is None or row["input_tokens"] is None:
            said = None if row is None else row["failure_signal"]
            raise Violation(
                "an answer that was told is known", f"{line.key} of {batch.id}: {said}", line.attempt.item_key
            )

    def _check_files(self) -> None:
        for file in self._lane.api.files.values():
            submission = self._known_files.get(file.id)
            if submission is not None and submission not in self._left_behind:
                raise Violation("no file is left", f"{file.id} {file.name} of {submission}")
        for process in self._lane.world.processes:
            names = [path.name for path in process.bulk_folder.glob("*.*")] if process.alive else []
            for submission, actor in self._actors.items():
                left = [name for name in names if name.startswith(submission)]
                # what another has taken over is forgotten here when the process starts again
                if left and actor == process.name:
                    raise Violation("no file is left", f"{left} at {process.name}")
