"""What the simulator keeps across its own restarts: an append-only file of the latest state of each thing.

Without a home it lies in a temporary folder and dies with it. A last line that was cut by a crash is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import JsonValue


class Journal:
    """Rows `{kind, id, row}`; the last one of a kind and id counts, a null row removes it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: dict[tuple[str, str], dict[str, JsonValue]] = {}
        self._replay()
        self._file = path.open("ab", buffering=0)

    def put(self, kind: str, ident: str, row: Mapping[str, JsonValue]) -> None:
        """The state of one thing; on disk when this returns, as far as a crash of the process goes."""
        self._write(kind, ident, dict(row))

    def remove(self, kind: str, ident: str) -> None:
        """The thing is gone."""
        self._write(kind, ident, None)

    def rows(self, kind: str) -> Iterator[tuple[str, dict[str, JsonValue]]]:
        """What was there when the journal was opened, in the order of the first mention."""
        return ((ident, row) for (its_kind, ident), row in self._rows.items() if its_kind == kind)

    def close(self) -> None:
        self._file.close()

    def _write(self, kind: str, ident: str, row: dict[str, JsonValue] | None) -> None:
        line = json.dumps({"kind": kind, "id": ident, "row": row}, separators=(",", ":"))
        self._file.write(line.encode() + b"\n")

    def _replay(self) -> None:
        for line in whole_lines(self._path):
            entry = json.loads(line)
            key = (entry["kind"], entry["id"])
            if entry["row"] is None:
                self._rows.pop(key, None)
            else:
                self._rows[key] = entry["row"]


def whole_lines(path: Path) -> list[bytes]:
    """The lines of an append-only file; a last one that a crash cut short is cut off, so that appending goes on."""
    if not path.exists():
        return []
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        with path.open("r+b") as file:
            file.truncate(len(whole))
    return whole.split(b"\n")[:-1]
