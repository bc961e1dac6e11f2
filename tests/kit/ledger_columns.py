"""What the ledger inserts, by column, as rows that a test can read."""

from collections.abc import Iterable, Sequence
from typing import Any

from nightmill.kernel.store.columns import Table
from nightmill.kernel.wire.codec import codecs
from nightmill.kernel.wire.columnar import Numbers, Symbols, Texts


def rows_of(table: Table, columns: Sequence[Any]) -> list[dict[str, Any]]:
    """Rows by the names of the table's columns."""
    values = zip(*(values_of(column) for column in columns), strict=True)
    return [dict(zip(table.names, row, strict=True)) for row in values]


def values_of(column: Any) -> list[Any]:
    """A column's values, None for null; a text that is null is empty."""
    match column:
        case Numbers():
            known = zip(column.values.tolist(), column.known.tolist(), strict=True)
            return [number if is_known else None for number, is_known in known]
        case Symbols():
            return [column.names[code] for code in column.codes.tolist()]
        case Texts():
            return column.listed()
    return list(column)


def encoded(events: Iterable[Any]) -> list[bytes]:
    """Events as their records hold them."""
    return [codecs()[type(event)].encode(event) for event in events]
