"""Rows as the Arrow streams that ClickHouse takes: a table's columns by kind, converted column by column.

No row object is built and money never passes through a float: nano-USD become the same integers with nine decimals.
What was read as a column (`columnar`) becomes Arrow without a Python value between.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa

from nightmill.kernel.wire.columnar import Column, Numbers, Symbols, Texts


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


def arrow_array(kind: Kind, values: Sequence[Any] | Column) -> pa.Array:
    """`values` as the Arrow column that ClickHouse reads without loss. A text that is no UTF-8 raises `ValueError`."""
    match kind:
        case Kind.TEXT:
            return _texts(values)
        case Kind.NUMBER:
            return _integers(values)
        case Kind.FLAG:
            return _integers(values).cast(pa.bool_()) if isinstance(values, Numbers) else pa.array(values, pa.bool_())
        case Kind.TIME_MS:
            return _integers(values).cast(pa.timestamp("ms", "UTC"))
        case Kind.MINUTE_S:
            return _integers(values).cast(pa.timestamp("s", "UTC"))
        case Kind.NANO_USD:
            # the same 128-bit integers, read with nine decimals: no Decimal object per row
            whole = _integers(values).cast(pa.decimal128(19, 0))
            return pa.Array.from_buffers(pa.decimal128(18, 9), len(whole), whole.buffers(), whole.null_count)
        case Kind.TAGS:
            return pa.array(values, pa.map_(pa.string(), pa.string()))


def arrow_stream(table: Table, columns: Sequence[Sequence[Any] | Column]) -> bytes:
    """Columns in the order of the table's as one Arrow IPC stream. Raises as `arrow_array`."""
    arrays = [arrow_array(kind, values) for (_, kind), values in zip(table.columns, columns, strict=True)]
    batch = pa.record_batch(arrays, names=list(table.names))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def _integers(values: Sequence[Any] | Column) -> pa.Array:
    if isinstance(values, Numbers):
        return pa.array(values.values, mask=~values.known)
    return pa.array(values, pa.int64())


def _texts(values: Sequence[Any] | Column) -> pa.Array:
    match values:
        case Symbols():
            return pa.array(values.names, pa.string()).take(pa.array(values.codes))
        case Texts():
            return _pieces(values)
    return pa.array(values, pa.string())


def _pieces(texts: Texts) -> pa.Array:
    """Every second of the texts that one buffer makes when it is cut at all starts and ends: no copy in Python."""
    count = len(texts.starts)
    bounds = np.empty(2 * count, np.int32)
    bounds[::2], bounds[1::2] = texts.starts, texts.ends
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(texts.data)]
    pieces = pa.Array.from_buffers(pa.binary(), max(0, 2 * count - 1), buffers)
    return pieces.take(pa.array(np.arange(0, 2 * count, 2))).cast(pa.string())
