"""OpenAI's Files and Batch API, which AIBrix and llm-d serve too: paths, states and lines (E6).

Batch guide and SDK 3.57, as of 2026-11-29. What a status says of single requests is never believed: `completed` may be
all failures, counts disagree with rows, `output_file_id` may be null or an empty text. A line has a response or an
error; some servers write a response whose status is 0, which is neither.
"""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

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
    FINGERPRINT,
    MOST_ID_CHARS,
    SUBMISSION,
    Ask,
    BatchSeen,
    Fate,
    Form,
    Frame,
    InputFault,
    Page,
    ResultLine,
    Stage,
    StoredFile,
)
from nightmill.provider_gateway.exchange import Request, Response

#: the provider forgets our input after this, should we fail to remove it
_INPUT_EXPIRES_S = 7 * 86_400
_PAGE = 100
_FILES = 1_000  #: of a list of files; older ones are forgotten by the provider itself
_SEARCHED = 1_000  #: of the text of a fault
_MOST_STATUS = 999

_ENDED = frozenset({"completed", "expired", "cancelled"})
_REFUSED = "failed"
_FATES = {
    "batch_expired": Fate.EXPIRED,
    "batch_cancelled": Fate.CANCELLED,
    "request_timeout": Fate.TIMED_OUT,
}


class _Body(Struct):
    status_code: int = 0
    request_id: str | None = None
    body: Raw = Raw(b"{}")


class _Error(Struct):
    code: str | int | None = None


class _Line(Struct):
    custom_id: str
    response: _Body | None = None
    error: _Error | None = None


_LINES = Decoder(_Line)


class OpenAiBatches:
    """Satisfies `BulkDialect`."""

    frame: Frame | None = None

    def headers(self, pool: Pool) -> Mapping[str, str]:
        return {}

    def line(self, custom_id: str, request: Request, base_url: str) -> bytes:
        url = self.endpoint(request, base_url)
        return b'{"custom_id":"%b","method":"POST","url":"%b","body":%b}\n' % (
            custom_id.encode(),
            url.encode(),
            request.body,
        )

    def endpoint(self, request: Request, base_url: str) -> str:
        return "/v1" + request.url.removeprefix(base_url.rstrip("/"))

    def upload(self, base_url: str, name: str) -> Form | None:
        fields = (
            ("purpose", "batch"),
            ("expires_after[anchor]", "created_at"),
            ("expires_after[seconds]", str(_INPUT_EXPIRES_S)),
        )
        return Form(url=url_of(base_url, "files"), fields=fields, filename=_filename(name))

    def uploads(self, base_url: str) -> Ask | None:
        return Ask(method="GET", url=f"{url_of(base_url, 'files')}?purpose=batch&limit={_FILES}")

    def named(self, body: bytes, name: str) -> tuple[str, ...] | None:
        document = object_of(body)
        data = None if document is None else document.get("data")
        if not isinstance(data, list):
            return None
        ours = (each for each in data if isinstance(each, dict) and each.get("filename") == _filename(name))
        return tuple(ident for each in ours if (ident := text_of(each.get("id"))) is not None)

    def stored(self, body: bytes) -> StoredFile | None:
        document = object_of(body)
        ident = None if document is None else text_of(document.get("id"))
        if document is None or ident is None:
            return None
        return StoredFile(id=ident, bytes=number_of(document.get("bytes")))

    def create(self, base_url: str, *, file_id: str, endpoint: str, keys: Mapping[str, str]) -> Ask | None:
        document = {
            "input_file_id": file_id,
            "endpoint": endpoint,
            "completion_window": "24h",
            "metadata": dict(keys),
        }
        return Ask(method="POST", url=url_of(base_url, "batches"), body=json.dumps(document).encode())

    def retrieve(self, base_url: str, batch_id: str) -> Ask:
        return Ask(method="GET", url=url_of(base_url, "batches", batch_id))

    def seen(self, body: bytes) -> BatchSeen | None:
        return _batch(object_of(body))

    def listing(self, base_url: str, after: str | None) -> Ask:
        url = f"{url_of(base_url, 'batches')}?limit={_PAGE}"
        return Ask(method="GET", url=url if after is None else f"{url}&after={quote(after, safe='')}")

    def page(self, body: bytes) -> Page | None:
        return page_of(body, _batch)

    def cancel(self, base_url: str, batch_id: str) -> Ask:
        return Ask(method="POST", url=url_of(base_url, "batches", batch_id, "cancel"), body=b"")

    def content(self, base_url: str, file_id: str) -> Ask:
        return Ask(method="GET", url=url_of(base_url, "files", file_id, "content"))

    def about(self, base_url: str, file_id: str) -> Ask | None:
        return Ask(method="GET", url=url_of(base_url, "files", file_id))

    def remove(self, base_url: str, file_id: str) -> Ask:
        return Ask(method="DELETE", url=url_of(base_url, "files", file_id))

    def read(self, line: bytes) -> ResultLine | None:
        found = _line(line)
        if found is None or not 0 < len(found.custom_id) <= MOST_ID_CHARS:
            return None
        response, code = found.response, None if found.error is None else found.error.code
        if response is not None and 0 < response.status_code <= _MOST_STATUS:
            return ResultLine(
                custom_id=found.custom_id,
                fate=Fate.RESPONDED,
                response=Response(status=response.status_code, headers={}, body=bytes(response.body)),
                request_id=word(response.request_id),
            )
        named = code if isinstance(code, str) else None
        return ResultLine(custom_id=found.custom_id, fate=_FATES.get(named or "", Fate.FAILED), code=named)


def _line(line: bytes) -> _Line | None:
    """A line as documented, else what can be made of it: an answer that was paid for is not lost by its wrapping."""
    try:
        return _LINES.decode(line)
    except (DecodeError, ValidationError, RecursionError):
        pass  # half of a surrogate pair, or a field of another type
    document = object_of(line)
    custom_id, response = text_of(member(document, "custom_id")), member(document, "response")
    if custom_id is None:
        return None
    body = _Body(
        status_code=number_of(member(response, "status_code")) or 0,
        request_id=text_of(member(response, "request_id")),
        body=raw_of(member(response, "body")),
    )
    return _Line(custom_id=custom_id, response=body, error=_Error(text_of(member(member(document, "error"), "code"))))


def _filename(name: str) -> str:
    return f"{name}.jsonl"


def _batch(document: Any) -> BatchSeen | None:
    if not isinstance(document, dict):
        return None
    ident, status = text_of(document.get("id")), text_of(document.get("status"))
    if ident is None or status is None:
        return None
    metadata = document.get("metadata")
    keys = metadata if isinstance(metadata, dict) else {}
    created_s = number_of(document.get("created_at"))
    return BatchSeen(
        id=ident,
        stage=_stage(status, document),
        status=status,
        absent_not_run=status == "cancelled",
        ran=_ran(document.get("request_counts")),
        submission=text_of(keys.get(SUBMISSION)),
        fingerprint=text_of(keys.get(FINGERPRINT)),
        created_at_ms=None if created_s is None else created_s * 1000,
        output_id=text_of(document.get("output_file_id")),
        error_id=text_of(document.get("error_file_id")),
        faults=_faults(document.get("errors")),
    )


def _ran(counts: Any) -> int | None:
    numbers = [number_of(counts.get(name)) for name in ("completed", "failed")] if isinstance(counts, dict) else []
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _stage(status: str, document: Mapping[str, Any]) -> Stage:
    """llm-d keeps what was done before a batch failed: then there are results to fetch."""
    if status == _REFUSED:
        has_results = text_of(document.get("output_file_id")) or text_of(document.get("error_file_id"))
        return Stage.ENDED if has_results else Stage.REFUSED
    return Stage.ENDED if status in _ENDED else Stage.RUNNING


def _faults(errors: Any) -> tuple[InputFault, ...]:
    data = errors.get("data") if isinstance(errors, dict) else None
    if not isinstance(data, list):
        return ()
    return tuple(
        InputFault(
            code=text_of(each.get("code")) or "unknown",
            line=number_of(each.get("line")),
            param=text_of(each.get("param")),
            text=(text_of(each.get("message")) or "")[:_SEARCHED],
        )
        for each in data
        if isinstance(each, dict)
    )
