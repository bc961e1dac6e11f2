"""The result files of one batch while they are written: rows to disk slice by slice, books beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Self

from nightmill.provider_simulator.bulk.books import BatchBook
from nightmill.provider_simulator.bulk.rows import Done, book_row
from nightmill.provider_simulator.stories import ResultFile


@dataclass(slots=True)
class _Out:
    """One file and how long it is."""

    path: Path
    newline: bytes
    size: int = 0
    rows: int = 0
    parts: list[bytes] = field(default_factory=list)
    file: BinaryIO = field(init=False)

    def __post_init__(self) -> None:
        self.file = self.path.open("wb")

    def add(self, row: bytes) -> int:
        self.parts.append(row)
        self.parts.append(self.newline)
        self.size += len(row)
        end = self.size
        self.size += len(self.newline)
        self.rows += 1
        return end

    def flush(self) -> None:
        self.file.write(b"".join(self.parts))
        self.parts.clear()


class Results:
    """Output, errors and books of one batch. One file for both kinds of rows if `error_path` is None."""

    def __init__(
        self, book: BatchBook, output_path: Path, error_path: Path | None, *, spoil: ResultFile | None
    ) -> None:
        form = None if spoil is None else spoil.form
        newline = b"\r\n" if form == "crlf" else b"\n"
        self._form = form
        self._book = book
        self._output = _Out(output_path, newline)
        self._error = self._output if error_path is None else _Out(error_path, newline)
        self._books = _Out(book.path, b"\n")
        if form == "bom":
            self._output.parts.append(b"\xef\xbb\xbf")
            self._output.size += 3

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for one in self._files():
            one.file.close()

    @property
    def output_rows(self) -> int:
        """Rows in the output file."""
        return self._output.rows

    @property
    def error_rows(self) -> int:
        """Rows in the error file; the output's if there is one file."""
        return self._error.rows

    def write(self, dones: Sequence[Done], *, batch_id: str, now_ms: int) -> None:
        """The rows of one slice, in the order given."""
        book = self._book
        for done in dones:
            out = self._output if done.good else self._error
            end = 0
            if done.row is not None:
                end = out.add(done.row)
            if done.extra is not None:
                out.add(done.extra)
            if self._form == "blank_line" and self._output.rows == 1:
                self._output.add(b"")
            book.add(done, row_end=end if out is self._output else 0)
            file_id = book.output_id if out is self._output else book.error_id
            self._books.add(
                book_row(done, batch_id=batch_id, file_id=file_id, end=end, started_at_ms=now_ms, ended_at_ms=now_ms)
            )
        for one in self._files():
            one.flush()

    def close(self) -> tuple[int, int]:
        """No more rows: the sizes of output and error file."""
        for one in self._files():
            one.flush()
            one.file.close()
        self._book.output_bytes = self._output.size  # what is cut off below is never delivered
        if self._form in ("cut_last_line", "no_final_newline"):
            for out in {id(self._output): self._output, id(self._error): self._error}.values():
                lose = 1 if self._form == "no_final_newline" else 20
                out.size = max(0, out.size - lose)
                with out.path.open("r+b") as file:
                    file.truncate(out.size)
        return self._output.size, self._error.size

    def _files(self) -> list[_Out]:
        found = [self._output, self._books]
        return found if self._error is self._output else [*found, self._error]
