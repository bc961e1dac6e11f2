"""The request bodies of Anthropic's API as tables of fields, as the official SDK 2.14 types them (read 2026-11-29).

Version 2026-10-21 took `temperature`, `top_p` and `top_k` away; the older one has them. A batch checks its envelope at
once and each request's `params` only when it runs.
"""

from __future__ import annotations

from nightmill.provider_simulator.checks import (
    Check,
    Fields,
    anything,
    array,
    by_type,
    choice,
    decimal,
    flag,
    integer,
    nullable,
    record,
    remembered,
    tagged,
    text,
)

CUSTOM_ID = r"^[a-zA-Z0-9_-]{1,64}$"
MAX_BATCH_REQUESTS = 100_000
VERSIONS = ("2023-06-01", "2026-10-21")
REMOVED = ("temperature", "top_k", "top_p")  # since VERSIONS[1]

_any_object = record({}, open_ended=True)
_cache = nullable(record({"type": choice("ephemeral"), "ttl": choice("5m", "1h")}, "type"))
_text_block = record(
    {"type": anything, "text": text(shortest=1), "cache_control": _cache, "citations": nullable(array(_any_object))},
    "text",
)
_other_block = record({"type": anything, "cache_control": _cache}, open_ended=True)
_blocks = tagged(
    "type",
    {
        "text": _text_block,
        **dict.fromkeys(
            ("image", "document", "search_result", "thinking", "redacted_thinking", "tool_use", "tool_result"),
            _other_block,
        ),
    },
)
_message = record(
    {
        "role": choice("user", "assistant"),
        "content": by_type("a valid string or list", text=text(), array=array(_blocks)),
    },
    "role",
    "content",
)
_format = tagged("type", {"json_schema": record({"type": anything, "schema": _any_object}, "schema")})
_output_config = record(
    {
        "effort": nullable(choice("low", "medium", "high", "xhigh", "max")),
        "format": nullable(_format),
        "task_budget": nullable(_any_object),
    }
)
_thinking = tagged(
    "type",
    {
        "enabled": record(
            {"type": anything, "budget_tokens": integer(least=1024), "display": nullable(text())}, "budget_tokens"
        ),
        "adaptive": record({"type": anything, "display": nullable(text())}),
        "disabled": record({"type": anything}),
    },
)

_counted: Fields = {
    "messages": array(_message, shortest=1, longest=100_000),
    "model": text(shortest=1, longest=256),
    "cache_control": _cache,
    "output_config": remembered(_output_config),
    "speed": nullable(choice("standard", "fast")),
    "system": by_type("a valid string or list", text=text(), array=array(_text_block)),
    "thinking": _thinking,
    "tool_choice": tagged("type", dict.fromkeys(("auto", "any", "tool", "none"), _any_object)),
    "tools": array(record({"name": text(), "cache_control": _cache}, open_ended=True)),
}
_created: Fields = {
    **_counted,
    "max_tokens": integer(least=0),
    "container": nullable(anything),
    "diagnostics": nullable(_any_object),
    "inference_geo": nullable(text()),
    "metadata": record({"user_id": nullable(text(longest=256))}),
    "service_tier": choice("auto", "standard_only"),
    "stop_sequences": array(text()),
    "stream": flag,
}
_sampled: Fields = {
    **_created,
    "temperature": decimal(0, 1),
    "top_k": integer(least=0),
    "top_p": decimal(0, 1),
}

MESSAGES: dict[str, Check] = {
    VERSIONS[0]: record(_sampled, "model", "max_tokens", "messages"),
    VERSIONS[1]: record(_created, "model", "max_tokens", "messages"),
}
COUNT_TOKENS: Check = record(_counted, "model", "messages")
BATCH: Check = record(
    {
        "requests": array(
            record({"custom_id": text(pattern=CUSTOM_ID), "params": _any_object}, "custom_id", "params"),
            shortest=1,
            longest=MAX_BATCH_REQUESTS,
        )
    },
    "requests",
)
