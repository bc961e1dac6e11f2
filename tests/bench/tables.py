"""Markdown tables and the cells in them."""

from collections.abc import Sequence

UNKNOWN = "–"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, texts: int = 1) -> list[str]:
    """Lines of a table and an empty one; the first `texts` columns are texts, the others figures."""
    rule = ["---" if column < texts else "---:" for column in range(len(head))]
    return [*(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows)), ""]


def number(value: float | None, digits: int = 0) -> str:
    return UNKNOWN if value is None else f"{value:,.{digits}f}"


def percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{share:.1%}"
