"""What a job reads, as one stream of bytes: a file as it is, a folder of texts, `distributions`, rows, or a table."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nightmill.client.errors import BadInput
from nightmill.kernel.domain.lifecycle import InputFormat

DISTRIBUTIONS = "distributions"
_CHUNK_BYTES = 256 << 10
_MARK = b"\xef\xbb\xbf"
_FORMATS = {
    ".jsonl": InputFormat.JSONL,
    ".ndjson": InputFormat.JSONL,
    ".csv": InputFormat.CSV,
    ".parquet": InputFormat.PARQUET,
    ".pq": InputFormat.PARQUET,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An input to upload; `open` may be called again and raises `BadInput` where reading fails."""

    name: str
    format: InputFormat
    open: Callable[[], Iterator[bytes]]


def source_of(given: Any) -> Source:
    """How to read what a caller named. Raises `BadInput` for what can not be read."""
    if isinstance(given, str) and given == DISTRIBUTIONS:
        return Source(name=DISTRIBUTIONS, format=InputFormat.JSONL, open=_distributions)
    if isinstance(given, str | os.PathLike):
        if given == "":  # a path would take it for this folder, and a shell writes it for a variable that is not set
            raise BadInput("input: is empty", f"name a file or a folder, or use {DISTRIBUTIONS!r}")
        return _of_path(Path(given).expanduser())
    if type(given).__module__.partition(".")[0] in ("pandas", "pyarrow"):
        return Source(name="table", format=InputFormat.PARQUET, open=lambda: _table(given))
    if isinstance(given, Iterable) and not isinstance(given, bytes | Mapping):
        rows = given if isinstance(given, list) else list(given)
        return Source(name="rows", format=InputFormat.JSONL, open=lambda: _rows(rows))
    kind = type(given).__name__
    raise BadInput(f"input: a {kind} can not be read", "give a path, a list of dicts, a pandas or pyarrow table")


def _of_path(path: Path) -> Source:
    if not path.exists():
        raise BadInput(f"{path}: no such file or folder", f"check the path, or use {DISTRIBUTIONS!r}")
    if path.is_dir():
        files = list(_text_files(path))
        if not files:
            raise BadInput(f"{path}: no file in this folder", "name a folder of text files")
        return Source(name=str(path), format=InputFormat.JSONL, open=lambda: _folder(path, files))
    if not path.is_file():
        raise BadInput(f"{path}: is neither a file nor a folder", "write it to a file first")
    format_ = _FORMATS.get(path.suffix.lower())
    if format_ is None:
        shown = path.suffix or "no ending"
        raise BadInput(f"{path}: {shown} says no format", f"name it {', '.join(sorted(_FORMATS))}, or give a folder")
    try:
        with path.open("rb") as file:
            if not file.read(1):
                raise BadInput(f"{path}: is empty", "give a file with rows")
    except OSError as error:
        raise _unreadable(path, error) from error
    return Source(name=str(path), format=format_, open=lambda: _file(path))


def _file(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk
    except OSError as error:
        raise _unreadable(path, error) from error


def _text_files(root: Path) -> Iterator[Path]:
    """Files below a folder, by path; hidden ones are not documents."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith("."):
                yield Path(folder) / name


def _folder(root: Path, files: Iterable[Path]) -> Iterator[bytes]:
    for path in files:
        try:
            text = path.read_bytes().removeprefix(_MARK).decode()
        except UnicodeDecodeError as error:
            remedy = "save it as UTF-8, or hide it by a leading dot"
            raise BadInput(f"{path}: not UTF-8 at byte {error.start + 1}", remedy) from error
        except OSError as error:
            raise _unreadable(path, error) from error
        yield _line({"id": path.relative_to(root).as_posix(), "text": text})


def _distributions() -> Iterator[bytes]:
    from nightmill.client.distributions import read_distributions

    for row in read_distributions():
        yield _line(row)


def _rows(rows: Iterable[Any]) -> Iterator[bytes]:
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise BadInput(f"input, row {number}: a {type(row).__name__}, not a dict", "give one dict per row")
        try:
            yield _line(row)
        except (TypeError, ValueError) as error:
            raise BadInput(f"input, row {number}: {error}", "use texts, finite numbers, booleans and None") from error


def _table(table: Any) -> Iterator[bytes]:
    from nightmill.client.tables import table_as_parquet

    return table_as_parquet(table)


def _line(row: Mapping[str, Any]) -> bytes:
    return json.dumps(dict(row), ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _unreadable(path: Path, error: OSError) -> BadInput:
    return BadInput(f"{path}: can not be read: {error.strerror}", "check its rights")
