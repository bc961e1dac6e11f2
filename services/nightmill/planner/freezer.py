"""Freezing: the next slice of a batch's input becomes a block, a run of ids and a list of refused rows (M5).

All of it is staged as content-addressed blobs before the rows that name them commit. An open input is kept between
ticks only to spare reading; it is used when it stands where the batch's row says, and opened again when not.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO

from nightmill.kernel.domain.lifecycle import PlanPhase
from nightmill.kernel.store.blobs import BlobStore
from nightmill.kernel.store.blocks import write_lines
from nightmill.kernel.wire.messages import BatchPlanRow, BlockPlanRow, BlockRef, JobInput
from nightmill.kernel.wire.values import replace
from nightmill.planner.duplicates import IdEntry, write_run
from nightmill.planner.measured import Measured, MeasureKey
from nightmill.planner.meter import Measure
from nightmill.planner.readers import Cursor, label_of, read_records
from nightmill.planner.rows import Columns, GoodRow, RepeatedId, RowProblem, shown
from nightmill.planner.slices import Slice, Slicer
from nightmill.planner.transforms import Transform

_OPEN_INPUTS = 8
_NO_BLOCK = BlockRef(digest="", rows=0, bytes=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sifted:
    """A slice whose prompts were rendered: rows that can be items, with their measures, and all that can not."""

    rows: tuple[GoodRow, ...]
    measures: tuple[Measure, ...]
    problems: tuple[RowProblem, ...]  #: in the order of the input

    @property
    def input_tokens(self) -> int:
        return sum(measure.input_tokens for measure in self.measures)

    @property
    def longest_input_tokens(self) -> int:
        """0 where no row can be an item."""
        return max((measure.input_tokens for measure in self.measures), default=0)


def sift(piece: Slice, transform: Transform, label: str) -> Sifted:
    """Take the rows out whose prompt can not be rendered."""
    measures = transform.meter.measure([row.fields for row in piece.rows])
    problems = dict(piece.problems)
    good: list[tuple[GoodRow, Measure]] = []
    for row, measure in zip(piece.rows, measures, strict=True):
        if isinstance(measure, Measure):
            good.append((row, measure))
        else:
            problems[row.number] = RowProblem(
                place=f"{label} {row.number}",
                value=measure,
                remedy="correct the template, or the row's fields",
                source_id=row.source_id,
            )
    return Sifted(
        rows=tuple(row for row, _ in good),
        measures=tuple(measure for _, measure in good),
        problems=tuple(problems[number] for number in sorted(problems)),
    )


def check_repeats(rows: Sequence[GoodRow], label: str) -> None:
    """Raises `RepeatedId` when two rows of one slice share an id; those of different slices are found by merging."""
    seen: dict[str, int] = {}
    for row in rows:
        first = seen.setdefault(row.source_id, row.number)
        if first != row.number:
            raise RepeatedId(duplicate_text(label, first, row.number, row.source_id))


def duplicate_text(label: str, first: int, second: int, source_id: str) -> str:
    """Both places, the value and the remedy."""
    return (
        f"{label} {first} and {label} {second} share the id {shown(source_id)}; "
        "give every row an id of its own, or name another column in input.id"
    )


@dataclass(frozen=True, slots=True)
class _OpenInput:
    file: BinaryIO
    slicer: Slicer


class Freezer:
    """Freezes inputs slice by slice. Holds at most eight open files; `close` them."""

    def __init__(self, blobs: BlobStore, measured: Measured) -> None:
        self._blobs, self._measured = blobs, measured
        self._open: OrderedDict[str, _OpenInput] = OrderedDict()

    def freeze(self, row: BatchPlanRow, transform: Transform, now_ms: int) -> tuple[BatchPlanRow, BlockPlanRow | None]:
        """The batch after its next slice, and the slice's row unless it was empty.

        Depends on the batch's row and blobs alone, so doing it again gives equal rows. Raises `Unreadable`,
        `BlobMissing`, `Unavailable`.
        """
        limit = row.job.input.limit
        left = None if limit is None else max(0, limit - row.planned - row.refused_rows)
        slicer = self._slicer(row, transform.columns)
        piece = slicer.next(limit=left)
        label = label_of(row.job.input.format)
        sifted = sift(piece, transform, label)
        check_repeats(sifted.rows, label)
        after = replace(
            row,
            phase=PlanPhase.MERGING if piece.last else PlanPhase.FREEZING,
            cursor_row=piece.cursor.row,
            cursor_bytes=piece.cursor.offset,
            blocks=row.blocks + bool(piece.taken),
            planned=row.planned + len(sifted.rows),
            refused_rows=row.refused_rows + len(sifted.problems),
            input_tokens=row.input_tokens + sifted.input_tokens,
            longest_input_tokens=(
                None
                if row.longest_input_tokens is None  # the batch began before this was kept
                else max(row.longest_input_tokens, sifted.longest_input_tokens)
            ),
            max_output_tokens=row.max_output_tokens + len(sifted.rows) * transform.pipeline.model.max_output_tokens,
            updated_at_ms=now_ms,
        )
        if piece.last:
            self.forget(row.batch_id)
        return after, self._stage(row, sifted) if piece.taken else None

    def forget(self, batch_id: str) -> None:
        """Close the batch's input, if it is open."""
        if batch_id in self._open:
            self._open.pop(batch_id).file.close()

    def close(self) -> None:
        for batch_id in list(self._open):
            self.forget(batch_id)

    def _stage(self, row: BatchPlanRow, sifted: Sifted) -> BlockPlanRow:
        block = _NO_BLOCK
        if sifted.rows:
            block = write_lines(self._blobs, [good.line for good in sifted.rows])
            key = MeasureKey(block=block.digest, pipeline=row.job.pipeline_digest, tenant=row.job.tenant)
            self._measured.keep(key, sifted.measures)
        ids = (
            (good.source_id, IdEntry(row=good.number, ordinal=row.planned + index))
            for index, good in enumerate(sifted.rows)
        )
        refused = [problem.as_json() for problem in sifted.problems]
        return BlockPlanRow(
            block_id=f"{row.batch_id}/{row.blocks:010d}",
            batch_id=row.batch_id,
            index=row.blocks,
            block=block,
            first_ordinal=row.planned,
            ids_digest=self._blobs.put(write_run(ids)),
            refused_digest=self._blobs.put_json(refused) if refused else None,
        )

    def _slicer(self, row: BatchPlanRow, columns: Columns) -> Slicer:
        cursor = Cursor(row=row.cursor_row, offset=row.cursor_bytes)
        kept = self._open.get(row.batch_id)
        if kept is not None and kept.slicer.cursor == cursor:
            self._open.move_to_end(row.batch_id)
            return kept.slicer
        self.forget(row.batch_id)
        slicer, file = open_input(self._blobs, row.job.input, columns, cursor)
        self._open[row.batch_id] = _OpenInput(file, slicer)
        if len(self._open) > _OPEN_INPUTS:
            self.forget(next(iter(self._open)))
        return slicer


def open_input(blobs: BlobStore, input_: JobInput, columns: Columns, cursor: Cursor) -> tuple[Slicer, BinaryIO]:
    """Slices of an input from a cursor on, and the file to close afterwards. Raises `BlobMissing`."""
    file = blobs.open(input_.blob)
    records = read_records(input_.format, file, columns, cursor)
    return Slicer(records, columns, label_of(input_.format), cursor), file
