"""Reads results: accepted rows and failures of a version, and what an unfinished batch has staged.

`root` is the dataset's folder: the results folder, then the dataset id. Values are as JSON has them, in Parquet too.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from nightmill.kernel.domain.lifecycle import ItemOutcome
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.store.blobs import BlobStore
from nightmill.publisher.columns import Origin, natural, plain, result_columns
from nightmill.publisher.targets.answers import AnswerReader
from nightmill.publisher.targets.files import Manifest, columns_of, current, manifest_of, rows_of
from nightmill.publisher.targets.parts import PartRecord, disk, windows
from nightmill.publisher.targets.tables import arrow_schema, arrow_table


def read_rows(root: Path, version: int | None = None) -> Iterator[dict[str, Any]]:
    """Accepted rows of a version (None: the current one), by ordinal; nothing when there is none.

    Raises `Unavailable`.
    """
    manifest = manifest_of(root, version)
    return iter(()) if manifest is None else rows_of(root, manifest, "data")


def read_failures(root: Path, version: int | None = None) -> Iterator[dict[str, Any]]:
    """Items of a version that were not accepted, with status, rule, field, value, failure class and signal."""
    manifest = manifest_of(root, version)
    return iter(()) if manifest is None else rows_of(root, manifest, "failures")


def read_table(root: Path, version: int | None = None) -> pa.Table | None:
    """Accepted rows of a version as one Arrow table, whole in memory; None when there is no such version."""
    manifest = manifest_of(root, version)
    if manifest is None:
        return None
    columns = columns_of(manifest, "data")
    if manifest["format"] != "parquet":
        return arrow_table(columns, rows_of(root, manifest, "data"))
    folder = (root / manifest["location"]).parent
    with disk(f"reading {folder}"):
        tables = [pq.read_table(folder / file["name"]) for file in manifest["files"] if file["kind"] == "data"]
    return pa.concat_tables([arrow_schema(columns).empty_table(), *tables])


def read_staged(root: Path, batch_id: str, pipeline: Pipeline, blobs: BlobStore) -> Iterator[dict[str, Any]]:
    """Rows accepted so far of a batch that is not published, by ordinal.

    A row may show a moment before it is committed. Raises `Unavailable`, `BlobMissing`.
    """
    columns = result_columns(pipeline)
    named = frozenset(column.source for column in columns if column.origin is Origin.OUTPUT)
    answers = AnswerReader(blobs)
    with disk(f"reading staged results of {batch_id}"):
        for _, records in windows(sorted(root.glob(f"staging/{batch_id}/part-*.parquet"))):
            newest: dict[int, PartRecord] = {record["ordinal"]: record for record in records}
            accepted = [record for record in newest.values() if record["outcome"] == ItemOutcome.ACCEPTED]
            rows = list(answers.joined(accepted, pipeline))
            values = [natural(column, rows, named) for column in columns]
            for row in zip(*values, strict=True):
                yield dict(zip([column.name for column in columns], map(plain, row), strict=True))


__all__ = ["Manifest", "current", "manifest_of", "read_failures", "read_rows", "read_staged", "read_table"]
