"""The books of the lines of batches: a file for each batch, written as its lines run, and sums over it.

A line is delivered once its row lies within the part of the result file that was handed to clients from the start.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from nightmill.provider_simulator.bill import Page, Sums
from nightmill.provider_simulator.bulk.lines import raw_lines
from nightmill.provider_simulator.bulk.rows import Done


@dataclass(slots=True, kw_only=True)
class BatchBook:
    """The sums of one batch."""

    path: Path
    output_id: str
    error_id: str
    sums: Page = field(default_factory=Page)
    in_output: Sums = field(default_factory=Sums)  # billed, and a row tells of it
    output_bytes: int = 0

    def add(self, done: Done, *, row_end: int) -> None:
        """One line ran."""
        self.sums.received += 1
        reply = done.reply
        if reply is None:
            return
        if reply.fault is not None:
            self.sums.faults[reply.fault] += 1
        if reply.accepted:
            self.sums.accepted.add(done.prompt_tokens, 0, None)
        if reply.usage is not None:
            self._bill(reply.usage.prompt_tokens, reply.usage.completion_tokens, done.nano_usd, row_end)

    def _bill(self, prompt_tokens: int, completion_tokens: int, nano_usd: int | None, row_end: int) -> None:
        self.sums.billed.add(prompt_tokens, completion_tokens, nano_usd)
        if row_end:
            self.in_output.add(prompt_tokens, completion_tokens, nano_usd)

    def page(self, delivered_to: int) -> Page:
        """The sums, when so much of the output file was handed out."""
        page = Page()
        page.merge(self.sums)
        if delivered_to >= self.output_bytes > 0:
            page.delivered.merge(self.in_output)
        elif delivered_to > 0:
            for row in self.rows():
                if row["billed"] and row["file"] == self.output_id and 0 < _int(row["end"]) <= delivered_to:
                    page.delivered.add(*_billed(row))
        billed, got = page.billed, page.delivered
        page.lost = Sums(
            calls=billed.calls - got.calls,
            prompt_tokens=billed.prompt_tokens - got.prompt_tokens,
            completion_tokens=billed.completion_tokens - got.completion_tokens,
            nano_usd=billed.nano_usd - got.nano_usd,
            unpriced=billed.unpriced - got.unpriced,
        )
        return page

    def rows(self) -> Iterator[dict[str, JsonValue]]:
        """The rows as written."""
        if self.path.exists():
            for raw in raw_lines(self.path):
                yield from_json(raw)

    def attempts(self, delivered_to: int, *, refused: bool) -> Iterator[bytes]:
        """The rows as the ledger shows them, `delivered` filled in; only accepted ones unless `refused`."""
        for row in self.rows():
            if refused or row["accepted"]:
                end, file, told = _int(row.pop("end")), row.pop("file"), row.pop("told") is True
                row["delivered"] = bool(row["billed"]) and file == self.output_id and 0 < end <= delivered_to
                row["usage_delivered"] = row["delivered"] and told
                yield to_json(row) + b"\n"

    def recount(self) -> None:
        """The sums again, from the file, after a restart."""
        for row in self.rows():
            self.sums.received += 1
            if row["fault"] is not None:
                self.sums.faults[str(row["fault"])] += 1
            if row["accepted"]:
                self.sums.accepted.add(_int(row["prompt_tokens"]), 0, None)
            if row["billed"]:
                self._bill(*_billed(row), _int(row["end"]) if row["file"] == self.output_id else 0)


def _billed(row: dict[str, JsonValue]) -> tuple[int, int, int | None]:
    nano_usd = row["billed_nano_usd"]
    return (
        _int(row["billed_prompt_tokens"]),
        _int(row["billed_completion_tokens"]),
        nano_usd if isinstance(nano_usd, int) else None,
    )


def _int(value: JsonValue) -> int:
    return value if isinstance(value, int) else 0
