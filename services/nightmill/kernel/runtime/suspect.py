"""Finds the record that kills its service: a mark on disk while a record is handled.

The mark is a small mapped file, so setting it costs a memory write and survives the process (not the machine). A
process that starts and finds a mark counts one kill against that record; at the second the record is quarantined. An
operator's kills hit the same record twice only by a rare chance, because what comes before the marked record is
committed first, and the record itself alone.

A record whose outcome can not be sent, because it is too large or a row of it can not be encoded, is found without a
kill: records are met one by one until one fails alone.
"""

import mmap
from collections.abc import Sequence
from pathlib import Path

from nightmill.kernel.runtime.log import Record

_SIZE = 512
_LIMIT = 2
_SEARCHED_RECORDS = 2_000  #: one that was not met among so many is somewhere else now


class Suspect:
    """The mark of one instance, in the file `path`."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._counts = path.with_suffix(".kills")
        if not path.exists() or path.stat().st_size != _SIZE:
            path.write_bytes(b"\0" * _SIZE)
        self._file = path.open("r+b")
        self._map = mmap.mmap(self._file.fileno(), _SIZE)
        self._killer, self._kills = self._count()
        self._search_left = 0
        self._refused: dict[bytes, str] = {}

    @property
    def careful(self) -> bool:
        """Whether a record is under suspicion."""
        return self._kills > 0 or self.searching

    @property
    def searching(self) -> bool:
        """Whether records are met one by one."""
        return self._search_left > 0

    def apart(self, record: Record) -> bool:
        """Whether `record` must have a transaction of its own."""
        return self.searching or (self._kills > 0 and _name(record) == self._killer)

    def verdict(self, record: Record) -> str | None:
        """Why `record` must not be handled again, if so: it killed this service twice, or its outcome was refused."""
        if self._kills >= _LIMIT and _name(record) == self._killer:
            return "this record ended the service's process twice while it was handled"
        return self._refused.get(_name(record)) if self._refused else None

    def search(self, handled: Sequence[Record], reason: str) -> None:
        """What the records `handled` in one transaction led to was refused for `reason`: find the one that did it."""
        if self.searching and len(handled) == 1:
            self._refused[_name(handled[0])] = reason
        self._search_left = _SEARCHED_RECORDS

    def handling(self, record: Record) -> None:
        name = _name(record)
        self._map[: len(name) + 1] = name + b"\0"

    def handled(self) -> None:
        self._map[0] = 0
        self._search_left = max(0, self._search_left - 1)

    def passed(self, record: Record) -> None:
        """`record` is committed; if it was the suspect, suspicion ends."""
        if self._refused and self._refused.pop(_name(record), None) is not None:
            self._search_left = 0
        if self._kills and _name(record) == self._killer:
            self._killer, self._kills = b"", 0
            self._counts.unlink(missing_ok=True)

    def close(self) -> None:
        self._map.close()
        self._file.close()

    def _count(self) -> tuple[bytes, int]:
        marked = self._map[:].split(b"\0", 1)[0]
        counted = self._counts.read_bytes() if self._counts.exists() else b""
        before, _, number = counted.rpartition(b"\n")
        # a kill while this file was written leaves it cut: then nobody is under suspicion
        known = int(number) if number.isdigit() else 0
        if not marked:
            return before, known
        kills = known + 1 if before == marked else 1
        self._counts.write_bytes(marked + b"\n" + str(kills).encode())
        self._map[0] = 0
        return marked, kills


def _name(record: Record) -> bytes:
    return f"{record.place.topic}/{record.place.partition}/{record.offset}".encode()[: _SIZE - 1]
