"""Anthropic's Messages API, realtime. The version is pinned: what a request may hold depends on it.

Since 2026-10-21 `temperature`, `top_p` and `top_k` are refused; `kernel.domain.parameters` keeps a job that needs them
from starting. Wire and errors as typed by the official SDK 2.14 and its error, rate-limit and versioning pages (read
2026-11-29). The schema of an answer goes into `output_config.format`, in the part of JSON Schema that Anthropic takes.
Only what a request marks with `cache_control` is written into the prompt cache, or read from it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nightmill.kernel.domain.parameters import anthropic_version, sampling
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.prompt import ChatMessage
from nightmill.kernel.domain.prompt_cache import Lifetime
from nightmill.kernel.domain.settings import Pool
from nightmill.kernel.wire.messages import Usage
from nightmill.provider_gateway.adapters.errors import NO_ERROR, Words, error_body, failure_of_error, failure_of_status
from nightmill.provider_gateway.adapters.marking import marked_chat_json, parts_json
from nightmill.provider_gateway.adapters.reading import (
    HEADERS,
    chat_json,
    count,
    counts,
    document_of,
    encode,
    members,
    text_of,
    usage_of,
    word,
)
from nightmill.provider_gateway.adapters.schemas import closed
from nightmill.provider_gateway.exchange import Form, Reply, Request, Response
from nightmill.provider_gateway.failures import Signal, failure
from nightmill.provider_gateway.waits import timestamp_ms

#: `error.details.error_code` or `error.type`; types that only repeat their status are left to it
CODES: dict[str, Signal] = {
    "enforced_spend_limit_reached": Signal.BILLING,
    "contract_spend_limit_reached": Signal.BILLING,
    "billing_error": Signal.BILLING,
    "ramp_limit_exceeded": Signal.SLOW_DOWN,
    "overloaded_error": Signal.OVERLOADED,
    "api_error": Signal.SERVER_ERROR,
    "timeout_error": Signal.SERVER_ERROR,
    "conflict_error": Signal.CONFLICT,
    "request_too_large": Signal.TOO_LARGE,
    "authentication_error": Signal.KEY_REFUSED,
    "permission_error": Signal.MODEL_REFUSED,
    "linked_organization_spend_limit_reached": Signal.BILLING,
    "linked_organization_billing_unavailable": Signal.BILLING,
    "organization_on_hold": Signal.ON_HOLD,
    "organization_type_not_supported": Signal.ON_HOLD,
    "parent_organization_required": Signal.ON_HOLD,
    "workspace_human_review_disabled": Signal.ON_HOLD,
    "cmek_key_disabled": Signal.ON_HOLD,
    "cmek_key_network_blocked": Signal.ON_HOLD,
    "cmek_key_unreachable": Signal.ENCRYPTION_KEY_AWAY,
    "cmek_context_unavailable": Signal.ENCRYPTION_KEY_AWAY,
}
#: Anthropic gives these no code of their own
TEXTS: tuple[tuple[re.Pattern[str], Signal], ...] = (
    (re.compile(r"specified (workspace )?API usage limits"), Signal.BILLING),
    (re.compile(r"usage increase rate|acceleration limit", re.I), Signal.SLOW_DOWN),
    (re.compile(r"prompt is too long"), Signal.CONTEXT_TOO_LONG),
    (
        re.compile(r"^(temperature|top_p|top_k)\b|^max_tokens: \d+ > |Extra inputs are not permitted"),
        Signal.PARAMETER_REFUSED,
    ),
    (re.compile(r"^model: |model .{0,200}(not found|does not exist)", re.I | re.S), Signal.MODEL_REFUSED),
)

_FINISH: dict[str, Signal] = {
    "refusal": Signal.REFUSAL,
    "tool_use": Signal.TOOL_CALL,
    "pause_turn": Signal.TURN_PAUSED,
    "model_context_window_exceeded": Signal.CONTEXT_FULL,
}
#: in the words of chat completions, which the validator knows
_FINISH_NAMES = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length"}
#: of the listed price, by the region that did the work; whoever wants the United States alone pays a tenth more for
#: every class of tokens, in batches too (pricing page, 2026-11-29)
_PERCENT = {None: 100, "not_available": 100, "global": 100, "us": 110}
_DIMENSIONS = ("requests", "input-tokens", "output-tokens", "tokens")
_MARKED = {"user": "text", "assistant": "text"}
_CONTROLS = {
    Lifetime.SHORT: '"cache_control":{"type":"ephemeral"}',
    Lifetime.HOUR: '"cache_control":{"type":"ephemeral","ttl":"1h"}',
}
_PLACE = re.compile(r"^([a-z_]+(?:\.[a-z0-9_]+)*): ")


def _reset_ms(dimension: str | None, headers: Mapping[str, str], now_ms: int) -> int | None:
    """When every exhausted dimension is full again. `retry-after` says when there is room, and is there on most."""
    if "retry-after" in headers:
        return None
    waits = [
        timestamp_ms(headers.get(f"anthropic-ratelimit-{name}-reset"), now_ms=now_ms)
        for name in _DIMENSIONS
        if headers.get(f"anthropic-ratelimit-{name}-remaining") == "0"
    ]
    return max((wait for wait in waits if wait is not None), default=None)


def _param_of(message: str) -> str | None:
    """The field that a message begins with: `messages.0.content: …`."""
    found = _PLACE.match(message)
    return None if found is None else found[1]


WORDS = Words(codes=CODES, texts=TEXTS, reset_ms=_reset_ms, param_of=_param_of)


class Anthropic:
    """Satisfies `Adapter`."""

    def form(self, *, base_url: str, pool: Pool, pipeline: Pipeline) -> Form:
        settings: dict[str, Any] = sampling(pipeline.model, pool)
        schema = closed(pipeline.output) if pool.structured_output else None
        if schema is not None:
            settings["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        return _Form(
            url=base_url.rstrip("/") + "/messages",
            headers={**HEADERS, "anthropic-version": anthropic_version(pool)},
            model=encode(pool.model),
            settings=members(settings),
        )

    def reply(self, response: Response, *, now_ms: int) -> Reply:
        if response.status != 200:
            return Reply(failure=failure_of_status(response, WORDS, now_ms))
        document = document_of(response)
        if isinstance(document, Signal):
            return Reply(failure=failure(document, status=200))
        if not isinstance(document, dict) or not isinstance(document.get("content"), list):
            error = error_body(document)
            if error != NO_ERROR:
                return Reply(failure=failure_of_error(error, response, WORDS, now_ms, Signal.ERROR_IN_SUCCESS))
            return Reply(failure=failure(Signal.UNEXPECTED_SHAPE, status=200))
        return _reply_of_message(document)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """Bodies with the system's part beside the messages. `model` is JSON, `settings` the end of a JSON object."""

    url: str
    headers: Mapping[str, str]
    model: str
    settings: str

    def request(self, messages: Sequence[ChatMessage], max_output_tokens: int, mark: Lifetime | None = None) -> Request:
        # a message without text is refused; a repair of an empty answer has one
        told = [message for message in messages if message.content.strip()]
        system = told[0] if told and told[0].role == "system" else None
        chat = told[1:] if system is not None else told
        system_json, chat_list = _written(system, chat, mark)
        head = f'"system":{system_json},' if system_json else ""
        body = f'{{"model":{self.model},"max_tokens":{max_output_tokens},{head}"messages":{chat_list}{self.settings}'
        return Request(url=self.url, headers=self.headers, body=body.encode())


def _written(system: ChatMessage | None, chat: Sequence[ChatMessage], mark: Lifetime | None) -> tuple[str, str]:
    """The system's part and the messages as JSON, with the mark at the end of what is shared."""
    plain = "" if system is None else encode(system.content)
    if mark is None or (system is not None and system.shared < len(system.content)):
        return plain, chat_json(chat)
    control = _CONTROLS[mark]
    marked = marked_chat_json(chat, _MARKED, control)
    if marked is not None:
        return plain, marked
    return "" if system is None else parts_json(system, "text", control), chat_json(chat)


def _reply_of_message(document: Mapping[str, Any]) -> Reply:
    content, stop, usage = document["content"], word(document.get("stop_reason")), document.get("usage")
    text = text_of(content, "text")
    signal = _signal(content, stop, text)
    return Reply(
        text=text if text else None,
        finish_reason=_FINISH_NAMES.get(stop or "", stop),
        usage=_usage(usage),
        served_model=word(document.get("model")),
        service_tier=word(usage.get("service_tier")) if isinstance(usage, dict) else None,
        price_percent=_PERCENT.get(word(usage.get("inference_geo"))) if isinstance(usage, dict) else 100,
        failure=None if signal is None else failure(signal, detail=_detail(document, stop)),
    )


def _signal(content: Sequence[Any], stop: str | None, text: str) -> Signal | None:
    if stop in _FINISH:
        return _FINISH[stop]
    if text.strip():
        return None
    calls = any(isinstance(block, dict) and block.get("type") == "tool_use" for block in content)
    return Signal.TOOL_CALL if calls else Signal.EMPTY_CONTENT


def _detail(document: Mapping[str, Any], stop: str | None) -> str | None:
    """The finish reason, and for a refusal its category, which is one of a short list."""
    details = document.get("stop_details")
    category = word(details.get("category")) if isinstance(details, dict) else None
    known = category is not None and re.fullmatch(r"[a-z_]{1,40}", category) is not None
    if known:
        return f"finish {stop}, category {category}"
    return f"finish {stop}" if stop else None


def _usage(usage: Any) -> Usage | None:
    """Anthropic counts what the cache gave and took beside the input; here all of it is input."""
    if not isinstance(usage, dict):
        return None
    fresh, output = count(usage.get("input_tokens")), count(usage.get("output_tokens"))
    read, written = counts(usage, "cache_read_input_tokens", "cache_creation_input_tokens")
    short, hour = counts(usage.get("cache_creation"), "ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")
    if written is not None and written > (short or 0) + (hour or 0):
        short = written - (hour or 0)  # what the split does not tell has the default lifetime
    total = None if fresh is None else fresh + (read or 0) + (short or 0) + (hour or 0)
    return usage_of(total, output, cached=read, written=short, written_1h=hour)
