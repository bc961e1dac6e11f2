"""Reading a whole input without freezing it: what the `estimate` command asks before anything is started (P4)."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from nightmill.kernel.store.blobs import BlobStore
from nightmill.kernel.wire.messages import JobInput
from nightmill.planner.estimate import PlanTotals
from nightmill.planner.freezer import check_repeats, open_input, sift
from nightmill.planner.readers import Cursor, label_of
from nightmill.planner.rows import RowProblem
from nightmill.planner.slices import Slice, Slicer
from nightmill.planner.transforms import Transform

#: problems returned one by one; all are counted
LISTED_PROBLEMS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a whole input amounts to."""

    totals: PlanTotals
    problems: tuple[RowProblem, ...]  #: the first ones
    absent: tuple[str, ...]  #: columns that the pipeline names and no row has


def survey(blobs: BlobStore, input_: JobInput, transform: Transform) -> Survey:
    """Totals of an input, its first problems, and what it lacks. Blocks for as long as reading takes.

    Duplicate ids are found within neighbouring rows only. Raises `Unreadable`, `BlobMissing`, `Unavailable`.
    """
    items = refused = tokens = longest = 0
    listed: list[RowProblem] = []
    absent = set(transform.columns.kept)
    label = label_of(input_.format)
    slicer, file = open_input(blobs, input_, transform.columns, Cursor())
    with closing(file):
        for piece in _pieces(slicer, input_.limit):
            sifted = sift(piece, transform, label)
            check_repeats(sifted.rows, label)
            items += len(sifted.rows)
            refused += len(sifted.problems)
            tokens += sifted.input_tokens
            longest = max(longest, sifted.longest_input_tokens)
            listed += sifted.problems[: LISTED_PROBLEMS - len(listed)]
            for row in sifted.rows if absent else ():
                absent.difference_update(row.fields)
    totals = PlanTotals(items=items, refused_rows=refused, input_tokens=tokens, longest_input_tokens=longest)
    lacks = tuple(name for name in transform.columns.kept if items and name in absent)
    return Survey(totals=totals, problems=tuple(listed), absent=lacks)


def _pieces(slicer: Slicer, limit: int | None) -> Iterator[Slice]:
    left = limit
    while True:
        piece = slicer.next(limit=left)
        yield piece
        if piece.last:
            return
        left = None if left is None else left - piece.taken
