"""Cutting an input into slices: what becomes one block, its ids and its refused rows.

Where a slice ends depends on the input and its cursor alone, never on time or on how ticks fall: freezing it again
after a crash gives equal bytes and so equal digests.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nightmill.kernel.store.blocks import MAX_BYTES, MAX_ROWS
from nightmill.planner.readers import Cursor
from nightmill.planner.rows import Columns, GoodRow, Record, RowProblem, clean

#: input bytes read for one slice, however little of them is kept
MAX_INPUT_BYTES = 4 * MAX_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Neighbouring rows of an input; `cursor` is where the next slice begins."""

    rows: tuple[GoodRow, ...]
    problems: Mapping[int, RowProblem]  #: by the row's number
    cursor: Cursor
    last: bool  #: no row comes after it

    @property
    def taken(self) -> int:
        """Input rows in the slice, good or not."""
        return len(self.rows) + len(self.problems)


class Slicer:
    """Slices of an open input, one after the other. `cursor` is the end of the last slice given."""

    def __init__(self, records: Iterator[Record], columns: Columns, label: str, cursor: Cursor) -> None:
        self._records, self._columns, self._label = records, columns, label
        self._ahead: Record | None = None
        self.cursor = cursor

    def next(self, *, limit: int | None = None) -> Slice:
        """The next slice, of at most `limit` rows. Raises `Unreadable`."""
        rows: list[GoodRow] = []
        problems: dict[int, RowProblem] = {}
        room = MAX_ROWS if limit is None else min(MAX_ROWS, limit)
        size, start = 0, self.cursor.offset
        while len(rows) + len(problems) < room and (record := self._peek()) is not None:
            row = clean(record, self._columns, self._label)
            if isinstance(row, GoodRow):
                # one byte more for the line end between two rows of a block
                if rows and size + len(row.line) + 1 > MAX_BYTES:
                    break
                size += len(row.line) + 1
                rows.append(row)
            else:
                problems[record.number] = row
            self.cursor = Cursor(row=record.number, offset=record.end)
            self._ahead = None
            if record.end - start >= MAX_INPUT_BYTES:
                break
        last = limit == len(rows) + len(problems) or self._peek() is None
        return Slice(rows=tuple(rows), problems=problems, cursor=self.cursor, last=last)

    def _peek(self) -> Record | None:
        if self._ahead is None:
            self._ahead = next(self._records, None)
        return self._ahead
