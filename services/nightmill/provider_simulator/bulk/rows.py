"""One row of a result file, in the shape of either provider, and the row of the books that goes with it."""

from __future__ import annotations

from typing import NamedTuple

from pydantic_core import to_json

from nightmill.provider_simulator.envelopes import anthropic_error
from nightmill.provider_simulator.errors import ApiError
from nightmill.provider_simulator.prices import Usage
from nightmill.provider_simulator.reply import Manner, Reply, Side

BATCH_EXPIRED = "This request could not be executed before the completion window expired."
BATCH_CANCELLED = "This request was cancelled before it was executed."

_RESPONSE = (
    b'{"id":"batch_req_%b","custom_id":%b,"response":{"status_code":%d,"request_id":"%b","body":%b},"error":null}'
)
_ERROR = b'{"id":"batch_req_%b","custom_id":%b,"response":null,"error":{"code":%b,"message":%b}}'
_RESULT = b'{"custom_id":%b,"result":{"type":"%b","message":%b}}'
_ERRORED = b'{"custom_id":%b,"result":{"type":"errored","error":%b}}'
_NOT_RUN = b'{"custom_id":%b,"result":{"type":"%b"}}'
_BOOK = (
    b'{"attempt_id":%b,"body_digest":"%b","occurrence":1,"model":%b,"accepted":%b,"billed":%b,'
    b'"billed_prompt_tokens":%d,"billed_completion_tokens":%d,"billed_cached_tokens":%d,'
    b'"billed_cache_write_tokens":%d,"billed_cache_write_1h_tokens":%d,"billed_nano_usd":%b,"tier":"batch",'
    b'"status":%b,"code":%b,"fault":%b,"started_at_ms":%d,"ended_at_ms":%d,"prompt_tokens":%d,"batch_id":"%b",'
    b'"file":"%b","end":%d,"told":%b}'
)
_NO_USAGE = Usage(prompt_tokens=0, completion_tokens=0)


class Done(NamedTuple):
    """One line that ran, or did not."""

    custom_id: bytes  # as JSON
    good: bool  # belongs into the output file
    row: bytes | None  # None: the row is left out
    extra: bytes | None = None  # a second row that should not be there
    model: str = ""
    digest: bytes = b""
    reply: Reply | None = None  # None: it did not run
    prompt_tokens: int = 0
    nano_usd: int | None = None


def response_row(side: Side, custom_id: bytes, ident: bytes, reply: Reply, *, odd_type: bool = False) -> bytes:
    """The row of a line that was answered, well or badly."""
    if side is Side.ANTHROPIC:
        if reply.completion:
            return _RESULT % (custom_id, b"postponed" if odd_type else b"succeeded", reply.body)
        error = reply.error or ApiError(status=500, message="Internal server error")
        return _ERRORED % (custom_id, to_json(anthropic_error(error, f"req_{ident.decode()}")))
    if reply.manner is not Manner.WHOLE:
        return error_row(custom_id, ident, "request_timeout", "This request timed out.")
    return _RESPONSE % (ident, custom_id, reply.status, ident, reply.body or b"{}")


def error_row(custom_id: bytes, ident: bytes, code: str, message: str) -> bytes:
    """OpenAI: no response but an error."""
    return _ERROR % (ident, custom_id, to_json(code), to_json(message))


def status_zero_row(custom_id: bytes, ident: bytes) -> bytes:
    """OpenAI: a response without a status, as seen in the wild."""
    return (
        b'{"id":"batch_req_%b","custom_id":%b,"response":{"status_code":0,"request_id":"","body":{}},"error":null}'
        % (
            ident,
            custom_id,
        )
    )


def not_run_row(custom_id: bytes, kind: str) -> bytes:
    """Anthropic: `expired` or `canceled`."""
    return _NOT_RUN % (custom_id, kind.encode())


def book_row(done: Done, *, batch_id: str, file_id: str, end: int, started_at_ms: int, ended_at_ms: int) -> bytes:
    """The line's row of the books; `end` is where its row ends in the result file, 0 if it has none."""
    reply = done.reply
    usage = (reply.usage if reply is not None else None) or _NO_USAGE
    return _BOOK % (
        done.custom_id,
        done.digest.hex().encode(),
        to_json(done.model),
        b"true" if reply is not None and reply.accepted else b"false",
        b"true" if usage is not _NO_USAGE else b"false",
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.cached_tokens,
        usage.cache_write_tokens,
        usage.cache_write_1h_tokens,
        b"null" if done.nano_usd is None else b"%d" % done.nano_usd,
        b"null" if reply is None else b"%d" % reply.status,
        b"null" if reply is None or reply.code is None else to_json(reply.code),
        b"null" if reply is None or reply.fault is None else to_json(reply.fault),
        started_at_ms,
        ended_at_ms,
        done.prompt_tokens,
        batch_id.encode(),
        file_id.encode(),
        end,
        b"true" if reply is not None and reply.completion and reply.usage_told else b"false",
    )
