"""What the bulk lane leaves behind, and when it goes: rows of closed submissions, and downloads that nobody needs.

A submission's own files go when it is closed. What stays is what a partition leaves that moves to another process:
its new owner brings the results to its own disk, and closes the submission there.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

from nightmill.kernel.domain.lifecycle import ProviderBatchState
from nightmill.kernel.runtime.service import Delete, Partition
from nightmill.kernel.wire.messages import ProviderBatchRow
from nightmill.provider_gateway.bulk import errands as e
from nightmill.provider_gateway.bulk.counter import Counter

#: how names of downloads end
DOWNLOAD = ".results"
#: closed rows are kept for people to look at
_KEEP_MS = 8 * 86_400_000
_SWEEP_EVERY_MS = 60_000
_SWEEP_ROWS = 200
_CLOSED = frozenset({ProviderBatchState.HARVESTED, ProviderBatchState.WITHDRAWN})


def old_rows(counter: Counter, part: Partition) -> Sequence[Delete]:
    """Rows whose time is over, some now and then."""
    if part.now_ms - counter.swept_ms < _SWEEP_EVERY_MS:
        return ()
    counter.swept_ms = part.now_ms
    stop = max(0, part.now_ms - _KEEP_MS).to_bytes(8, "big")
    old = islice(part.table(ProviderBatchRow).index("batch_removed", stop=stop), _SWEEP_ROWS)
    return [Delete(row=ProviderBatchRow, key=row.submission_id) for row in old]


def needed(rows: Iterable[ProviderBatchRow]) -> frozenset[str]:
    """Submissions of these whose results may be read yet, wherever."""
    return frozenset(row.submission_id for row in rows if row.state not in _CLOSED)


def tidy(folder: Path, errand: e.Tidy) -> e.Done:
    """Remove downloads of submissions that are not needed, but none that was written since that was decided."""
    for path in folder.glob(f"*{DOWNLOAD}"):
        submission, _, _ = path.name.removesuffix(DOWNLOAD).rpartition("-")
        if submission not in errand.needed and path.stat().st_mtime_ns // 1_000_000 < errand.before_ms:
            path.unlink(missing_ok=True)
    return e.Done()
