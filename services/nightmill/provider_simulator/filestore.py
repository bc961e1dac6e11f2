"""The provider's files: their bytes on disk, their records, and how much of each was ever handed out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import JsonValue

from nightmill.provider_simulator.journal import Journal

KIND = "file"
_HANDED_OUT = "handed_out"  # of files that are gone
HIDDEN = "results-"  # how ids begin of files that no client sees as files: Anthropic's requests and results
RETENTION_MS = 30 * 86_400_000  # of batch inputs and outputs


@dataclass(slots=True, kw_only=True)
class FileRecord:
    """One file. Times are virtual."""

    id: str
    filename: str
    purpose: str
    bytes: int
    created_at_ms: int
    processed_at_ms: int
    expires_at_ms: int | None
    delivered_to: int = 0  # so many bytes from the start were handed to clients
    gone: bool = False  # listed, but its content is 404
    told_more: int = 0  # it is said to have so many bytes more than it has

    def as_json(self, now_ms: int) -> dict[str, JsonValue]:
        """The object as OpenAI sends it."""
        return {
            "object": "file",
            "id": self.id,
            "purpose": self.purpose,
            "filename": self.filename,
            "bytes": self.bytes + self.told_more,
            "created_at": self.created_at_ms // 1000,
            "expires_at": None if self.expires_at_ms is None else self.expires_at_ms // 1000,
            "status": "processed" if now_ms >= self.processed_at_ms else "uploaded",
            "status_details": None,
        }


class FileStore:
    """All files of the account, oldest first."""

    def __init__(self, folder: Path, journal: Journal) -> None:
        self._folder = folder
        self._journal = journal
        folder.mkdir(parents=True, exist_ok=True)
        self._records: dict[str, FileRecord] = {}
        for ident, row in journal.rows(KIND):
            self._records[ident] = FileRecord(**row)  # type: ignore[arg-type]  # what `asdict` wrote
        self._handed_out = {ident: int(str(row["bytes"])) for ident, row in journal.rows(_HANDED_OUT)}
        for path in folder.iterdir():  # uploads that came to nothing, results of batches that start again
            if path.name not in self._records:
                path.unlink()

    def path(self, ident: str) -> Path:
        """Where the bytes are or will be."""
        return self._folder / ident

    def add(self, record: FileRecord) -> None:
        """A file whose bytes are on disk."""
        self._records[record.id] = record
        self._save(record)

    def get(self, ident: str, *, now_ms: int) -> FileRecord | None:
        """The file, unless it never was, was deleted, or has expired."""
        record = self._records.get(ident)
        if record is None or (record.expires_at_ms is not None and now_ms >= record.expires_at_ms):
            return None
        return record

    def all(self, *, now_ms: int) -> Iterator[FileRecord]:
        """What a list may show, newest first."""
        return (found for ident in reversed(self._records) if (found := self.get(ident, now_ms=now_ms)) is not None)

    def remove(self, ident: str) -> None:
        """Delete the file and its bytes; the books remember how much of it was handed out."""
        record = self._records.pop(ident, None)
        if record is not None and record.delivered_to:
            self._handed_out[ident] = record.delivered_to
            self._journal.put(_HANDED_OUT, ident, {"bytes": record.delivered_to})
        self.path(ident).unlink(missing_ok=True)
        self._journal.remove(KIND, ident)

    def delivered(self, ident: str, start: int, stop: int) -> None:
        """Bytes `start` to `stop` reached a client; only what is whole from the beginning counts."""
        record = self._records.get(ident)
        if record is not None and start <= record.delivered_to < stop:
            record.delivered_to = stop
            self._save(record)

    def delivered_to(self, ident: str | None) -> int:
        """How much of the file was handed out, from the start, also of one that is deleted now."""
        record = self._records.get(ident or "")
        return self._handed_out.get(ident or "", 0) if record is None else record.delivered_to

    def _save(self, record: FileRecord) -> None:
        self._journal.put(KIND, record.id, asdict(record))
