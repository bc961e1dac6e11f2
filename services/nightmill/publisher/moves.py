"""Carries out what was decided for one batch: its row, the word to others, the notice, a new generation."""

import logging

from nightmill.kernel.domain.bitmap import Bitmap
from nightmill.kernel.wire.messages import PublicationRow
from nightmill.kernel.wire.values import replace
from nightmill.publisher.accounting import counts_of, next_generation
from nightmill.publisher.batches import Next
from nightmill.publisher.book import Book
from nightmill.publisher.desk import Desk
from nightmill.publisher.notices import batch_controlled, job_completed

log = logging.getLogger(__name__)


def follow(desk: Desk, book: Book, following: Next) -> None:
    """Put and send what follows. Raises `Unavailable` before anything is changed."""
    now_ms, row, selection = desk.part.now_ms, following.row, None
    if following.restart:
        row, selection = _restart(desk, book, row)
    else:
        book.set_row(row)
    book.dirty = True
    desk.refresh(book)
    desk.puts.extend(book.drain(now_ms))
    if following.control is not None:
        desk.sends.append(batch_controlled(row, following.control, now_ms, selection_digest=selection))
    if following.notice:
        desk.sends.append(job_completed(row, now_ms))
    if following.ignored is not None:
        return
    if following.switch:
        desk.ready[book.batch_id] = None
    else:
        desk.ready.pop(book.batch_id, None)
        if not book.ended:
            desk.touched.add(book.batch_id)
    log.info("batch moved", extra={"action": f"batch_{row.state}", **batch_keys(row), "reason": row.reason})


def batch_keys(row: PublicationRow) -> dict[str, object]:
    """What a log line says of a batch."""
    return {"batch_id": row.batch_id, "generation": row.generation}


def _restart(desk: Desk, book: Book, row: PublicationRow) -> tuple[PublicationRow, str]:
    """Begin the row's generation; returns the row with its counts, and the blob of the ordinals to plan again."""
    copies, selected = next_generation(row.batch_id, row.generation, book.planned, book.accounting())
    counts = counts_of(copies, 0)
    kept = counts.accepted + counts.rejected + counts.in_review
    row = replace(row, counts=replace(counts, reused=min(row.counts.reused, kept)))
    selection = desk.around.blobs.put_json({"ordinals": Bitmap.from_bytes(selected, book.planned).to_text()})
    book.restart(row, copies)
    return row, selection
