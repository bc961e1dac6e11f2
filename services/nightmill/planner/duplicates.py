"""Duplicate ids of a whole input, found with bounded memory and in bounded steps.

Every slice leaves a *run*: its ids' digests, sorted, each with the row and ordinal it belongs to. The digests are
uniform, so they are merged range by range: a pass gathers one range from every run, sorts it and looks at neighbours.
A search is a reading of blobs and keeps no state that a crash could lose; it simply starts again.
"""

import hashlib
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import nsmallest

_DIGEST_BYTES = 16
_TAIL = struct.Struct(">QQ")
_ENTRY_BYTES = _DIGEST_BYTES + _TAIL.size
_RANGE = 1 << 64
_NAMED = 5

#: entries held by one pass (about 20 MB)
PASS_ENTRIES = 1 << 18
#: runs read in one step
STEP_RUNS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class IdEntry:
    """Where an id was seen."""

    row: int  #: as the reader numbers it
    ordinal: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """One id that two rows share; `first` comes before `second` in the input."""

    first: IdEntry
    second: IdEntry


def write_run(ids: Iterable[tuple[str, IdEntry]]) -> bytes:
    """The sorted run of a slice."""
    entries = [
        hashlib.sha256(source_id.encode()).digest()[:_DIGEST_BYTES] + _TAIL.pack(entry.row, entry.ordinal)
        for source_id, entry in ids
    ]
    return b"".join(sorted(entries))


def repeats(entries: list[bytes]) -> list[tuple[bytes, bytes]]:
    """(first, later) for each entry whose id an earlier row has; sorts `entries` in place."""
    entries.sort()
    found: list[tuple[bytes, bytes]] = []
    first = head = b""
    for entry in entries:
        if entry[:_DIGEST_BYTES] == head:
            found.append((first, entry))
        else:
            first, head = entry, entry[:_DIGEST_BYTES]
    return found


def duplicates_in(entries: list[bytes]) -> tuple[Duplicate, ...]:
    """The same for people, by the place of the later row, at most five."""
    return tuple(_duplicate(pair) for pair in _earliest(repeats(entries)))


class DuplicateSearch:
    """Looks through the runs of one batch. Call `step` until it returns True."""

    def __init__(
        self, runs: Sequence[str], entries: int, read: Callable[[str], bytes], *, pass_entries: int = PASS_ENTRIES
    ) -> None:
        self._runs, self._read = tuple(runs), read
        self._passes = max(1, -(-entries // pass_entries))
        self._pass = self._next_run = 0
        self._gathered: list[bytes] = []
        self._found: list[tuple[bytes, bytes]] = []
        self.count = 0  #: rows that repeat the id of an earlier one

    def step(self) -> bool:
        """One bounded piece of the search; True when it is complete. Raises what `read` raises."""
        if self._pass == self._passes:
            return True
        low, high = self._bounds(self._pass), self._bounds(self._pass + 1)
        for name in self._runs[self._next_run : self._next_run + STEP_RUNS]:
            self._gathered += _between(self._read(name), low, high)
            self._next_run += 1
        if self._next_run == len(self._runs):
            found = repeats(self._gathered)
            self.count += len(found)
            self._found = _earliest([*self._found, *found])
            self._gathered, self._next_run, self._pass = [], 0, self._pass + 1
        return self._pass == self._passes

    def _bounds(self, index: int) -> bytes | None:
        """First digest bytes of pass `index`; None after the last pass."""
        return None if index == self._passes else (_RANGE * index // self._passes).to_bytes(8, "big")

    @property
    def first(self) -> tuple[Duplicate, ...]:
        """The repeats that come first in the input, at most five; final once the search is complete."""
        return tuple(_duplicate(pair) for pair in self._found)


def _earliest(pairs: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return nsmallest(_NAMED, pairs, key=lambda pair: pair[1][_DIGEST_BYTES:])


def _between(run: bytes, low: bytes | None, high: bytes | None) -> list[bytes]:
    entries = range(0, len(run), _ENTRY_BYTES)
    begin = bisect_left(entries, low or b"", key=lambda at: run[at : at + _ENTRY_BYTES])
    end = len(entries) if high is None else bisect_left(entries, high, key=lambda at: run[at : at + _ENTRY_BYTES])
    return [run[at : at + _ENTRY_BYTES] for at in entries[begin:end]]


def _duplicate(pair: tuple[bytes, bytes]) -> Duplicate:
    return Duplicate(first=_entry(pair[0]), second=_entry(pair[1]))


def _entry(raw: bytes) -> IdEntry:
    row, ordinal = _TAIL.unpack(raw[_DIGEST_BYTES:])
    return IdEntry(row=row, ordinal=ordinal)
