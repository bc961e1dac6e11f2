"""Pages of a list, the way both providers cut them."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from nightmill.provider_simulator import errors
from nightmill.provider_simulator.errors import ApiError

Entry = tuple[str, JsonValue]


def page_of(
    entries: Sequence[Entry], *, limit: int, after: str | None = None, before: str | None = None
) -> dict[str, JsonValue] | ApiError:
    """`{data, has_more, first_id, last_id}` of the entries beyond `after`, or of those just ahead of `before`."""
    places = {ident: place for place, (ident, _) in enumerate(entries)}
    for cursor in (after, before):
        if cursor is not None and cursor not in places:
            return errors.not_found(f"No such object: {cursor}", param="after" if cursor == after else "before")
    if before is not None:
        stop = places[before]
        start = max(0, stop - limit)
        chosen, more = entries[start:stop], start > 0
    else:
        start = 0 if after is None else places[after] + 1
        chosen, more = entries[start : start + limit], len(entries) > start + limit
    return {
        "data": [entry for _, entry in chosen],
        "has_more": more,
        "first_id": chosen[0][0] if chosen else None,
        "last_id": chosen[-1][0] if chosen else None,
    }
