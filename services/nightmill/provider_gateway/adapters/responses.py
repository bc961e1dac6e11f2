"""Answers of OpenAI's Responses API: a list of output items, a status, and a reason where it is incomplete.

A response with status 200 may say of itself that it failed; a refusal is a part beside the text.
"""

from collections.abc import Mapping
from typing import Any

from nightmill.kernel.wire.messages import Usage
from nightmill.provider_gateway.adapters.errors import Words, error_body, failure_of_error
from nightmill.provider_gateway.adapters.reading import count, counts, text_of, usage_of, word
from nightmill.provider_gateway.exchange import Reply, Response
from nightmill.provider_gateway.failures import Signal, failure

#: why a response is incomplete; a reason that is not here broke the generation off
_INCOMPLETE: dict[str, Signal | None] = {
    "max_output_tokens": None,  # an answer, which the validator judges by its finish reason
    "content_filter": Signal.CONTENT_FILTER,
}


def is_response(document: Any) -> bool:
    return isinstance(document, dict) and document.get("object") == "response"


def reply_of_responses(document: Mapping[str, Any], response: Response, words: Words, now_ms: int) -> Reply:
    """What a document of the Responses API means."""
    if document.get("status") == "failed" or document.get("error"):
        failed = failure_of_error(error_body(document), response, words, now_ms, Signal.ERROR_IN_SUCCESS)
        return Reply(failure=failed, usage=_usage(document.get("usage")))
    items = document.get("output")
    items = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    parts = _parts(items)
    text, finish = text_of(parts, "output_text"), _finish(document)
    signal = _signal(document, items, parts, text)
    return Reply(
        text=text if text else None,
        finish_reason=finish,
        usage=_usage(document.get("usage")),
        served_model=word(document.get("model")),
        service_tier=word(document.get("service_tier")),
        failure=None if signal is None else failure(signal, detail=f"finish {finish}"),
    )


def _parts(items: list[dict[str, Any]]) -> list[Any]:
    contents = (item.get("content") for item in items if item.get("type") == "message")
    return [part for content in contents if isinstance(content, list) for part in content]


def _finish(document: Mapping[str, Any]) -> str:
    """The finish reason as chat completions name it."""
    if document.get("status") == "completed":
        return "stop"
    reason = _reason(document)
    return "length" if reason == "max_output_tokens" else reason or word(document.get("status")) or "unknown"


def _reason(document: Mapping[str, Any]) -> str | None:
    details = document.get("incomplete_details")
    return word(details.get("reason")) if isinstance(details, dict) else None


def _signal(document: Mapping[str, Any], items: list[dict[str, Any]], parts: list[Any], text: str) -> Signal | None:
    if any(isinstance(part, dict) and part.get("type") == "refusal" for part in parts):
        return Signal.REFUSAL
    match document.get("status"):
        case "completed":
            broken = None
        case "incomplete":
            broken = _INCOMPLETE.get(_reason(document) or "", Signal.FINISH_ABORTED)
        case "cancelled":
            broken = Signal.FINISH_ABORTED
        case _:
            return Signal.UNEXPECTED_SHAPE
    if broken is not None or text.strip():
        return broken
    calls = any(str(item.get("type")).endswith("_call") for item in items)
    return Signal.TOOL_CALL if calls else Signal.EMPTY_CONTENT


def _usage(usage: Any) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    cached, written = counts(usage.get("input_tokens_details"), "cached_tokens", "cache_write_tokens")
    return usage_of(count(usage.get("input_tokens")), count(usage.get("output_tokens")), cached=cached, written=written)
