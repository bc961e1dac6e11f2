"""Anthropic's request bodies and headers: a checked value in, what is asked of the model out."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydantic import JsonValue

from nightmill.provider_simulator import errors
from nightmill.provider_simulator.anthropic import fields
from nightmill.provider_simulator.anthropic.words import worded
from nightmill.provider_simulator.asks import (
    INVALID_KEY_PREFIX,
    Ask,
    Object,
    prompt_tokens,
)
from nightmill.provider_simulator.errors import ApiError
from nightmill.provider_simulator.inbound import plain
from nightmill.provider_simulator.operations import Operation
from nightmill.provider_simulator.prompt_cache import HOUR_S, Prefix, prefixes_of
from nightmill.provider_simulator.scenario import Dialect, Scenario

_TTL_S = {"5m": 300, "1h": HOUR_S}
_MOST_MARKS = 4

#: a text, and its `cache_control`
_Piece = tuple[str, JsonValue]

#: the shortest beginning that a model caches; the first name that fits
_LEAST_CACHED_TOKENS: tuple[tuple[re.Pattern[str], int], ...] = (
    (re.compile(r"^claude-(opus-4-[56]|haiku-4-5)\b"), 4_096),
    (re.compile(r"^claude-(opus-4-7|3-5-haiku|3-haiku)\b"), 2_048),
    (re.compile(r"^claude-(opus|fable|mythos)-5\b"), 512),
    (re.compile(r""), 1_024),
)


def check_headers(headers: Mapping[str, str], dialect: Dialect) -> ApiError | None:
    """The refusal that a call on Anthropic's routes earns before its body is looked at.

    The key is taken from `x-api-key` (documents) or as a Bearer token (SDK 2.x).
    """
    key = headers.get("x-api-key")
    if key is None:
        scheme, _, token = (headers.get("Authorization") or "").partition(" ")
        key = token.strip() if scheme.lower() == "bearer" else None
    if not key:
        if dialect is Dialect.OPENAI:
            return ApiError(status=401, message="x-api-key header is required", type="authentication_error")
    elif key.startswith(INVALID_KEY_PREFIX):
        return errors.invalid_anthropic_key()
    version = plain(headers.get("anthropic-version"))
    if version is None:
        return ApiError(status=400, message="anthropic-version: header is required")
    if version not in fields.VERSIONS:
        return ApiError(status=400, message=f'anthropic-version: "{version}" is not a valid version')
    return None


def read_body(
    operation: Operation, data: JsonValue, scenario: Scenario, version: str, *, checked: bool = False
) -> Ask | ApiError:
    """What is asked, or the 400 or 404 that the body earns; `checked`: its fields are known to be right."""
    if not isinstance(data, dict):
        return ApiError(status=400, message="Input should be a valid dictionary")
    if scenario.strict:
        refusal = _rules(data) if checked else _checked(operation, data, scenario, version)
        if refusal is not None:
            return refusal
    pieces = _all_pieces(data)
    marks = sum(isinstance(mark, dict) for _, mark in pieces)
    if marks > _MOST_MARKS:
        message = f"A maximum of {_MOST_MARKS} blocks with cache_control may be provided. Found {marks}."
        return ApiError(status=400, message=message)
    ask = _read(data, pieces)
    limit = scenario.context_tokens
    if limit is not None and ask.prompt_tokens > limit:
        return ApiError(status=400, message=f"prompt is too long: {ask.prompt_tokens} tokens > {limit} maximum")
    return ask


def _checked(operation: Operation, data: Object, scenario: Scenario, version: str) -> ApiError | None:
    check = fields.COUNT_TOKENS if operation is Operation.COUNT_TOKENS else fields.MESSAGES[version]
    if version != fields.VERSIONS[0]:
        gone = next((name for name in fields.REMOVED if name in data), None)
        if gone is not None:
            return ApiError(
                status=400,
                message=f"{gone}: this parameter was removed in version {version}",
                param=gone,
            )
    problem = check(data)
    if problem is not None:
        return worded(problem)
    model = str(data["model"])
    if scenario.models and model not in scenario.models:
        return errors.not_found(f"model: {model}")
    return _rules(data)


def _rules(data: Object) -> ApiError | None:
    """What no table of fields can say."""
    refusal = _unserved(data)
    if refusal is not None:
        return refusal
    if data.get("max_tokens") == 0:
        return ApiError(status=400, message="max_tokens: Input should be greater than or equal to 1")
    messages = data["messages"]
    if not isinstance(messages, list):
        return None
    first, last = messages[0], messages[-1]
    if isinstance(first, dict) and first.get("role") != "user":
        return ApiError(status=400, message='messages: first message must use the "user" role')
    for place, message in enumerate(messages):
        content = message.get("content") if isinstance(message, dict) else None
        if content in ("", []) and message is not last:
            return ApiError(
                status=400,
                message=f"messages.{place}: all messages must have non-empty content except for the optional final "
                "assistant message",
            )
    if isinstance(last, dict) and last.get("role") == "user" and last.get("content") in ("", []):
        return ApiError(status=400, message=f"messages.{len(messages) - 1}: user messages must have non-empty content")
    thinking = data.get("thinking")
    limit = data.get("max_tokens")
    if isinstance(thinking, dict) and isinstance(limit, int):
        budget = thinking.get("budget_tokens")
        if isinstance(budget, int) and budget >= limit:
            return ApiError(status=400, message="`max_tokens` must be greater than `thinking.budget_tokens`.")
    return None


def _unserved(data: Object) -> ApiError | None:
    """What the real API takes and the simulator does not do."""
    if data.get("stream") is True:
        return ApiError(status=400, message="stream: streaming is not supported here")
    chosen = data.get("tool_choice")
    if isinstance(chosen, dict) and chosen.get("type") in ("any", "tool"):
        return ApiError(status=400, message=f"tool_choice: type '{chosen['type']}' is not supported by this model")
    return None


def _read(data: Object, pieces: list[_Piece]) -> Ask:
    messages = data.get("messages")
    texts = [text for text, _ in pieces]
    prompt = "\n".join(texts)
    config = data.get("output_config")
    wanted = config.get("format") if isinstance(config, dict) else None
    schema = wanted.get("schema") if isinstance(wanted, dict) else None
    limit = data.get("max_tokens")
    tier = data.get("service_tier")
    count = (len(messages) if isinstance(messages, list) else 0) + (1 if _pieces(data.get("system")) else 0)
    return Ask(
        model=str(data.get("model")),
        prompt=prompt,
        last_text=texts[-1] if texts else "",
        prompt_tokens=prompt_tokens(prompt, count),
        max_tokens=limit if isinstance(limit, int) else None,
        json_answer=schema is not None,
        schema=schema,
        prefixes=_marked(data, pieces, prompt),
        service_tier=tier if isinstance(tier, str) else None,
    )


def _all_pieces(data: Object) -> list[_Piece]:
    """The system's texts, then those of the messages."""
    pieces = _pieces(data.get("system"))
    messages = data.get("messages")
    for message in messages if isinstance(messages, list) else []:
        pieces.extend(_pieces(message.get("content")) if isinstance(message, dict) else [])
    return pieces


def _pieces(content: JsonValue) -> list[_Piece]:
    """Texts, each with its `cache_control`."""
    if isinstance(content, str):
        return [(content, None)]
    if not isinstance(content, list):
        return []
    found: list[_Piece] = []
    for block in content:
        if isinstance(block, dict):
            text = block.get("text")
            found.append((text if isinstance(text, str) else "", block.get("cache_control")))
    return found


def _marked(data: Object, pieces: list[_Piece], prompt: str) -> tuple[Prefix, ...]:
    """The prompt up to each block that is marked for the cache; a mark on the request is one on its last block."""
    marks = [mark for _, mark in pieces]
    if isinstance(data.get("cache_control"), dict) and marks:
        marks[-1] = data["cache_control"]
    if not any(marks):
        return ()
    ends, at = [], -1
    for (text, _), mark in zip(pieces, marks, strict=True):
        at += 1 + len(text.encode("utf-8", "surrogatepass"))
        if isinstance(mark, dict):
            ends.append((at, _TTL_S[str(mark.get("ttl", "5m"))]))
    model = str(data.get("model"))
    least = next(tokens for name, tokens in _LEAST_CACHED_TOKENS if name.search(model))
    return prefixes_of(model, prompt, ends, least_tokens=least)
