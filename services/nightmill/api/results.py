"""Results as a stream of JSON lines: of a published version, or of what an unfinished job has staged.

The first row is read before the answer begins, so what is wrong is an error and not a broken stream; a disk that fails
later cuts the stream without its end, which every HTTP client notices.
"""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nightmill.api.board import Board
from nightmill.api.errors import ApiError, unknown_dataset, unknown_job
from nightmill.kernel.domain.ids import batch_id, dataset_of
from nightmill.kernel.store.blobs import BlobStore
from nightmill.kernel.store.blocks import PipelineReader
from nightmill.publisher.results import read_rows, read_staged

_LINES_AT_ONCE = 200


class ResultReader:
    """Rows of jobs and datasets."""

    def __init__(self, results_dir: Path, blobs: BlobStore) -> None:
        self._results_dir, self._blobs = results_dir, blobs
        self._pipelines = PipelineReader(blobs)

    def of_job(self, board: Board, job_id: str, *, staged: bool) -> Iterator[bytes]:
        """JSON lines of a job: the version it published, also while a resume works on the next one.

        `staged` asks for what an unfinished generation has. Raises `ApiError`, `Unavailable`, `BlobMissing`.
        """
        batch = batch_id(job_id)
        publication = board.publications.get(batch)
        if publication is None and board.submission(job_id) is None:
            raise unknown_job(job_id)
        root = self._results_dir / dataset_of(job_id)
        if publication is not None and publication.version is not None:
            return as_lines(read_rows(root, publication.version))
        if not staged:
            earlier = board.published(job_id)
            if earlier is not None:
                return as_lines(read_rows(root, earlier.version))
            remedy = f"nightmill results {job_id} --staged shows what it has so far"
            raise ApiError(409, "not_published", f"job {job_id} is not published", remedy)
        digest = board.pipeline_digest(job_id)
        if not digest:
            raise ApiError(409, "not_planned", f"job {job_id} has no plan", f"nightmill status {job_id}")
        return as_lines(read_staged(root, batch, self._pipelines.get(digest), self._blobs))

    def of_dataset(self, board: Board, dataset_id: str, version: int | None) -> Iterator[bytes]:
        """JSON lines of a dataset's version (None: the current one). Raises `ApiError`, `Unavailable`."""
        row = board.datasets.get(dataset_id)
        if row is None or not row.versions:
            raise unknown_dataset(dataset_id)
        known = [each.version for each in row.versions]
        if version is not None and version not in known:
            message = f"dataset {dataset_id} has no version {version}; there are {', '.join(map(str, known))}"
            raise ApiError(404, "unknown_version", message, f"nightmill versions {dataset_id}")
        return as_lines(read_rows(self._results_dir / dataset_id, version))


def as_lines(rows: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    """JSON lines, some at a time; the first rows are read now."""
    first = list(itertools.islice(rows, 1))
    return _joined(itertools.chain(first, rows))


def _joined(rows: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    while chunk := list(itertools.islice(rows, _LINES_AT_ONCE)):
        yield b"".join(json.dumps(row, ensure_ascii=False, allow_nan=False).encode() + b"\n" for row in chunk)
