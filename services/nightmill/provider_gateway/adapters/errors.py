"""From a provider's error body to a failure: the shapes that servers use, and the words by which an adapter knows them.

Errors are read leniently, in the order `error.{code,type,message}`, `error` as text, `detail` (AIBrix), flat (SGLang);
`code` may be a number, a text or null. Anthropic's `error.details.error_code` stands for the code. What an adapter's
words do not recognise is classed by its status.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nightmill.kernel.wire.messages import Failure
from nightmill.provider_gateway.adapters.reading import is_html, strict_json, word
from nightmill.provider_gateway.exchange import Response
from nightmill.provider_gateway.failures import Signal, failure
from nightmill.provider_gateway.statuses import signal_of_status
from nightmill.provider_gateway.waits import longest_ms, retry_after_ms

#: how much of an error's message is searched; it may repeat the whole prompt
_SEARCHED = 4_000
#: Anthropic's `You will regain access on 2027-01-01 at 00:00 UTC.`
_ENDS = re.compile(r"regain access on (\d{4}-\d\d-\d\d)")

#: milliseconds until the exhausted dimension has room, by the error's type and the headers
ResetMs = Callable[[str | None, Mapping[str, str], int], int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """By what an adapter recognises its provider's failures, whatever their status."""

    codes: Mapping[str, Signal]  #: by code, else by type
    texts: tuple[tuple[re.Pattern[str], Signal], ...]  #: for servers without codes; looked at last
    reset_ms: ResetMs
    #: the parameter that a message names, where no field does
    param_of: Callable[[str], str | None] = lambda message: None


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBody:
    """What an error says of itself."""

    code: str | None = None
    type: str | None = None
    message: str = ""
    param: str | None = None


NO_ERROR = ErrorBody()


def failure_of_status(response: Response, words: Words, now_ms: int) -> Failure:
    """The failure of a response whose status is not 200."""
    document = strict_json(response.body)
    readable = response.status >= 400 and not isinstance(document, Signal)
    error = error_body(document) if readable else NO_ERROR
    hinted = _wait_ms(error, response, words, now_ms) is not None
    fallback = signal_of_status(response.status, html=is_html(response), hinted=hinted)
    return failure_of_error(error, response, words, now_ms, fallback)


def failure_of_error(error: ErrorBody, response: Response, words: Words, now_ms: int, fallback: Signal) -> Failure:
    """The failure that an error body names, or `fallback`."""
    signal = _recognised(error, words) or fallback
    limited = signal is Signal.RATE_LIMITED
    hint = retry_after_ms(response.headers, now_ms=now_ms)
    # a day on which a spend limit ends is for people: the pool is tried out all the while, it may be raised today
    ends = _ENDS.search(error.message) if signal is Signal.BILLING else None
    return failure(
        signal,
        status=response.status,
        code=error.code or error.type,
        param=error.param or words.param_of(error.message),
        detail=None if ends is None else f"until {ends[1]}",
        retry_after_ms=_wait_ms(error, response, words, now_ms) if limited else hint,
    )


def _wait_ms(error: ErrorBody, response: Response, words: Words, now_ms: int) -> int | None:
    """When the provider says that there is room again: the later of its hint and of its reset header."""
    hint = retry_after_ms(response.headers, now_ms=now_ms)
    return longest_ms(hint, words.reset_ms(error.type, response.headers, now_ms))


def error_body(document: Any) -> ErrorBody:
    """The error in a body, wherever the server put it; `NO_ERROR` when there is none."""
    if not isinstance(document, dict):
        return NO_ERROR
    inner = document.get("error") or document.get("detail")
    if isinstance(inner, dict) and isinstance(inner.get("error"), dict):
        inner = inner["error"]
    if isinstance(inner, str):
        return ErrorBody(message=inner[:_SEARCHED], type=word(document.get("error_type")))
    outer = inner if isinstance(inner, dict) else document
    details = outer.get("details")
    return ErrorBody(
        code=_code(outer.get("code")) or (_code(details.get("error_code")) if isinstance(details, dict) else None),
        type=word(outer.get("type")),
        message=outer["message"][:_SEARCHED] if isinstance(outer.get("message"), str) else "",
        param=word(outer.get("param")),
    )


def _recognised(error: ErrorBody, words: Words) -> Signal | None:
    by_text = next((signal for pattern, signal in words.texts if pattern.search(error.message)), None)
    # a request over the per-minute limit has the code of an ordinary rate limit
    if by_text is Signal.REQUEST_OVER_RATE:
        return by_text
    return words.codes.get(error.code or "") or words.codes.get(error.type or "") or by_text


def _code(code: Any) -> str | None:
    """A code as text; vLLM, SGLang and llama.cpp repeat the status as a number, which says nothing."""
    return code if isinstance(code, str) and code and not code.isdigit() else None
