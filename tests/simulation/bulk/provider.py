"""The provider's Batch API on the world's clock: files, batches, what becomes of them, and whether a line ran.

Two styles: `files` takes an uploaded input and keeps our keys with each batch; `inline` takes the requests in the
create, and a batch is known by its results alone. Lines are carried out and billed by the provider of realtime calls.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from nightmill.kernel.domain.lifecycle import Lane
from nightmill.kernel.wire.messages import ShardAttempt
from simulation.bulk import rows
from simulation.bulk.batch import NEVER_MS, Batch, Line, Ran, StoredFile
from simulation.violation import Violation

if TYPE_CHECKING:
    from simulation.bulk.lane import BulkLane
    from simulation.world import World

#: a batch of the inline style ends within its window; there is none for the other that all servers keep
_WINDOW_MS = 400_000
#: how a realtime call can end, and what that is for a line
_LINE_KINDS = {
    "broken": "timed_out",
    "hang": "timed_out",
    "not_connected": "failed",
    "spoilt_body": "failed",
    "account": "right",
}


class BatchApi:
    """All files and batches of a world."""

    def __init__(self, world: "World", lane: "BulkLane") -> None:
        self._world, self._lane, self._random = world, lane, lane.random
        self.files: dict[str, StoredFile] = {}
        self.batches: dict[str, Batch] = {}  #: oldest first
        self.attempts: dict[str, tuple[str, ShardAttempt]] = {}  #: key and attempt by custom id
        self._lines: dict[str, list[Line]] = defaultdict(list)  #: by attempt key
        self._late: list[tuple[int, Callable[[], object]]] = []
        self._numbers = 0

    @property
    def now_ms(self) -> int:
        return self._world.now_ms

    @property
    def is_idle(self) -> bool:
        """No batch goes on and nothing is on its way here."""
        return not self._late and all(batch.ended for batch in self.batches.values())

    def new_id(self, kind: str) -> str:
        self._numbers += 1
        return f"{kind}{self._numbers:04d}"

    def later(self, in_ms: int, arrive: Callable[[], object]) -> None:
        """A request is on its way, whatever has become of whoever sent it."""
        self._late.append((self.now_ms + in_ms, arrive))

    def work(self) -> None:
        """Let everything happen that is due by now."""
        now_ms = self.now_ms
        if self._late:
            due = [arrive for at_ms, arrive in self._late if at_ms <= now_ms]
            self._late = [(at_ms, arrive) for at_ms, arrive in self._late if at_ms > now_ms]
            for arrive in due:
                arrive()
        for batch in self.batches.values():
            if not batch.ended:
                self._go_on(batch, now_ms)

    # -- files

    def keep(self, name: str, content: bytes) -> StoredFile:
        """Store a file."""
        file = StoredFile(id=self.new_id("file-"), name=name, content=content)
        self.files[file.id] = file
        return file

    # -- batches

    def create(self, pool: str, custom_ids: list[str], prompts: list[str], *, inline: bool) -> Batch:
        """A new batch of these requests."""
        random, happens = self._random, self._lane.happens
        now_ms, pace = self.now_ms, self._lane.shape.pace
        starts_at_ms = now_ms + (0 if inline else random.choice((100, 1_000, 3_000)) * pace)
        ends_at_ms = starts_at_ms + random.choice((300, 2_000, 6_000)) * pace
        is_stuck = happens("stuck")
        lines = [
            self._line(*pair, random.randint(starts_at_ms, ends_at_ms))
            for pair in zip(custom_ids, prompts, strict=True)
        ]
        batch = Batch(
            id=self.new_id("msgbatch_" if inline else "batch_"),
            pool=pool,
            inline=inline,
            status="in_progress" if inline else "validating",
            lines=lines,
            created_at_ms=now_ms,
            listed_at_ms=now_ms + (random.randint(0, self._lane.list_lag_ms) if happens("late_list") else 0),
            starts_at_ms=starts_at_ms,
            ends_at_ms=(now_ms + _WINDOW_MS if inline else NEVER_MS) if is_stuck else ends_at_ms,
            expires=happens("expired") or is_stuck,
            forgetful=happens("forgetful"),
            heeds_cancel=not happens("late_cancel"),
        )
        if batch.expires:
            for line in random.sample(lines, random.randint(1, len(lines))):
                line.run_at_ms = NEVER_MS
        if not inline:
            batch.errors = self._refusal(batch)
        self.batches[batch.id] = batch
        for line in lines:
            self._lines[line.key].append(line)
        self._world.note("provider", f"{pool}: {batch.id} of {len(lines)} is created")
        return batch

    def cancel(self, batch: Batch) -> None:
        """It is asked to end."""
        if batch.cancelled_at_ms is None:
            batch.cancelled_at_ms = self.now_ms
            batch.status = "canceling" if batch.inline else "cancelling"
            self._world.note("provider", f"{batch.id} is cancelled")

    def _line(self, custom_id: str, prompt: str, run_at_ms: int) -> Line:
        """A line of a batch that is being made: no earlier one of the same attempt may have run, or run yet."""
        known = self.attempts.get(custom_id)
        if known is None:
            raise Violation("a batch holds our attempts", custom_id)
        key, attempt = known
        if f"text of {attempt.source_id}" not in prompt:
            raise Violation("a line asks for its attempt", custom_id, attempt.item_key)
        for earlier in self._lines[key]:
            if earlier.state is not Ran.NOT:
                text = f"{key} is submitted again, its line in an earlier batch is {earlier.state}"
                raise Violation("an attempt is called at most once", text, attempt.item_key)
        return Line(custom_id=custom_id, key=key, attempt=attempt, run_at_ms=run_at_ms)

    def _refusal(self, batch: Batch) -> list[dict[str, object]]:
        """Why a batch will fail in validation."""
        happens = self._lane.happens
        limit = self._lane.shape.enqueued_tokens
        others = sum(each.tokens for each in self.batches.values() if each.pool == batch.pool and not each.ended)
        if happens("token_limit") or (limit is not None and others and others + batch.tokens > limit):
            return [{"code": "token_limit_exceeded", "message": "Enqueued token limit reached", "line": None}]
        if happens("bare_refusal"):
            return [{"code": "internal", "message": "no", "line": None}]
        if happens("faulty_line"):
            number = self._random.randint(1, len(batch.lines))
            return [{"code": "invalid_value", "message": "no", "line": number, "param": "messages"}]
        return []

    def _go_on(self, batch: Batch, now_ms: int) -> None:
        cancelled_at_ms = batch.cancelled_at_ms
        stops = cancelled_at_ms is not None and (batch.heeds_cancel or batch.ends_at_ms == NEVER_MS)
        if batch.status == "validating" and now_ms >= batch.starts_at_ms:
            if batch.errors:
                self._end(batch, "failed")
                return
            batch.status = "in_progress"
        until_ms = cancelled_at_ms if stops and cancelled_at_ms is not None else now_ms
        for line in batch.lines:
            if line.state is Ran.OPEN and line.run_at_ms <= until_ms:
                self._run(batch, line)
        if stops and cancelled_at_ms is not None and now_ms >= cancelled_at_ms + 500:
            self._end(batch, "cancelled")
        elif now_ms >= batch.ends_at_ms:
            self._end(batch, "expired" if batch.expires else "completed")

    def _run(self, batch: Batch, line: Line) -> None:
        provider = self._world.provider
        line.state = Ran.RAN
        provider.seen[line.key] = provider.seen.get(line.key, 0) + 1
        kind = provider.draw_kind()
        kind = "failed" if self._lane.happens("line_failed") else _LINE_KINDS.get(kind, kind)
        if batch.inline and kind in ("timed_out", "failed", "server_error", "rate_limit"):
            line.rows = [rows.errored(line.custom_id, kind)]  # such lines are never billed
            return
        if kind in ("timed_out", "failed"):
            if self._random.random() < 0.5:
                provider.perform("right", line.key, line.attempt, Lane.BULK)
            line.rows = [rows.failed(line.custom_id, kind, self._random)]
            return
        done = provider.perform(kind, line.key, line.attempt, Lane.BULK)
        row = rows.answered(line.custom_id, done, inline=batch.inline)
        line.rows, line.told = [row], done.status == 200
        line.lost = self._lane.happens("line_missing")
        if done.status == 200 and self._lane.happens("line_twice"):
            line.rows = rows.doubled(line.custom_id, done, self._random, inline=batch.inline)
        if self._lane.happens("line_unknown"):
            line.rows.append(rows.answered(f"nobody-{line.custom_id}"[:60], done, inline=batch.inline))

    def _end(self, batch: Batch, status: str) -> None:
        batch.status = "ended" if batch.inline else status
        self._world.note("provider", f"{batch.id} is {status}")
        lines = self._random.sample(batch.lines, len(batch.lines))
        if batch.inline:
            lines[0].lost = False  # there an orphan is known by the first line, so one of its own has to be there
        for line in batch.lines:
            if line.state is Ran.OPEN:
                line.state = Ran.NOT
                if status != "failed" and (batch.inline or not batch.forgetful):
                    line.rows = [rows.not_run(line.custom_id, status, inline=batch.inline)]
            elif line.lost and status != "cancelled":
                line.rows, line.told = [], False
        told = [row for line in lines for row in line.rows]
        if batch.inline:
            batch.results = rows.jsonl(told)
        elif status != "failed":
            good = [row for row in told if (row["response"] or {}).get("status_code") == 200]
            bad = [row for row in told if (row["response"] or {}).get("status_code") != 200]
            batch.output_id = self.keep(f"{batch.id}_output.jsonl", rows.jsonl(good)).id if good else None
            batch.error_id = self.keep(f"{batch.id}_error.jsonl", rows.jsonl(bad)).id if bad else None
