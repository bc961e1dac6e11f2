"""The work of batches in the background: one task a batch, in slices, so that other calls are served in between.

A batch that was running when the simulator died starts again from its first line: nobody has seen its results, and the
same lines give the same rows and the same bill.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from enum import StrEnum

from nightmill.provider_simulator.bulk.batch import Batch
from nightmill.provider_simulator.bulk.line import not_run, run_line
from nightmill.provider_simulator.bulk.lines import BODIES, raw_lines
from nightmill.provider_simulator.bulk.results import Results
from nightmill.provider_simulator.bulk.rows import Done
from nightmill.provider_simulator.bulk.shape import Line, LineReader
from nightmill.provider_simulator.bulk.states import CANCELLING, Status
from nightmill.provider_simulator.bulk.tally import Tally
from nightmill.provider_simulator.bulk.validate import validated
from nightmill.provider_simulator.draw import Draw
from nightmill.provider_simulator.filestore import RETENTION_MS, FileRecord
from nightmill.provider_simulator.reply import Side
from nightmill.provider_simulator.state import State
from nightmill.provider_simulator.stories import BatchExpires, BatchStuck, CancelRaces, ResultFile, ResultsGone

log = logging.getLogger(__name__)

_SLICE_LINES = 200
_FOREVER_MS = 2**60
_STRIDE = 7919  # a prime above the size of a slice: every row is met once


class End(StrEnum):
    """Why a phase of a batch is over."""

    DONE = "done"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class Runner:
    """Runs batches; `ended` is told of each one that has come to its end."""

    def __init__(self, state: State, ended: Callable[[Batch], None]) -> None:
        self._state = state
        self._ended = ended
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, batch: Batch) -> None:
        """Let the batch run from the beginning of its input."""
        task = asyncio.create_task(self._run(batch))
        self._tasks.add(task)
        task.add_done_callback(self._left)

    def resume(self) -> None:
        """Start all batches that have not ended; after a restart."""
        for batch in list(self._state.batches.values()):
            if not batch.ended:
                self._state.book_of(batch).path.unlink(missing_ok=True)
                self._state.books.pop(batch.id, None)
                self.start(batch)

    def abort(self) -> None:
        """Drop all work at once: no batch moves any more."""
        for task in self._tasks:
            task.cancel()

    async def stop(self) -> None:
        """Leave the batches as they are."""
        self.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _left(self, task: asyncio.Task[None]) -> None:
        """A task is over; one that broke is told of, and its batch stays where it is."""
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("batch broke", extra={"action": "batch_broke"}, exc_info=task.exception())

    async def _run(self, batch: Batch) -> None:
        openai = batch.side is Side.OPENAI
        if openai and batch.status is Status.VALIDATING and not await self._validation(batch):
            self._finish(batch)
            return
        with self._results(batch) as results:
            end = await self._lines(batch, results)
            if openai and end is End.DONE:
                end = await self._finalizing(batch)
            if end is End.CANCELLED:
                await self._wait(batch, self._state.run.scenario.batches.cancel_ms, ends=())
            self._close(batch, results, end)
        self._finish(batch)

    async def _validation(self, batch: Batch) -> bool:
        """Read the input as OpenAI does; False: the batch has ended here."""
        state = self._state
        end = await self._stuck(batch, Status.VALIDATING)
        if end is End.DONE:
            end = await self._wait(batch, state.run.scenario.batches.validate_ms)
        if end is End.DONE:
            await validated(state, batch)
            end = self._interrupted(batch)
        now_ms = state.clock.now_ms()
        if batch.errors and end is End.DONE and batch.status is Status.VALIDATING:
            batch.move(Status.FAILED, now_ms=now_ms)
        elif batch.status is Status.CANCELLING and end is not End.DONE:
            await self._wait(batch, state.run.scenario.batches.cancel_ms, ends=())
            batch.move(Status.CANCELLED, now_ms=state.clock.now_ms())
        elif end is End.EXPIRED:
            batch.move(Status.EXPIRED, now_ms=now_ms)
        else:
            if batch.status is Status.VALIDATING:
                batch.move(Status.IN_PROGRESS, now_ms=now_ms)
            state.save_batch(batch)
            return True
        return False

    async def _lines(self, batch: Batch, results: Results) -> End:
        """Run the lines as far as time allows, and write the rows of those that did not run."""
        state, settings = self._state, self._state.run.scenario.batches
        tally = Tally()
        started_at_ms = state.clock.now_ms()
        turn = self._turn(batch)
        number, end = 0, End.DONE
        for lines in self._slices(batch, turn):
            await asyncio.sleep(0)
            if end is End.DONE and settings.lines_per_s is not None:
                due_at_ms = started_at_ms + int(number / settings.lines_per_s * 1000)
                end = await self._wait(batch, due_at_ms - state.clock.now_ms())
            if end is End.DONE:
                end = self._interrupted(batch)
            if end is End.DONE and number == turn:
                end, turn = await self._held(batch), None
            if end is End.DONE:
                self._slice(batch, results, lines, number, tally)
            else:
                self._left_over(batch, results, lines, number, end, tally)
            number += len(lines)
        if end is End.DONE:
            end = await self._wait(batch, started_at_ms + settings.run_ms - state.clock.now_ms())
        if end is End.DONE and turn is not None:
            end = await self._held(batch)
        tally.store(batch)
        return end

    def _slice(self, batch: Batch, results: Results, lines: list[Line], number: int, tally: Tally) -> None:
        """Run one slice."""
        state = self._state
        now_ms = state.clock.now_ms()
        dones = [
            run_line(state.run, batch, line, number=number + place, now_ms=now_ms) for place, line in enumerate(lines)
        ]
        for done in dones:
            tally.add(done)
        self._write(batch, results, dones, now_ms, number)

    def _write(self, batch: Batch, results: Results, dones: list[Done], now_ms: int, number: int) -> None:
        scenario = self._state.run.scenario
        if scenario.batches.shuffle:
            first = Draw(scenario.seed, f"{batch.id} {number}".encode()).below(len(dones))
            dones = [dones[(first + place * _STRIDE) % len(dones)] for place in range(len(dones))]
        results.write(dones, batch_id=batch.id, now_ms=now_ms)

    def _left_over(
        self, batch: Batch, results: Results, lines: list[Line], number: int, end: End, tally: Tally
    ) -> None:
        """Rows of lines that did not run: always where the window ended, after a cancel as the provider has it."""
        expired = end is End.EXPIRED
        if expired:
            tally.expired += len(lines)
        else:
            tally.cancelled += len(lines)
        if expired or batch.side is Side.ANTHROPIC or self._state.run.scenario.batches.cancelled_rows:
            dones = [not_run(batch, line, number=number + n, expired=expired) for n, line in enumerate(lines)]
            self._write(batch, results, dones, self._state.clock.now_ms(), number)

    def _slices(self, batch: Batch, turn: int | None) -> Iterator[list[Line]]:
        """The lines in slices; one of them ends where the story takes its turn."""
        lines: list[Line] = []
        number, reader = 0, LineReader(BODIES[batch.side])
        for raw in raw_lines(self._state.files.path(batch.input_file_id)):
            line = reader.read(raw)
            if line is not None:
                lines.append(line)
                number += 1
            if len(lines) == _SLICE_LINES or (number == turn and lines):
                yield lines
                lines = []
        if lines:
            yield lines

    def _turn(self, batch: Batch) -> int | None:
        """After how many lines the story takes its turn; None: never."""
        stuck, expires = batch.story(BatchStuck), batch.story(BatchExpires)
        if expires is not None:
            return int(batch.counts.total * expires.keep)
        if stuck is not None and stuck.state == Status.IN_PROGRESS.value:
            return int(batch.counts.total * stuck.keep)
        return None

    async def _held(self, batch: Batch) -> End:
        """The story's turn in the middle of the lines."""
        return End.EXPIRED if batch.story(BatchExpires) is not None else await self._stuck(batch, Status.IN_PROGRESS)

    async def _finalizing(self, batch: Batch) -> End:
        state = self._state
        if batch.status is Status.CANCELLING:
            return self._interrupted(batch)
        batch.move(Status.FINALIZING, now_ms=state.clock.now_ms())
        state.save_batch(batch)
        end = await self._stuck(batch, Status.FINALIZING)
        return end if end is not End.DONE else await self._wait(batch, state.run.scenario.batches.finalize_ms)

    async def _stuck(self, batch: Batch, status: Status) -> End:
        """Stay here as long as the story says."""
        story = batch.story(BatchStuck)
        if story is None or story.state != status:
            return self._interrupted(batch)
        return await self._wait(batch, _FOREVER_MS if story.for_ms is None else story.for_ms)

    async def _wait(self, batch: Batch, for_ms: int, *, ends: tuple[End, ...] = (End.CANCELLED, End.EXPIRED)) -> End:
        """Let `for_ms` pass on the virtual clock, unless something in `ends` comes first."""
        clock = self._state.clock
        until_ms = clock.now_ms() + for_ms
        while True:
            end = self._interrupted(batch)
            if end in ends:
                return end
            now_ms = clock.now_ms()
            if now_ms >= until_ms:
                return End.DONE
            expiry_ms = batch.expires_at_ms if End.EXPIRED in ends else until_ms
            await clock.until(min(until_ms, max(expiry_ms, now_ms + 1)))

    def _interrupted(self, batch: Batch) -> End:
        if batch.status is CANCELLING[batch.side]:
            return End.DONE if batch.story(CancelRaces) is not None else End.CANCELLED
        if self._state.run.scenario.batches.expires and self._state.clock.now_ms() >= batch.expires_at_ms:
            return End.EXPIRED
        return End.DONE

    def _results(self, batch: Batch) -> Results:
        state = self._state
        book = state.book_of(batch)
        error_path = state.files.path(book.error_id) if batch.side is Side.OPENAI else None
        spoil = batch.story(ResultFile)
        return Results(book, state.files.path(book.output_id), error_path, spoil=spoil)

    def _close(self, batch: Batch, results: Results, end: End) -> None:
        """Publish the result files and end the batch."""
        state, now_ms = self._state, self._state.clock.now_ms()
        book = state.book_of(batch)
        sizes = results.close()
        story = batch.story(BatchExpires)
        if end is End.EXPIRED and story is not None and story.results == "none":
            sizes = (0, 0)
        if batch.side is Side.ANTHROPIC:
            batch.output_file_id = book.output_id
            self._publish(batch, book.output_id, sizes[0], now_ms)
            batch.move(Status.ENDED, now_ms=now_ms)
            return
        if results.output_rows and sizes[0]:
            batch.output_file_id = book.output_id
            self._publish(batch, book.output_id, sizes[0], now_ms)
        if results.error_rows and sizes[1]:
            batch.error_file_id = book.error_id
            self._publish(batch, book.error_id, sizes[1], now_ms)
        batch.move(_LAST[end], now_ms=now_ms)

    def _publish(self, batch: Batch, ident: str, size: int, now_ms: int) -> None:
        kind, story, spoil = (
            "output" if ident.endswith("o") else "error",
            batch.story(ResultsGone),
            batch.story(ResultFile),
        )
        expiry_ms = RETENTION_MS if batch.output_expiry_s is None else batch.output_expiry_s * 1000
        self._state.files.add(
            FileRecord(
                id=ident,
                filename=f"{batch.id}_{kind}.jsonl",
                purpose="batch_output",
                bytes=size,
                created_at_ms=now_ms,
                processed_at_ms=now_ms,
                expires_at_ms=now_ms + expiry_ms if batch.side is Side.OPENAI else None,
                gone=story is not None and story.file in ("both", kind),
                told_more=_ODD_BYTES if spoil is not None and spoil.form == "odd_size" else 0,
            )
        )

    def _finish(self, batch: Batch) -> None:
        batch.enqueued_tokens = 0
        self._state.save_batch(batch)
        self._ended(batch)


_ODD_BYTES = 7  # what a file of an odd size is said to have beyond what it has
_LAST = {End.DONE: Status.COMPLETED, End.CANCELLED: Status.CANCELLED, End.EXPIRED: Status.EXPIRED}
