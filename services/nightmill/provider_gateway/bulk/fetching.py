"""Results from the provider to this machine's disk, and from there, some at a time, to answers (E6).

A download that breaks goes on where it stopped, in this process or in the next one on this disk; its size is compared
with what the provider says the file has, and one that never fits is taken as it is if the errand says so. Nothing but
lines that are being read is in memory, whatever the size of the files.
"""

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from nightmill.kernel.wire.messages import AttemptAnswered
from nightmill.provider_gateway.bulk import errands as e
from nightmill.provider_gateway.bulk.answers import answer
from nightmill.provider_gateway.bulk.requests import dialect_of, to_pool
from nightmill.provider_gateway.bulk.results import MOST_LINE_BYTES, ResultFile, sort_lines
from nightmill.provider_gateway.bulk.sweeping import DOWNLOAD
from nightmill.provider_gateway.bulk.wire import Broken, Wire
from nightmill.provider_gateway.exchange import Response
from nightmill.provider_gateway.failures import Signal, failure
from nightmill.provider_gateway.orders import custom_id, offloaded

#: where lines of nobody are kept for people to look at
STRANGE = "strange"
_TRANSFER_S = 1800.0
_REQUEST_S = 60.0
#: a download that stops so often without bringing a byte is broken off, to be tried again later
_MOST_STANDSTILLS = 3
#: a file may be twice as long as it is said to be, and so much more, and is read all the same in the end
_SLACK_BYTES = 1 << 20
_LONGEST_SIZE = 19  #: digits; Python refuses to read thousands


def fetch(errand: e.Fetch, wire: Wire, stem: Path) -> e.Outcome:
    """Both files, output first, and the place of each order's line in them. Raises `Broken`, `Unavailable`.

    A file that is gone keeps nobody from bringing the other one.
    """
    paths: list[Path] = []
    gone: list[ResultFile] = []
    misfits: list[str] = []
    for kind, file_id in ((ResultFile.OUTPUT, errand.row.output_id), (ResultFile.ERROR, errand.row.error_id)):
        if file_id is None:
            continue
        path = stem.with_name(f"{stem.name}-{kind}{DOWNLOAD}")
        if errand.afresh:
            path.unlink(missing_ok=True)
        refusal = _brought(errand, wire, file_id, path)
        if isinstance(refusal, _Misfit):
            misfits.append(f"{kind}: {refusal.words}")
            refusal = None
        if isinstance(refusal, e.Absent):
            gone.append(kind)
            continue
        if refusal is not None:
            return refusal
        paths.append(path)
    if gone and not paths:
        return e.Absent()
    positions = {custom_id(order): position for position, order in enumerate(errand.orders)}
    aside = stem.parent / STRANGE / f"{errand.row.submission_id}.jsonl"
    found = sort_lines(paths, positions, dialect_of(errand.access).read, aside)
    return e.Harvest(
        paths=tuple(paths),
        places=found.places,
        strangers=found.strangers,
        repeats=found.repeats,
        aside=aside,
        gone=tuple(gone),
        misfits=tuple(misfits),
    )


def read(errand: e.Read, put_blob: Callable[[bytes], str]) -> e.Answers:
    """One answer for each order of the errand that is to have one now. Raises `Unavailable` without the blob store."""
    dialect, harvest = dialect_of(errand.access), errand.harvest
    answers: list[AttemptAnswered] = []
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("rb")) for path in harvest.paths]
        for position, order in enumerate(errand.orders, errand.first):
            place = harvest.places.get(position)
            is_read = errand.before is not None and errand.before.get(position) is not None
            if is_read or (harvest.waits and place is None):
                continue
            line = None if place is None else dialect.read(line_at(files[place[0]], place))
            answered = answer(order, line, errand.row, errand.access.adapter, harvest.gone)
            answers.append(offloaded(answered, put_blob))
    return tuple(answers)


def line_at(file: BinaryIO, place: tuple[int, int, int]) -> bytes:
    """The line at a place of its file. Lines are in any order: what a buffer reads ahead is seldom the next one."""
    _, offset, length = place
    return os.pread(file.fileno(), length, offset)


@dataclass(frozen=True, slots=True)
class _Misfit:
    """The file is there, with another size than it should have, and that is taken."""

    words: str


def _brought(errand: e.Fetch, wire: Wire, file_id: str, path: Path) -> e.Absent | e.Refused | _Misfit | None:
    """None when the whole file is there."""
    access, dialect = errand.access, dialect_of(errand.access)
    to = to_pool(access)
    ask, size = dialect.about(access.base_url, file_id), None
    if ask is not None:
        about = wire.send(ask, to, deadline_s=_REQUEST_S)
        if about.status != 200:
            return _missing(errand, about)
        stored = dialect.stored(about.body)
        size = None if stored is None else stored.bytes
    standstills, have, most = 0, 0, _most_bytes(errand, size)
    content = dialect.content(access.base_url, file_id)
    while True:
        try:
            response = wire.download(content, path, to, deadline_s=_TRANSFER_S, most_bytes=most)
        except Broken as error:
            now_have = path.stat().st_size if path.exists() else 0
            standstills, have = (0, now_have) if now_have > have else (standstills + 1, have)
            if standstills < _MOST_STANDSTILLS:
                continue
            if errand.any_size and error.signal is Signal.BODY_INCOMPLETE and have:
                return _Misfit(f"{have} bytes, and the rest never came")
            raise
        if response.status not in (200, 416):
            return _missing(errand, response)
        have = path.stat().st_size
        size = _total(response) if size is None else size
        if have == size or (size is None and have <= most):
            return None
        words = f"{have} of {most if size is None else size} bytes"
        if errand.any_size:
            return _Misfit(words)
        path.unlink()
        return e.Refused(failure=failure(Signal.BODY_INCOMPLETE, detail=words))


def _most_bytes(errand: e.Fetch, told: int | None) -> int:
    """More than any file of the batch has: a server that never stops must not fill the disk."""
    most = errand.row.requests * (MOST_LINE_BYTES + 1)
    return most if told is None else min(most, 2 * told + _SLACK_BYTES)


def _total(response: Response) -> int | None:
    """The size of the whole file, as a response about part of it tells."""
    text = response.headers.get("content-range", "").rpartition("/")[2]
    return int(text) if text.isdecimal() and len(text) < _LONGEST_SIZE else None


def _missing(errand: e.Fetch, response: Response) -> e.Absent | e.Refused:
    if response.status == 404:
        return e.Absent()
    found = errand.access.adapter.reply(response, now_ms=errand.row.ended_at_ms or 0).failure
    return e.Refused(failure=found or failure(Signal.UNEXPECTED_SHAPE, status=response.status))
