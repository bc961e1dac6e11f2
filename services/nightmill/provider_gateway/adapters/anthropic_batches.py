"""Anthropic's Message Batches API: the requests travel in the create itself, and a batch carries no keys of ours (E6).

Batch guide and SDK 2.14, as of 2026-11-29. A batch has one end, `ended`, whatever became of its requests, and one
result line for each of them; until then its counts say only how many there are, which their sum always does. What is
errored, canceled or expired is never billed. Results are read at our own address of the batch, not at the one it names.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

from nightmill.kernel.domain.parameters import anthropic_version
from nightmill.kernel.domain.settings import Pool
from nightmill.provider_gateway.adapters.batch_wire import (
    member,
    number_of,
    object_of,
    page_of,
    raw_of,
    text_of,
    url_of,
)
from nightmill.provider_gateway.adapters.reading import word
from nightmill.provider_gateway.bulk.dialect import (
    MOST_ID_CHARS,
    Ask,
    BatchSeen,
    Fate,
    Form,
    Frame,
    Page,
    ResultLine,
    Stage,
    StoredFile,
)
from nightmill.provider_gateway.exchange import Request, Response

_PAGE = 1000
_COUNTS = ("processing", "succeeded", "errored", "canceled", "expired")

#: the status with which a realtime call would have failed for this reason
_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_NOT_RUN = {"expired": Fate.EXPIRED, "canceled": Fate.CANCELLED}


class _Reason(Struct, frozen=True):
    type: str = ""


class _Error(Struct, frozen=True):
    error: _Reason = _Reason()
    request_id: str | None = None


class _Result(Struct):
    type: str
    message: Raw = Raw(b"")
    error: Raw = Raw(b"")


class _Line(Struct):
    custom_id: str
    result: _Result


_LINES, _ERRORS = Decoder(_Line), Decoder(_Error)


class AnthropicBatches:
    """Satisfies `BulkDialect`."""

    frame: Frame | None = Frame(path="messages/batches", head=b'{"requests":[', between=b",", tail=b"]}")

    def headers(self, pool: Pool) -> Mapping[str, str]:
        return {"anthropic-version": anthropic_version(pool)}

    def line(self, custom_id: str, request: Request, base_url: str) -> bytes:
        return b'{"custom_id":"%b","params":%b}' % (custom_id.encode(), request.body)

    def endpoint(self, request: Request, base_url: str) -> str:
        return "/v1/messages"

    def upload(self, base_url: str, name: str) -> Form | None:
        return None

    def uploads(self, base_url: str) -> Ask | None:
        return None

    def named(self, body: bytes, name: str) -> tuple[str, ...] | None:
        return None

    def stored(self, body: bytes) -> StoredFile | None:
        return None

    def create(self, base_url: str, *, file_id: str, endpoint: str, keys: Mapping[str, str]) -> Ask | None:
        return None

    def retrieve(self, base_url: str, batch_id: str) -> Ask:
        return Ask(method="GET", url=_url(base_url, batch_id))

    def seen(self, body: bytes) -> BatchSeen | None:
        return _batch(object_of(body))

    def listing(self, base_url: str, after: str | None) -> Ask:
        url = f"{_url(base_url)}?limit={_PAGE}"
        return Ask(method="GET", url=url if after is None else f"{url}&after_id={quote(after, safe='')}")

    def page(self, body: bytes) -> Page | None:
        return page_of(body, _batch)

    def cancel(self, base_url: str, batch_id: str) -> Ask:
        return Ask(method="POST", url=_url(base_url, batch_id, "cancel"), body=b"")

    def content(self, base_url: str, file_id: str) -> Ask:
        return Ask(method="GET", url=_url(base_url, file_id, "results"))

    def about(self, base_url: str, file_id: str) -> Ask | None:
        return None

    def remove(self, base_url: str, file_id: str) -> Ask:
        return Ask(method="DELETE", url=_url(base_url, file_id))

    def read(self, line: bytes) -> ResultLine | None:
        found = _line(line)
        if found is None or not 0 < len(found.custom_id) <= MOST_ID_CHARS:
            return None
        match found.result.type:
            case "succeeded":
                response = Response(status=200, headers={}, body=bytes(found.result.message))
                return ResultLine(custom_id=found.custom_id, fate=Fate.RESPONDED, response=response)
            case "errored":
                return _errored(found)
            case kind:
                fate = _NOT_RUN.get(kind, Fate.FAILED)
                return ResultLine(custom_id=found.custom_id, fate=fate, code=kind, free=kind in _NOT_RUN)


def _line(line: bytes) -> _Line | None:
    """A line as documented, else what can be made of it: an answer that was paid for is not lost by its wrapping."""
    try:
        return _LINES.decode(line)
    except (DecodeError, ValidationError, RecursionError):
        pass  # half of a surrogate pair, or a field of another type
    document = object_of(line)
    custom_id, result = text_of(member(document, "custom_id")), member(document, "result")
    kind = text_of(member(result, "type"))
    if custom_id is None or kind is None:
        return None
    message, error = raw_of(member(result, "message")), raw_of(member(result, "error"))
    return _Line(custom_id=custom_id, result=_Result(type=kind, message=message, error=error))


def _errored(line: _Line) -> ResultLine:
    raw = bytes(line.result.error)
    try:
        error = _ERRORS.decode(raw)
    except (DecodeError, ValidationError, RecursionError):
        error = _Error()
    response = Response(status=_STATUS.get(error.error.type, 500), headers={}, body=raw)
    return ResultLine(
        custom_id=line.custom_id, fate=Fate.RESPONDED, response=response, request_id=word(error.request_id), free=True
    )


def _batch(document: Any) -> BatchSeen | None:
    if not isinstance(document, dict):
        return None
    ident, status = text_of(document.get("id")), text_of(document.get("processing_status"))
    if ident is None or status is None:
        return None
    ended, counts = status == "ended", document.get("request_counts")
    return BatchSeen(
        id=ident,
        stage=Stage.ENDED if ended else Stage.RUNNING,
        status=status,
        requests=_requests(counts),
        billed=number_of(counts.get("succeeded")) if ended and isinstance(counts, dict) else None,
        created_at_ms=_time_ms(document.get("created_at")),
        output_id=ident if ended else None,
    )


def _requests(counts: Any) -> int | None:
    """How many there are; None where a count is missing."""
    if not isinstance(counts, dict):
        return None
    numbers = [number_of(counts.get(name)) for name in _COUNTS]
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def _time_ms(value: Any) -> int | None:
    try:
        return int(datetime.fromisoformat(value).timestamp() * 1000) if isinstance(value, str) else None
    except (ValueError, OverflowError):
        return None


def _url(base_url: str, *words: str) -> str:
    return url_of(base_url, "messages", "batches", *words)
