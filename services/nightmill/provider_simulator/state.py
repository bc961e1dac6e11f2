"""The one place that owns what the simulated provider knows: books, files, batches, webhooks, clock, limits."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from pydantic_core import from_json

from nightmill.provider_simulator.bill import Call, Ledger, Page, call_of_row
from nightmill.provider_simulator.buckets import Buckets
from nightmill.provider_simulator.bulk.batch import Batch, batch_of_row
from nightmill.provider_simulator.bulk.books import BatchBook
from nightmill.provider_simulator.clock import Clock
from nightmill.provider_simulator.draw import name
from nightmill.provider_simulator.filestore import HIDDEN, FileStore
from nightmill.provider_simulator.journal import Journal, whole_lines
from nightmill.provider_simulator.operations import Operation
from nightmill.provider_simulator.prices import Rates, Usage, cost_nano_usd, price_book
from nightmill.provider_simulator.prompt_cache import PromptCache
from nightmill.provider_simulator.reply import Side
from nightmill.provider_simulator.scenario import Dialect, Scenario
from nightmill.provider_simulator.webhooks import Endpoint, endpoint_of_row, endpoint_of_target

_UUID_PREFIXES = ("batch_", "file-")
BATCH, ENDPOINT, CLOCK, COUNTER = "batch", "endpoint", "clock", "counter"


@dataclass(slots=True)
class Run:
    """What starts anew when the scenario is set."""

    scenario: Scenario
    started_at_ms: int  # real
    arrivals: Counter[str] = field(default_factory=Counter)
    seen: Counter[tuple[Operation, bytes]] = field(default_factory=Counter)  # of what is not in the ledger
    working: int = 0  # calls that hold a slot or wait for one
    slots: asyncio.Semaphore | None = field(init=False)
    cache: PromptCache = field(default_factory=PromptCache)
    prices: dict[str, Rates] = field(init=False)
    buckets: Buckets = field(init=False)
    counts_lines: bool = field(init=False)

    def __post_init__(self) -> None:
        self.buckets = Buckets(self.scenario.rate_limit, now_ms=self.started_at_ms)
        self.prices = price_book(self.scenario.prices)
        slots = self.scenario.capacity.slots
        self.slots = None if slots is None else asyncio.Semaphore(slots)
        rules = self.scenario.faults_by_operation[Operation.LINE]
        self.counts_lines = any(rule.occurrences or rule.rate < 1 for _, rule in rules)

    def cost(self, model: str | None, usage: Usage | None, tier: str) -> int | None:
        """What the account is charged for `usage`."""
        return None if usage is None else cost_nano_usd(self.prices, model, usage, tier)

    def leave(self) -> None:
        """A call that held a slot, or waited for one, is over."""
        self.working -= 1
        if self.slots is not None:
            self.slots.release()

    def arrival(self, kind: str) -> int:
        """The number of this arrival among those of its kind, from 1."""
        self.arrivals[kind] += 1
        return self.arrivals[kind]

    def occurrence(self, operation: Operation, digest: bytes) -> int:
        """How often this was asked, this time included."""
        self.seen[operation, digest] += 1
        return self.seen[operation, digest]


class State:
    """Everything the provider knows. With `keep` the books of realtime calls go to disk as well."""

    def __init__(
        self, scenario: Scenario, *, folder: Path, keep: bool, real_now_ms: Callable[[], int], speed: float = 1.0
    ) -> None:
        self.real_now_ms = real_now_ms
        self.run = Run(scenario, real_now_ms())
        folder.mkdir(parents=True, exist_ok=True)
        self._books_folder = folder / "books"
        self._books_folder.mkdir(exist_ok=True)
        self.journal = Journal(folder / "journal.jsonl")
        ahead = dict(self.journal.rows(CLOCK)).get(CLOCK, {}).get("ahead_ms", 0)
        self.clock = Clock(real_now_ms, speed=speed, ahead_ms=ahead if isinstance(ahead, int) else 0)
        self.files = FileStore(folder / "files", self.journal)
        self.batches: dict[str, Batch] = {key: batch_of_row(row) for key, row in self.journal.rows(BATCH)}
        self.books: dict[str, BatchBook] = {}
        self.endpoints: dict[str, Endpoint] = {key: endpoint_of_row(row) for key, row in self.journal.rows(ENDPOINT)}
        self._calls_path = folder / "calls.jsonl"
        self.ledger = Ledger(_stored_calls(self._calls_path)) if keep else Ledger()
        self._calls_file = self._calls_path.open("ab", buffering=0) if keep else None
        counter = dict(self.journal.rows(COUNTER)).get(COUNTER, {}).get("value", 0)
        self._counter = counter if isinstance(counter, int) else 0
        for batch in self.batches.values():
            self.book_of(batch).recount()
        self._set_targets()

    def set_scenario(self, scenario: Scenario) -> None:
        """Windows, `first`, limits and the prompt cache start anew; books, files and batches go on."""
        self.run = Run(scenario, self.real_now_ms())
        self._set_targets()
        self.clock.wake()

    def reset(self) -> None:
        """Empty books and full limits under the same scenario; files, batches and webhooks are gone too."""
        self.ledger = Ledger()
        if self._calls_file is not None:
            self._calls_file.truncate(0)
        for batch in list(self.batches.values()):
            self._remove_batch(batch)
        for record in list(self.files.all(now_ms=0)):
            self.files.remove(record.id)
        for ident in list(self.endpoints):
            self.remove_endpoint(ident)
        self.set_scenario(self.run.scenario)

    def new_id(self, prefix: str) -> str:
        """An id that was not given before; the same sequence for the same seed. AIBrix has UUIDs without a prefix."""
        self._counter += 1
        self.journal.put(COUNTER, COUNTER, {"value": self._counter})
        unique = name(self.run.scenario.seed, prefix, self._counter)
        if self.run.scenario.dialect is Dialect.AIBRIX and prefix in _UUID_PREFIXES:
            return str(UUID(hex=unique.rjust(32, "0")))
        return prefix + unique

    def save_clock(self) -> None:
        """Let a restart go on from this time, not from an earlier one."""
        self.journal.put(CLOCK, CLOCK, {"ahead_ms": self.clock.ahead_ms})

    def save_batch(self, batch: Batch) -> None:
        """Keep the batch as it is now."""
        self.batches[batch.id] = batch
        self.journal.put(BATCH, batch.id, batch.as_row())

    def _remove_batch(self, batch: Batch) -> None:
        """Forget the batch, its books and its files."""
        book = self.book_of(batch)
        del self.batches[batch.id], self.books[batch.id]
        self.journal.remove(BATCH, batch.id)
        book.path.unlink(missing_ok=True)
        for ident in (batch.input_file_id, book.output_id, book.error_id):
            self.files.remove(ident)

    def book_of(self, batch: Batch) -> BatchBook:
        """The books of the batch, which also name its result files before they are there."""
        book = self.books.get(batch.id)
        if book is None:
            kind = "file-" if batch.side is Side.OPENAI else HIDDEN
            stem = batch.id.rpartition("_")[2]
            book = BatchBook(
                path=self._books_folder / f"{batch.id}.jsonl", output_id=f"{kind}{stem}o", error_id=f"{kind}{stem}e"
            )
            self.books[batch.id] = book
        return book

    def lines_page(self) -> Page:
        """The sums over all batches."""
        page = Page()
        for book in self.books.values():
            page.merge(book.page(self.files.delivered_to(book.output_id)))
        return page

    def save_endpoint(self, endpoint: Endpoint) -> None:
        self.endpoints[endpoint.id] = endpoint
        self.journal.put(ENDPOINT, endpoint.id, endpoint.as_row())

    def remove_endpoint(self, ident: str) -> None:
        del self.endpoints[ident]
        self.journal.remove(ENDPOINT, ident)

    def close_call(self, call: Call) -> None:
        """The call is over; with `keep` its row is on disk when this returns."""
        self.ledger.close(call, now_ms=self.real_now_ms())
        if self._calls_file is not None:
            self._calls_file.write(json.dumps(call.as_row(), separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        """Close the files."""
        self.save_clock()
        self.journal.close()
        if self._calls_file is not None:
            self._calls_file.close()

    def _set_targets(self) -> None:
        for place, target in enumerate(self.run.scenario.webhooks):
            endpoint = endpoint_of_target(target, place=place, now_ms=self.clock.now_ms())
            self.endpoints[endpoint.id] = endpoint


def _stored_calls(path: Path) -> list[Call]:
    return [call_of_row(from_json(line)) for line in whole_lines(path)]
