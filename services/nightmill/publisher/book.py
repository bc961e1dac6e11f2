"""The account of one batch in memory, between two commits.

Settlements change a book, not a table: it takes thousands of them before its rows are put, once per commit.
"""

from nightmill.kernel.domain.lifecycle import ENDED_BATCH, ItemOutcome
from nightmill.kernel.domain.pipeline import GoldGate, Pipeline
from nightmill.kernel.runtime.service import Partition
from nightmill.kernel.wire.channel import Message
from nightmill.kernel.wire.messages import (
    AccountingRow,
    GoldScore,
    ItemSettled,
    OutcomeCounts,
    PartRow,
    PublicationRow,
    Totals,
)
from nightmill.kernel.wire.values import replace
from nightmill.publisher.accounting import CHUNK, Change, Chunk, chunk_id, chunks_prefix
from nightmill.publisher.batches import planned_of, takes_costs

_CHUNKS_IN_MEMORY = 64
MERGE_PARTS = 64  #: parts of one tier that are merged into one of the next


class Book:
    """The account of one batch while it is worked on."""

    def __init__(self, row: PublicationRow, pipeline: Pipeline | None, part: Partition) -> None:
        self._part = part
        self.pipeline = pipeline
        self.gold_gate: GoldGate | None = None if pipeline is None else pipeline.gates.gold
        self.pending: list[ItemSettled] = []  #: settled, not yet in a part
        self.parts = {part_row.digest: part_row for part_row in part.table(PartRow).prefix(f"{row.batch_id}/")}
        self.taking = False  #: settlements of the row's generation count
        self.planned = 0
        self.dirty = False
        self.settled = False  #: since the last decision
        self.cost_grew = False  #: since the last decision
        self._chunks: dict[int, Chunk] = {}
        self._dirty_chunks: set[int] = set()
        self._older: dict[tuple[int, int], Chunk] = {}  #: of earlier generations, by generation and number
        self._dirty_older: set[tuple[int, int]] = set()
        self.set_row(row)

    def set_row(self, row: PublicationRow) -> None:
        """Take a decided row over, with its counts and sums."""
        self._row = row
        self.batch_id, self.dataset_id, self.generation = row.batch_id, row.dataset_id, row.generation
        self.planned = planned_of(row)
        self._counts = {outcome: getattr(row.counts, outcome.value) for outcome in ItemOutcome}
        self._reused = row.counts.reused
        self._sums = [getattr(row.totals, name) for name in _SUMS]
        self._gold = [0, 0] if row.gold is None else [row.gold.compared, row.gold.right]

    def row(self, now_ms: int) -> PublicationRow:
        """The row as it stands."""
        if not self.dirty:
            return self._row
        compared, right = self._gold
        self._row = replace(
            self._row,
            counts=OutcomeCounts(**{o.value: count for o, count in self._counts.items()}, reused=self._reused),
            totals=Totals(**dict(zip(_SUMS, self._sums, strict=True))),
            gold=GoldScore(compared=compared, right=right) if compared else self._row.gold,
            updated_at_ms=now_ms,
        )
        return self._row

    @property
    def charging(self) -> bool:
        """Whether late settlements of the generation are charged, and nothing more."""
        return takes_costs(self._row)

    @property
    def ended(self) -> bool:
        return self._row.state in ENDED_BATCH

    def chunk(self, ordinal: int) -> Chunk:
        """The chunk of an ordinal."""
        number = ordinal // CHUNK
        chunk = self._chunks.get(number)
        if chunk is None:
            stored = self._part.table(AccountingRow).get(chunk_id(self.batch_id, self.generation, number))
            chunk = self._chunks[number] = Chunk(self.batch_id, self.generation, number, stored)
        return chunk

    def wants_gold(self) -> bool:
        """Whether a further accepted row is to be compared with its gold value."""
        gate = self.gold_gate
        return gate is not None and (gate.sample is None or self._gold[0] < gate.sample)

    def settle(self, item: ItemSettled, chunk: Chunk, change: Change, right: bool | None) -> None:
        """Account for an item. `right`: its agreement with gold, None when it was not compared."""
        chunk.apply(item.ordinal, change)
        self._dirty_chunks.add(chunk.number)
        self._counts[change.after] += 1
        if change.before is not None:
            self._counts[change.before] -= 1
        elif item.reused:
            self._reused += 1
        self._add(item.totals)
        if right is not None:
            self._gold[0] += 1
            self._gold[1] += right
        self.pending.append(item)
        self.settled = self.dirty = True

    def charge(self, item: ItemSettled) -> bool:
        """Charge an item that was settled for a generation that is cancelled or over; there it counts as cancelled.

        False for a repeat.
        """
        is_older = item.generation != self.generation
        chunk = self._older_chunk(item.generation, item.ordinal) if is_older else self.chunk(item.ordinal)
        if chunk.outcome(item.ordinal) is not None:
            return False
        chunk.apply(item.ordinal, Change(before=None, after=ItemOutcome.CANCELLED))
        if is_older:
            self._dirty_older.add((chunk.generation, chunk.number))
        else:
            self._dirty_chunks.add(chunk.number)
            self._counts[ItemOutcome.CANCELLED] += 1
        self._add(item.totals)
        self.dirty = True
        return True

    def _older_chunk(self, generation: int, ordinal: int) -> Chunk:
        number = ordinal // CHUNK
        chunk = self._older.get((generation, number))
        if chunk is None:
            stored = self._part.table(AccountingRow).get(chunk_id(self.batch_id, generation, number))
            chunk = self._older[generation, number] = Chunk(self.batch_id, generation, number, stored)
        return chunk

    def accounting(self) -> list[AccountingRow]:
        """All chunks of the generation as they stand, by number."""
        stored = self._part.table(AccountingRow).prefix(chunks_prefix(self.batch_id, self.generation))
        rows = {row.chunk: row for row in stored}
        rows.update({number: self._chunks[number].row() for number in self._dirty_chunks})
        return [rows[number] for number in sorted(rows)]

    def restart(self, row: PublicationRow, copies: list[AccountingRow]) -> None:
        """Begin a new generation with these copies of the accounting; what the old one has, it keeps."""
        for number in self._dirty_chunks:
            self._older[self.generation, number] = self._chunks[number]
            self._dirty_older.add((self.generation, number))
        self.set_row(row)
        self._chunks = {c.chunk: Chunk(c.batch_id, c.generation, c.chunk, c) for c in copies}
        self._dirty_chunks = set(self._chunks)

    def drain(self, now_ms: int) -> list[Message]:
        """Rows to put since the last time."""
        if not self.dirty:
            return []
        puts: list[Message] = [self.row(now_ms)]
        puts.extend(self._chunks[number].row() for number in sorted(self._dirty_chunks))
        puts.extend(self._older[key].row() for key in sorted(self._dirty_older))
        self._dirty_chunks.clear()
        self._dirty_older.clear()
        self.dirty = False
        if len(self._chunks) > _CHUNKS_IN_MEMORY:
            self._chunks.clear()
        if len(self._older) > _CHUNKS_IN_MEMORY:
            self._older.clear()
        return puts

    def mergeable(self) -> list[PartRow]:
        """Parts of one tier that are to be merged now, oldest first; none when there are too few."""
        if len(self.parts) < MERGE_PARTS:
            return []
        tiers: dict[int, list[PartRow]] = {}
        for part_row in self.parts.values():
            tiers.setdefault(part_row.tier, []).append(part_row)
        for tier in sorted(tiers):
            if len(tiers[tier]) >= MERGE_PARTS:
                return sorted(tiers[tier], key=lambda row: (row.staged_at_ms, row.digest))[:MERGE_PARTS]
        return []

    def _add(self, totals: Totals) -> None:
        sums = self._sums
        sums[0] += totals.attempts
        sums[1] += totals.input_tokens
        sums[2] += totals.cached_tokens
        sums[3] += totals.output_tokens
        sums[5] += totals.unknown_attempts
        sums[6] += totals.repairs
        sums[7] += totals.retries
        if totals.cost_nano_usd or totals.reserved_nano_usd:
            sums[4] += totals.cost_nano_usd
            sums[8] += totals.reserved_nano_usd
            self.cost_grew = True


#: fields of Totals in the order of `Book._add`
_SUMS = (
    "attempts",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "cost_nano_usd",
    "unknown_attempts",
    "repairs",
    "retries",
    "reserved_nano_usd",
)
