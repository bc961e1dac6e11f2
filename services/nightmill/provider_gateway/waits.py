"""When to come back, as providers say it in headers and messages: seconds, milliseconds, dates, Go durations. Pure.

Garbage counts as absent, everything is clamped to an hour: a wrong clock or a mistyped header must not stop a pool for
a day. Forms as read 2026-11-29 from OpenAI's and Anthropic's SDKs and rate-limit pages.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

MAX_RETRY_AFTER_MS = 3_600_000


def retry_after_ms(headers: Mapping[str, str], *, now_ms: int) -> int | None:
    """When to come back: `retry-after-ms`, else `Retry-After` in seconds, else as an HTTP date.

    The order is the one of OpenAI's SDK. Garbage counts as absent; at most one hour, at least 0.
    """
    wait = _number(headers.get("retry-after-ms"), 1)
    if wait is None:
        wait = _number(headers.get("retry-after"), 1000)
    if wait is None:
        wait = _date(headers.get("retry-after"), now_ms)
    return None if wait is None else _clamped(wait)


def longest_ms(*waits: int | None) -> int | None:
    """The longest of the waits that are known."""
    known = [wait for wait in waits if wait is not None]
    return max(known) if known else None


_GO_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_GO_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}


def go_duration_ms(text: str | None) -> int | None:
    """Milliseconds of a Go duration such as `6m0s` or `12ms` (the form of x-ratelimit-reset-*); None for garbage."""
    if not text or _GO_DURATION.sub("", text) != "":
        return None
    total = sum(float(number) * _GO_UNIT_MS[unit] for number, unit in _GO_DURATION.findall(text))
    return int(min(total, MAX_RETRY_AFTER_MS))


def timestamp_ms(text: str | None, *, now_ms: int) -> int | None:
    """Milliseconds until an RFC 3339 time (the form of anthropic-ratelimit-*-reset); None for garbage."""
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
        # a time without a zone is Anthropic's, who write UTC
        seconds = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
    return _clamped(seconds * 1000 - now_ms)


def _clamped(wait_ms: float) -> int:
    return int(min(max(wait_ms, 0.0), MAX_RETRY_AFTER_MS))


def _number(text: str | None, scale: int) -> float | None:
    try:
        value = float(text) * scale if text is not None else None
    except ValueError:
        return None
    # nan and negative numbers are garbage; infinity is clamped
    return value if value is not None and value >= 0 else None


def _date(text: str | None, now_ms: int) -> float | None:
    if text is None:
        return None
    try:
        return parsedate_to_datetime(text).timestamp() * 1000 - now_ms
    except (ValueError, OverflowError, TypeError):
        return None
