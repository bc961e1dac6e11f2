"""Which item of a batch ended how: bitmaps of 8,192 ordinals per outcome, and the sums that must hold.

The bitmaps are the publisher's only memory of single items: they recognise repeated settlements, they say which rows a
version holds, and what a resumed batch has still to run. A chunk is kept mutable while it is worked on, since it takes
thousands of settlements between two commits; its row is written once per commit.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from nightmill.kernel.domain.lifecycle import ItemOutcome
from nightmill.kernel.wire.messages import AccountingRow, OutcomeCounts

CHUNK = 8_192  #: ordinals per chunk
WIDTH = CHUNK // 8  #: bytes per bitmap

_OUTCOMES = tuple(ItemOutcome)
_DECIDED = (ItemOutcome.ACCEPTED, ItemOutcome.REJECTED)

#: outcomes that a resume leaves as they are; every other ordinal is planned again
KEPT = (*_DECIDED, ItemOutcome.IN_REVIEW)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a settlement changes: the outcome before it (None: it was open) and after it."""

    before: ItemOutcome | None
    after: ItemOutcome


class Chunk:
    """The bitmaps of one chunk of one generation; bit i of byte i // 8 stands for the chunk's i-th ordinal."""

    __slots__ = ("_maps", "batch_id", "generation", "number")

    def __init__(self, batch_id: str, generation: int, number: int, row: AccountingRow | None = None) -> None:
        self.batch_id = batch_id
        self.generation = generation
        self.number = number
        self._maps = {
            outcome: bytearray(WIDTH) if row is None else bytearray(getattr(row, outcome.value))
            for outcome in _OUTCOMES
        }

    def outcome(self, ordinal: int) -> ItemOutcome | None:
        """How the ordinal (of the batch) ended, or None while it is open."""
        byte, mask = (ordinal % CHUNK) >> 3, 1 << (ordinal & 7)
        for outcome, bits in self._maps.items():
            if bits[byte] & mask:
                return outcome
        return None

    def change_by(self, ordinal: int, outcome: ItemOutcome, revision: int) -> Change | None:
        """The change a settlement makes, or None for a repeat.

        The first settlement counts; only a review's decision (revision 2 and later) replaces `in_review`.
        """
        before = self.outcome(ordinal)
        if before is None:
            return Change(before=None, after=outcome)
        if before is ItemOutcome.IN_REVIEW and revision > 1 and outcome is not ItemOutcome.IN_REVIEW:
            return Change(before=before, after=outcome)
        return None

    def apply(self, ordinal: int, change: Change) -> None:
        """Record a change that `change_by` returned."""
        byte, mask = (ordinal % CHUNK) >> 3, 1 << (ordinal & 7)
        if change.before is not None:
            self._maps[change.before][byte] &= ~mask
        self._maps[change.after][byte] |= mask

    def row(self) -> AccountingRow:
        """The chunk as a table row."""
        return AccountingRow(
            chunk_id=chunk_id(self.batch_id, self.generation, self.number),
            batch_id=self.batch_id,
            generation=self.generation,
            chunk=self.number,
            accepted=bytes(self._maps[ItemOutcome.ACCEPTED]),
            rejected=bytes(self._maps[ItemOutcome.REJECTED]),
            dead_letter=bytes(self._maps[ItemOutcome.DEAD_LETTER]),
            in_review=bytes(self._maps[ItemOutcome.IN_REVIEW]),
            cancelled=bytes(self._maps[ItemOutcome.CANCELLED]),
        )


def chunk_id(batch_id: str, generation: int, number: int) -> str:
    """Key of a chunk's row; chunks of a generation sort by number."""
    return f"{batch_id}/{generation}/{number:010d}"


def chunks_prefix(batch_id: str, generation: int) -> str:
    """What the keys of a generation's chunks begin with."""
    return f"{batch_id}/{generation}/"


def outcome_bits(row: AccountingRow, outcome: ItemOutcome) -> bytes:
    """The bitmap of one outcome."""
    bits: bytes = getattr(row, outcome.value)
    return bits


def no_counts() -> OutcomeCounts:
    return OutcomeCounts(accepted=0, rejected=0, dead_letter=0, in_review=0, cancelled=0, reused=0)


def counts_of(rows: Iterable[AccountingRow], reused: int) -> OutcomeCounts:
    """Items by outcome, counted from the bitmaps; `reused` is no bitmap and is carried in."""
    totals = dict.fromkeys(_OUTCOMES, 0)
    for row in rows:
        for outcome in _OUTCOMES:
            totals[outcome] += _ones(outcome_bits(row, outcome))
    return OutcomeCounts(**{outcome.value: totals[outcome] for outcome in _OUTCOMES}, reused=reused)


def accounted(counts: OutcomeCounts) -> int:
    """Items that ended in any way."""
    return counts.accepted + counts.rejected + counts.dead_letter + counts.in_review + counts.cancelled


def missing(counts: OutcomeCounts) -> int:
    """Items without a final answer: a version that lacks them is published under the partial contract."""
    return counts.dead_letter + counts.in_review + counts.cancelled


def disagreement(planned: int, counts: OutcomeCounts, rows: Iterable[AccountingRow]) -> str | None:
    """Why a batch must not be published as it is, or None: planned = accounted, and the bitmaps say the same."""
    recounted = counts_of(rows, counts.reused)
    if recounted != counts:
        return f"accounting: bitmaps hold {_text(recounted)}, the running counts are {_text(counts)}"
    if accounted(counts) != planned:
        return f"accounting: {planned} items were planned, {accounted(counts)} are accounted for"
    return None


def next_generation(
    batch_id: str, generation: int, planned: int, rows: Iterable[AccountingRow]
) -> tuple[list[AccountingRow], bytes]:
    """Rows of a new generation and the bitmap of the ordinals it plans again.

    Planned again is every ordinal that is not accepted, rejected or in review; the rest is copied.
    """
    selection = bytearray(b"\xff" * (planned // 8))
    if planned % 8:
        selection.append((1 << planned % 8) - 1)
    copies = []
    for row in rows:
        start = row.chunk * WIDTH
        kept = _union(outcome_bits(row, outcome) for outcome in KEPT)
        for index, byte in enumerate(kept[: max(0, len(selection) - start)]):
            selection[start + index] &= ~byte & 0xFF
        copies.append(
            AccountingRow(
                chunk_id=chunk_id(batch_id, generation, row.chunk),
                batch_id=batch_id,
                generation=generation,
                chunk=row.chunk,
                accepted=row.accepted,
                rejected=row.rejected,
                dead_letter=bytes(WIDTH),
                in_review=row.in_review,
                cancelled=bytes(WIDTH),
            )
        )
    return copies, bytes(selection)


def _ones(bits: bytes) -> int:
    return int.from_bytes(bits, "little").bit_count()


def _union(bitmaps: Iterable[bytes]) -> bytes:
    joined = 0
    for bits in bitmaps:
        joined |= int.from_bytes(bits, "little")
    return joined.to_bytes(WIDTH, "little")


def _text(counts: OutcomeCounts) -> str:
    return (
        f"accepted {counts.accepted}, rejected {counts.rejected}, dead letters {counts.dead_letter}, "
        f"in review {counts.in_review}, cancelled {counts.cancelled}"
    )
