"""Result files on disk: where each request's line is, without holding the lines (E6).

Files of any size are read in one pass that keeps some bytes a request. Lines end at `\\n` bytes alone: an answer may
hold U+2028 or a carriage return, and providers write CRLF, blank lines, a byte order mark and no last line end. The
first valid line of a request counts; further ones, and lines of nobody, are set aside and counted.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from nightmill.provider_gateway.bulk.dialect import ResultLine

_BOM = b"\xef\xbb\xbf"
#: a longer line is no answer that the gateway would take
MOST_LINE_BYTES = 9 << 20
_NOWHERE = -1
#: bytes of strange lines that are kept for people to look at
_KEPT_BYTES = 4 << 20


class ResultFile(StrEnum):
    """One of the files that the results of a batch are in."""

    OUTPUT = "output"  #: what was answered, and so billed; where there is one file, everything
    ERROR = "error"  #: what failed or did not run


class Places:
    """For each position of a submission the file, offset and length of its line, or nothing."""

    def __init__(self, size: int) -> None:
        self._file = array("b", [_NOWHERE]) * size
        self._offset = array("q", [0]) * size
        self._length = array("l", [0]) * size

    def __len__(self) -> int:
        return len(self._file)

    @property
    def missing(self) -> int:
        """Positions without a line."""
        return self._file.count(_NOWHERE)

    def put(self, position: int, file: int, offset: int, length: int) -> None:
        self._file[position], self._offset[position], self._length[position] = file, offset, length

    def get(self, position: int) -> tuple[int, int, int] | None:
        """File, offset and length."""
        file = self._file[position]
        return None if file == _NOWHERE else (file, self._offset[position], self._length[position])


@dataclass(slots=True)
class Sorting:
    """What one pass over the result files found."""

    places: Places
    strangers: int = 0
    repeats: int = 0
    _kept: int = 0


def sort_lines(
    paths: Sequence[Path],
    positions: Mapping[str, int],
    read: Callable[[bytes], ResultLine | None],
    set_aside: Path,
) -> Sorting:
    """Find the line of each custom id in `positions`. Strange lines go to the file `set_aside`, some megabytes."""
    found = Sorting(Places(len(positions)))
    valid = bytearray(len(positions))
    set_aside.parent.mkdir(exist_ok=True)
    with set_aside.open("wb") as aside:
        for number, path in enumerate(paths):
            with path.open("rb") as file:
                for offset, raw in lines_of(file):
                    line = read(raw) if len(raw) <= MOST_LINE_BYTES else None
                    position = None if line is None else positions.get(line.custom_id)
                    if line is None or position is None:
                        found.strangers += 1
                        _keep(found, aside, raw)
                        continue
                    if found.places.get(position) is not None:
                        found.repeats += 1
                        if valid[position] or not line.is_valid:
                            _keep(found, aside, raw)
                            continue
                    found.places.put(position, number, offset, len(raw))
                    valid[position] = line.is_valid
    if not found.strangers and not found.repeats:
        set_aside.unlink()
    return found


def lines_of(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Lines that hold something, with their offsets. A line that is too long comes cut, one byte over the limit."""
    offset = 0
    while raw := file.readline(MOST_LINE_BYTES + 2):
        start = offset
        offset += len(raw)
        if len(raw) > MOST_LINE_BYTES and not raw.endswith(b"\n"):
            offset += _skip(file)
        if start == 0 and raw.startswith(_BOM):
            start, raw = len(_BOM), raw[len(_BOM) :]
        text = raw.rstrip(b"\r\n")
        if text.strip():
            yield start, text


def _skip(file: BinaryIO) -> int:
    """Read on to the end of the line; returns how far."""
    skipped = 0
    while raw := file.readline(1 << 20):
        skipped += len(raw)
        if raw.endswith(b"\n"):
            break
    return skipped


def _keep(found: Sorting, aside: BinaryIO, raw: bytes) -> None:
    if found._kept + len(raw) < _KEPT_BYTES:
        aside.write(raw + b"\n")
        found._kept += len(raw)
