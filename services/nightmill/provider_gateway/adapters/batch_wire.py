"""What the dialects of Batch APIs read and write alike: addresses, objects, words, counts and pages of a list."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from msgspec import Raw

from nightmill.provider_gateway.adapters.reading import whole
from nightmill.provider_gateway.bulk.dialect import BatchSeen, Page


def url_of(base_url: str, *words: str) -> str:
    """An address below the pool's."""
    return "/".join([base_url.rstrip("/"), *(quote(word, safe="") for word in words)])


def object_of(body: bytes) -> dict[str, Any] | None:
    """The JSON object of a body; None when it is none."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def text_of(value: Any) -> str | None:
    """A text that says something; OpenAI has sent an empty one in place of null.

    One with half of a surrogate pair says nothing: it would go into no row and no address.
    """
    return value if isinstance(value, str) and value and whole(value) == value else None


def number_of(value: Any) -> int | None:
    """A count; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def member(value: Any, name: str) -> Any:
    """What an object has under a name; None where there is no object, or nothing."""
    return value.get(name) if isinstance(value, dict) else None


def raw_of(value: Any) -> Raw:
    """A value as the bytes that it may have been read from."""
    return Raw(json.dumps(value).encode())


def page_of(body: bytes, batch: Callable[[Any], BatchSeen | None]) -> Page | None:
    """A part of a list of batches, each read by `batch`; None when the body is no such list."""
    document = object_of(body)
    data = None if document is None else document.get("data")
    if document is None or not isinstance(data, list):
        return None
    batches = tuple(seen for seen in map(batch, data) if seen is not None)
    more = document.get("has_more") is True and bool(batches)
    return Page(batches=batches, next_after=batches[-1].id if more else None)
