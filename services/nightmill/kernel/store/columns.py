"""Rows as the Arrow streams that ClickHouse takes: a table's columns by kind, converted column by column.

No row object is built and money never passes through a float: nano-USD become the same integers with nine decimals.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa


class Kind(StrEnum):
    """How a column's Python values become Arrow; None becomes null, or the default of a column that has no null."""

    TEXT = "text"
    NUMBER = "number"  #: an integer
    FLAG = "flag"
    TIME_MS = "time_ms"  #: epoch milliseconds → DateTime64(3)
    MINUTE_S = "minute_s"  #: epoch seconds → DateTime
    NANO_USD = "nano_usd"  #: integer nano-USD → Decimal(18, 9) of USD, exact
    TAGS = "tags"  #: a list of (name, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table as its writer sees it: names and kinds in the order of its row tuples."""

    name: str
    columns: tuple[tuple[str, Kind], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)


def arrow_array(kind: Kind, values: Sequence[Any]) -> pa.Array:
    """`values` as the Arrow column that ClickHouse reads without loss."""
    match kind:
        case Kind.TEXT:
            return pa.array(values, pa.string())
        case Kind.NUMBER:
            return pa.array(values, pa.int64())
        case Kind.FLAG:
            return pa.array(values, pa.bool_())
        case Kind.TIME_MS:
            return pa.array(values, pa.int64()).cast(pa.timestamp("ms", "UTC"))
        case Kind.MINUTE_S:
            return pa.array(values, pa.int64()).cast(pa.timestamp("s", "UTC"))
        case Kind.NANO_USD:
            # the same 128-bit integers, read with nine decimals: no Decimal object per row
            whole = pa.array(values, pa.int64()).cast(pa.decimal128(19, 0))
            return pa.Array.from_buffers(pa.decimal128(18, 9), len(whole), whole.buffers(), whole.null_count)
        case Kind.TAGS:
            return pa.array(values, pa.map_(pa.string(), pa.string()))


def arrow_stream(table: Table, rows: Sequence[tuple[Any, ...]]) -> bytes:
    """Rows as one Arrow IPC stream."""
    columns = zip(*rows, strict=True)
    arrays = [arrow_array(kind, values) for (_, kind), values in zip(table.columns, columns, strict=True)]
    batch = pa.record_batch(arrays, names=list(table.names))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream
