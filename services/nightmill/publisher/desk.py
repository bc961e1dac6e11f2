"""The working set of one partition: open books, datasets, effects under way, and what is to be sent and put.

It is rebuilt from the tables whenever the partition is opened, so an aborted transaction leaves nothing behind.
"""

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from nightmill.kernel.domain.lifecycle import ENDED_BATCH
from nightmill.kernel.runtime.service import NOTHING, Decision, Delete, Index, Partition
from nightmill.kernel.store.blobs import BlobStore
from nightmill.kernel.store.blocks import PipelineReader
from nightmill.kernel.wire.channel import Message
from nightmill.kernel.wire.messages import DatasetRow, PublicationRow
from nightmill.publisher.batches import takes_settlements
from nightmill.publisher.book import Book
from nightmill.publisher.effects import Effect
from nightmill.publisher.targets import Targets
from nightmill.publisher.targets.port import Target

_GIVEN_UP_MS = 30_000

INDEXES = (
    Index(name="open", row=PublicationRow, key=lambda row: None if row.state in ENDED_BATCH else row.batch_id.encode()),
    Index(name="intent", row=DatasetRow, key=lambda row: None if row.intent is None else row.dataset_id.encode()),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What every desk shares."""

    blobs: BlobStore
    pipelines: PipelineReader
    targets: Targets


@dataclass(slots=True)
class Desk:
    """Everything in hand for one partition."""

    part: Partition
    around: Surroundings
    sweep_at_ms: int
    books: dict[str, Book] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)  #: batches to decide at the next tick
    ready: dict[str, None] = field(default_factory=dict)  #: batches that wait for their dataset's switch, in order
    intents: set[str] = field(default_factory=set)  #: datasets with an open intent
    fresh_intents: set[str] = field(default_factory=set)  #: of these, not yet committed
    flights: dict[str, "Future[Any] | None"] = field(default_factory=dict)  #: effects by key; None until started
    not_before_ms: dict[str, int] = field(default_factory=dict)  #: effects that wait after an outage
    waits: dict[str, str] = field(default_factory=dict)  #: why, of these and of decisions
    datasets: dict[str, DatasetRow] = field(default_factory=dict)
    sends: list[Message] = field(default_factory=list)
    puts: list[Message] = field(default_factory=list)
    deletes: list[Delete] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)

    @classmethod
    def opened(cls, part: Partition, around: Surroundings, sweep_at_ms: int) -> "Desk":
        """The desk of a partition as its tables say: every open batch is decided again, every open intent is done."""
        return cls(
            part=part,
            around=around,
            sweep_at_ms=sweep_at_ms,
            touched={row.batch_id for row in part.table(PublicationRow).index("open")},
            intents={row.dataset_id for row in part.table(DatasetRow).index("intent")},
        )

    def row(self, batch_id: str) -> PublicationRow | None:
        """The row of a batch as it stands."""
        book = self.books.get(batch_id)
        return self.part.table(PublicationRow).get(batch_id) if book is None else book.row(self.part.now_ms)

    def book(self, batch_id: str) -> Book | None:
        """The book of a batch, opened if need be; None when the batch is unknown. Raises `Unavailable`."""
        known = self.books.get(batch_id)
        if known is not None:
            return known
        row = self.part.table(PublicationRow).get(batch_id)
        return None if row is None else self.open(row)

    def named(self, batch_id: str) -> Book:
        """The book of a batch that another row of ours names."""
        book = self.book(batch_id)
        if book is None:
            raise LookupError(f"batch {batch_id} is named by a row of this partition but has no row itself")
        return book

    def open(self, row: PublicationRow) -> Book:
        """The book of a row, replacing one that was opened before the batch's plan was known."""
        book = self.books.get(row.batch_id)
        if book is None or (book.pipeline is None and row.sealed is not None):
            pipeline = None
            if row.sealed is not None and row.sealed.refusal is None:
                pipeline = self.around.pipelines.get(row.sealed.pipeline_digest)
            book = self.books[row.batch_id] = Book(row, pipeline, self.part)
            self.refresh(book)
        return book

    def target(self, book: Book) -> Target:
        """Where the batch of an admitted plan is published."""
        assert book.pipeline is not None
        return self.around.targets.of(book.pipeline.publish.target, book.dataset_id)

    def dataset(self, dataset_id: str) -> DatasetRow:
        """The dataset's row as it stands."""
        known = self.datasets.get(dataset_id) or self.part.table(DatasetRow).get(dataset_id)
        return known or DatasetRow(dataset_id=dataset_id, switch_seq=0, versions=())

    def set_dataset(self, row: DatasetRow) -> None:
        """Change the dataset's row; an intent in it is done after the next commit."""
        self.datasets[row.dataset_id] = row
        self.puts.append(row)
        self.intents.discard(row.dataset_id)
        self.fresh_intents.discard(row.dataset_id)
        if row.intent is not None:
            self.intents.add(row.dataset_id)
            self.fresh_intents.add(row.dataset_id)

    def switching(self, batch_id: str, dataset_id: str) -> bool:
        """Whether the dataset's open intent names the batch: from then on nothing stops it."""
        intent = self.dataset(dataset_id).intent
        return intent is not None and intent.batch_id == batch_id

    def refresh(self, book: Book) -> None:
        """Settle whether the book takes settlements, after its row or its dataset's intent changed."""
        switching = self.switching(book.batch_id, book.dataset_id)
        book.taking = takes_settlements(book.row(self.part.now_ms), switching=switching)

    def free(self, key: str) -> bool:
        """Whether the effect of this key may be started: none is under way, no outage is waited out."""
        return key not in self.flights and self.part.now_ms >= self.not_before_ms.get(key, 0)

    def launch(self, effect: Effect) -> None:
        """Start an effect after the commit of what is being decided."""
        self.flights[effect.key] = None
        self.effects.append(effect)

    def effect_waits(self, key: str, reason: str, retry_ms: int) -> None:
        """The place of an effect is away: it is started again later."""
        self.not_before_ms[key] = self.part.now_ms + retry_ms
        self.waits[key] = reason

    def waiting(self) -> Iterator[tuple[str, str]]:
        """What waits, and why. An effect that nobody tries any more, of a batch that was cancelled, does not."""
        for key, reason in self.waits.items():
            due_ms = self.not_before_ms.get(key)
            if due_ms is None or self.part.now_ms - due_ms < _GIVEN_UP_MS:
                yield key, reason

    def effect_done(self, key: str) -> None:
        """It went well at last."""
        self.not_before_ms.pop(key, None)
        self.waits.pop(key, None)

    def landed(self) -> Iterator[tuple[str, "Future[Any]"]]:
        """Effects that ended since the last time."""
        for key, future in list(self.flights.items()):
            if future is not None and future.done():
                del self.flights[key]
                yield key, future

    def decision(self) -> Decision:
        """What was decided since the last time; `NOTHING` when nothing was."""
        if not (self.sends or self.puts or self.deletes or self.effects):
            return NOTHING
        puts = [*self.puts, *(row for book in self.books.values() for row in book.drain(self.part.now_ms))]
        made = Decision(send=self.sends, put=puts, delete=self.deletes, effects=self.effects)
        self.sends, self.puts, self.deletes, self.effects = [], [], [], []
        return made

    def forget_ended(self) -> None:
        """Close the books that nobody needs; called when all is committed or about to be."""
        for batch_id in [b for b, book in self.books.items() if book.ended]:
            del self.books[batch_id]
        self.datasets.clear()
