"""Results as files: Parquet or JSON lines under one folder per dataset, switched by one exclusive file creation.

```
<root>/staging/<batch>/part-<sha256>.parquet     staged rows, named by content
<root>/versions/<number>-<batch>-g<generation>/  data-…, failures-…, manifest.json
<root>/pointer-<number>.json                     the highest number is the current version
```
A pointer appears with its whole content (a hard link to a finished file fails when the name exists), after everything
it names is durable. So a reader that takes the highest pointer sees one whole version, and two writers of one number
cannot both win. Nothing that a pointer names is ever changed or removed.
"""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nightmill.kernel.domain.ids import digest
from nightmill.kernel.domain.lifecycle import ItemOutcome
from nightmill.kernel.store.blobs import BlobMissing, BlobStore
from nightmill.kernel.wire.messages import ItemSettled
from nightmill.publisher.accounting import Chunk, missing
from nightmill.publisher.columns import FAILURE_COLUMNS, Column, Kind, Misfit, Origin
from nightmill.publisher.targets import parts
from nightmill.publisher.targets.answers import AnswerReader
from nightmill.publisher.targets.port import Incomplete, Overtaken, Publication, Published, StagedPart
from nightmill.publisher.targets.tables import VersionFile, VersionWriter, read_file

_POINTER = re.compile(r"^pointer-(\d{10})\.json$")

Manifest = dict[str, Any]


class FilesTarget:
    """A dataset's folder. Satisfies `Target`."""

    def __init__(self, root: Path, blobs: BlobStore) -> None:
        self._root = root
        self._answers = AnswerReader(blobs)

    def location(self, version: int, batch_id: str, generation: int) -> str:
        return f"versions/{version:010d}-{batch_id}-g{generation}/manifest.json"

    def stage(self, batch_id: str, settled: Sequence[ItemSettled]) -> StagedPart:
        data = parts.part_bytes(settled)
        name = digest(data)
        with parts.disk(f"staging results in {self._root}"):
            parts.write_durably(self._part(batch_id, name), data)
        return StagedPart(digest=name, rows=len(settled), bytes=len(data))

    def merge(self, batch_id: str, names: Sequence[str]) -> StagedPart:
        with parts.disk(f"merging parts in {self._root}"):
            temporary = parts.temporary_beside(self._part(batch_id, "merged"))
            try:
                rows = parts.merge_parts([self._part(batch_id, name) for name in names], temporary)
                name, size = parts.file_digest(temporary), temporary.stat().st_size
                parts.keep_durably(temporary, self._part(batch_id, name))
            finally:
                temporary.unlink(missing_ok=True)
        return StagedPart(digest=name, rows=rows, bytes=size)

    def publish(self, publication: Publication) -> Published | Overtaken | Incomplete:
        with parts.disk(f"publishing to {self._root}"):
            standing = self._standing(publication)
            if standing is not None:
                return standing
            try:
                files = self._write_files(publication)
            except (BlobMissing, FileNotFoundError) as error:
                return Incomplete(reason=f"a stored piece is missing: {error}; restore it, then approve")
            if isinstance(files, Incomplete):
                return files
            location = self.location(publication.version, publication.batch_id, publication.generation)
            manifest = _manifest(publication, location, files)
            parts.write_durably(self._root / location, _json(manifest))
            return self._switch(publication, manifest)

    def read(self, version: int | None = None) -> Iterator[dict[str, Any]]:
        manifest = manifest_of(self._root, version)
        if manifest is not None:
            yield from rows_of(self._root, manifest, "data")

    def discard(self, batch_id: str, *, named: Collection[str], before_ms: int) -> int:
        count = 0
        with parts.disk(f"sweeping {self._root}"):
            staged = self._root.glob(f"staging/{batch_id}/*")
            abandoned = self._root.glob(f"versions/*-{batch_id}-g*/.*")
            for path in (*staged, *abandoned):
                name = path.name.removeprefix("part-").removesuffix(".parquet")
                if name not in named and path.stat().st_mtime * 1000 < before_ms:
                    path.unlink(missing_ok=True)
                    count += 1
        return count

    def _part(self, batch_id: str, name: str) -> Path:
        return self._root / "staging" / batch_id / f"part-{name}.parquet"

    def _standing(self, publication: Publication) -> Published | Overtaken | None:
        """What is to be said when a pointer of this number or a higher one exists."""
        highest = max(_pointers(self._root), default=0)
        if highest < publication.version:
            return None
        manifest = manifest_of(self._root, publication.version)
        if manifest is not None and _is_of(manifest, publication):
            return _published(manifest)
        return Overtaken(highest=highest)

    def _write_files(self, publication: Publication) -> list[VersionFile] | Incomplete:
        """The version's files. A value that does not fit its column starts it again with that column as JSON."""
        location = self.location(publication.version, publication.batch_id, publication.generation)
        as_json: set[str] = set()
        while True:
            folder = (self._root / location).parent
            folder.mkdir(parents=True, exist_ok=True)
            try:
                with VersionWriter(folder, publication.pipeline, as_json) as writer:
                    self._fill(writer, publication)
                    if (writer.rows, writer.failures) != _expected(publication):
                        return Incomplete(reason=_shortfall(writer, publication))
                    return writer.finish()
            except Misfit as misfit:
                as_json.add(misfit.column)

    def _fill(self, writer: VersionWriter, publication: Publication) -> None:
        chunks = {row.chunk: Chunk(row.batch_id, row.generation, row.chunk, row) for row in publication.accounting}
        sources = [self._part(publication.batch_id, name) for name in publication.parts]
        for number, records in parts.windows(sources):
            chunk = chunks.get(number)
            if chunk is None:
                continue
            newest: dict[int, parts.PartRecord] = {}
            for record in records:
                accounted = chunk.outcome(record["ordinal"])
                if record["outcome"] == accounted and record["generation"] <= publication.generation:
                    newest[record["ordinal"]] = record
            accepted = [record for record in newest.values() if record["outcome"] == ItemOutcome.ACCEPTED]
            writer.add_rows(self._answers.joined(accepted, publication.pipeline))
            writer.add_failures([r for r in newest.values() if r["outcome"] != ItemOutcome.ACCEPTED])

    def _switch(self, publication: Publication, manifest: Manifest) -> Published | Overtaken:
        pointer = {
            "version": publication.version,
            "batch_id": publication.batch_id,
            "generation": publication.generation,
            "manifest": manifest["location"],
        }
        path = self._root / _pointer_name(publication.version)
        temporary = parts.temporary_beside(path)
        try:
            parts.write_durably(temporary, _json(pointer))
            path.hardlink_to(temporary)
        except FileExistsError:
            return self._standing(publication) or Overtaken(highest=publication.version)
        finally:
            temporary.unlink(missing_ok=True)
        parts.sync_folder(self._root)
        return _published(manifest)


def current(root: Path) -> Manifest | None:
    """Manifest of the version that readers see, or None before the first one."""
    return manifest_of(root, None)


def manifest_of(root: Path, version: int | None) -> Manifest | None:
    """Manifest of a version (None: of the current one), or None when there is none. Raises `Unavailable`."""
    with parts.disk(f"reading {root}"):
        known = _pointers(root)
        wanted = max(known, default=0) if version is None else version
        if wanted not in known:
            return None
        pointer = json.loads((root / _pointer_name(wanted)).read_bytes())
        manifest: Manifest = json.loads((root / pointer["manifest"]).read_bytes())
        return manifest


def rows_of(root: Path, manifest: Manifest, kind: str) -> Iterator[dict[str, Any]]:
    """Rows of a version's files of a kind, `data` or `failures`. Raises `Unavailable`."""
    folder = (root / manifest["location"]).parent
    columns = columns_of(manifest, kind)
    with parts.disk(f"reading {folder}"):
        for file in manifest["files"]:
            if file["kind"] == kind:
                yield from read_file(folder / file["name"], columns)


def columns_of(manifest: Manifest, kind: str) -> tuple[Column, ...]:
    """Columns of a version's files of a kind."""
    if kind == "failures":
        return FAILURE_COLUMNS
    return tuple(Column(**{**c, "origin": Origin(c["origin"]), "kind": Kind(c["kind"])}) for c in manifest["columns"])


def _pointers(root: Path) -> set[int]:
    if not root.is_dir():
        return set()
    return {int(match[1]) for path in root.iterdir() if (match := _POINTER.match(path.name))}


def _pointer_name(version: int) -> str:
    return f"pointer-{version:010d}.json"


def _is_of(manifest: Manifest, publication: Publication) -> bool:
    return (manifest["batch_id"], manifest["generation"]) == (publication.batch_id, publication.generation)


def _published(manifest: Manifest) -> Published:
    data = [file for file in manifest["files"] if file["kind"] == "data"]
    return Published(
        location=manifest["location"],
        rows=sum(file["rows"] for file in data),
        bytes=sum(file["bytes"] for file in data),
    )


def _expected(publication: Publication) -> tuple[int, int]:
    counts = publication.counts
    return counts.accepted, counts.rejected + missing(counts)


def _shortfall(writer: VersionWriter, publication: Publication) -> str:
    rows, failures = _expected(publication)
    return (
        f"staged parts hold {writer.rows} accepted rows and {writer.failures} failures, "
        f"the accounting says {rows} and {failures}; cancel and run the job again"
    )


def _manifest(publication: Publication, location: str, files: Sequence[VersionFile]) -> Manifest:
    pipeline = publication.pipeline
    counts = publication.counts
    failures = next(file.name for file in files if file.kind == "failures")
    waiting = next(file.in_review for file in files if file.kind == "failures")
    return {
        "dataset_id": publication.dataset_id,
        "version": publication.version,
        "location": location,
        "job_id": publication.job_id,
        "batch_id": publication.batch_id,
        "generation": publication.generation,
        "state": publication.state.value,
        "published_at_ms": publication.published_at_ms,
        "format": pipeline.publish.format,
        "pipeline": pipeline.name,
        "pipeline_digest": publication.pipeline_digest,
        "versions": {
            "prompt": pipeline.prompt_version,
            "output_schema": pipeline.output_schema_version,
            "transform": pipeline.transform_version,
        },
        "input_manifest": publication.input_manifest,
        "planned": publication.planned,
        "refused_rows": publication.refused_rows,
        "counts": counts.to_avro(),
        "totals": publication.totals.to_avro(),
        "gold": None if publication.gold is None else publication.gold.to_avro(),
        "gates": [asdict(gate) for gate in publication.gates],
        "approved": publication.approved,
        "columns": next([asdict(column) for column in file.columns] for file in files if file.kind == "data"),
        "files": [
            {"name": f.name, "kind": f.kind, "rows": f.rows, "bytes": f.bytes, "sha256": f.sha256} for f in files
        ],
        "partial": {
            "is_partial": missing(counts) > 0,
            "allowed_by": _permission(publication),
            "scope": {"published": counts.accepted, "of": publication.planned},
            "missing": {
                "dead_letter": counts.dead_letter,
                "in_review": counts.in_review,
                "cancelled": counts.cancelled,
            },
            "visibility": "missing and rejected items have no row in the data files; the failures file lists them",
            "failures_file": failures,
            "in_review": waiting,
            "repair": f"nightmill resume {publication.job_id}" if missing(counts) else None,
        },
    }


def _permission(publication: Publication) -> str | None:
    """Who allowed a version with items missing."""
    if not missing(publication.counts):
        return None
    if publication.approved:
        return "a person's approval"
    return "publish.partial" if publication.pipeline.publish.partial else "gates.completion"


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"
