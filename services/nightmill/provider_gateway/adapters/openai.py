"""OpenAI's own API: `chat/completions`, `responses` where the pool says `api: responses`, and `embeddings`.

Wire and errors as typed by the official SDK 3.57 and its API description of 2026-08-21 (read 2026-11-29). A schema that
keeps to OpenAI's rules is asked for strictly; any other is a wish, which the validator checks all the same.

Of its prompt caches (`kernel.domain.prompt_cache`): models from GPT-5.6 on are told to write none but the shared part
that is marked; `prompt_cache_key`, a digest of the template, keeps calls that share one together. No document is in it.
"""

import re
from collections.abc import Mapping
from typing import Any

from nightmill.kernel.domain.parameters import sampling
from nightmill.kernel.domain.pipeline import Embedding, Pipeline
from nightmill.kernel.domain.prompt_cache import OPENAI_CACHE, writes_unasked
from nightmill.kernel.domain.settings import Pool
from nightmill.provider_gateway.adapters.chat import ListForm, Marking, reply_of_chat
from nightmill.provider_gateway.adapters.embeddings import (
    embedding_form,
    is_embeddings,
    reply_of_embeddings,
    vectors_of,
)
from nightmill.provider_gateway.adapters.errors import Words, failure_of_status
from nightmill.provider_gateway.adapters.reading import document_of, encode, members
from nightmill.provider_gateway.adapters.responses import is_response, reply_of_responses
from nightmill.provider_gateway.adapters.schemas import is_strict
from nightmill.provider_gateway.exchange import Form, Reply, Response, TextsForm, Vectors
from nightmill.provider_gateway.failures import Signal, failure
from nightmill.provider_gateway.waits import go_duration_ms, longest_ms

#: codes and types by which OpenAI names a failure, whatever its status
CODES: dict[str, Signal] = {
    "rate_limit_exceeded": Signal.RATE_LIMITED,
    "slow_down": Signal.SLOW_DOWN,
    "insufficient_quota": Signal.OUT_OF_CREDIT,
    "credit_balance_exhausted": Signal.OUT_OF_CREDIT,
    "organization_spend_limit_exceeded": Signal.OUT_OF_CREDIT,
    "project_spend_limit_exceeded": Signal.OUT_OF_CREDIT,
    "organization_usage_limit_exceeded": Signal.OUT_OF_CREDIT,
    "billing_hard_limit_reached": Signal.OUT_OF_CREDIT,
    "billing_error": Signal.BILLING,
    "flex_unavailable": Signal.TIER_UNAVAILABLE,
    "resource_unavailable": Signal.TIER_UNAVAILABLE,
    "server_is_overloaded": Signal.OVERLOADED,
    "service_unavailable_error": Signal.OVERLOADED,
    "server_error": Signal.SERVER_ERROR,
    "context_length_exceeded": Signal.CONTEXT_TOO_LONG,
    "string_above_max_length": Signal.TOO_LARGE,
    "file_too_large": Signal.TOO_LARGE,
    "unsupported_parameter": Signal.PARAMETER_REFUSED,
    "unsupported_value": Signal.PARAMETER_REFUSED,
    "unknown_parameter": Signal.PARAMETER_REFUSED,
    "invalid_json_schema": Signal.PARAMETER_REFUSED,
    "invalid_api_key": Signal.KEY_REFUSED,
    "unsupported_country_region_territory": Signal.KEY_REFUSED,
    "model_not_found": Signal.MODEL_REFUSED,
    "data_residency_mismatch": Signal.MODEL_REFUSED,
    "content_filter": Signal.PROMPT_FILTERED,
    "content_policy_violation": Signal.PROMPT_FILTERED,
    "invalid_prompt": Signal.PROMPT_FILTERED,
    "bio_policy": Signal.PROMPT_FILTERED,
    "misalignment_policy_violation": Signal.PROMPT_FILTERED,
}
TEXTS: tuple[tuple[re.Pattern[str], Signal], ...] = (
    (re.compile(r"Request too large for", re.I), Signal.REQUEST_OVER_RATE),
    (re.compile(r"maximum context length", re.I), Signal.CONTEXT_TOO_LONG),
    (re.compile(r"^File is too large", re.I), Signal.TOO_LARGE),
    (re.compile(r"model .{0,200}(not found|does not exist)", re.I | re.S), Signal.MODEL_REFUSED),
)

_BREAKPOINT = '"prompt_cache_breakpoint":{"mode":"explicit"}'
_CHAT = Marking(roles={"system": "text", "user": "text"}, mark=_BREAKPOINT)
_RESPONSES = Marking(roles={"system": "input_text", "user": "input_text"}, mark=_BREAKPOINT)
_KEY_CHARACTERS = 32
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")


def reset_ms(dimension: str | None, headers: Mapping[str, str], now_ms: int) -> int | None:
    """When the exhausted dimension (`requests` or `tokens`) has room again, by its reset header."""
    if not dimension:
        return None
    wait = go_duration_ms(headers.get(f"x-ratelimit-reset-{dimension}"))
    if headers.get(f"x-ratelimit-remaining-project-{dimension}") == "0":
        wait = longest_ms(wait, go_duration_ms(headers.get(f"x-ratelimit-reset-project-{dimension}")))
    return wait


WORDS = Words(codes=CODES, texts=TEXTS, reset_ms=reset_ms)


class OpenAi:
    """Satisfies `Adapter` and `Embedder`."""

    def form(self, *, base_url: str, pool: Pool, pipeline: Pipeline) -> Form:
        settings: dict[str, Any] = {**sampling(pipeline.model, pool), **_cache_settings(pool, pipeline)}
        schema = named_schema(pipeline, strict=is_strict(pipeline.output)) if pool.structured_output else None
        if pool.api == "responses":
            # an answer that is kept at the provider is a copy that nobody asked for
            settings["store"] = False
            if schema is not None:
                settings["text"] = {"format": {"type": "json_schema", **schema}}
            path, messages, limit, marking = "/responses", "input", "max_output_tokens", _RESPONSES
        else:
            if schema is not None:
                settings["response_format"] = {"type": "json_schema", "json_schema": schema}
            path, messages, limit, marking = "/chat/completions", "messages", "max_completion_tokens", _CHAT
        return ListForm(
            url=base_url.rstrip("/") + path,
            model=encode(pool.model),
            messages=messages,
            limit=limit,
            settings=members(settings),
            marking=marking,
        )

    def reply(self, response: Response, *, now_ms: int) -> Reply:
        if response.status != 200:
            return Reply(failure=failure_of_status(response, WORDS, now_ms))
        document = document_of(response)
        if isinstance(document, Signal):
            return Reply(failure=failure(document, status=200))
        if is_response(document):
            return reply_of_responses(document, response, WORDS, now_ms)
        if is_embeddings(document):
            return reply_of_embeddings(response, WORDS, now_ms)
        return reply_of_chat(document, response, WORDS, now_ms)

    def texts_form(self, *, base_url: str, pool: Pool, embedding: Embedding) -> TextsForm:
        return embedding_form(base_url, pool, embedding, may_cut=False)

    def vectors(self, response: Response, *, inputs: int, now_ms: int) -> Vectors:
        return vectors_of(response, WORDS, inputs=inputs, now_ms=now_ms)


def _cache_settings(pool: Pool, pipeline: Pipeline) -> dict[str, Any]:
    """What a pool's calls say of the prompt cache, whatever they mark."""
    settings: dict[str, Any] = {}
    if pool.prompt_cache and writes_unasked(pool):
        settings["prompt_cache_options"] = {"mode": "explicit"}
    if pool.prompt_cache and OPENAI_CACHE.may_reach(len(pipeline.prompt.encode())):
        settings["prompt_cache_key"] = pipeline.prompt_version[:_KEY_CHARACTERS]
    return settings


def named_schema(pipeline: Pipeline, *, strict: bool) -> dict[str, Any]:
    """A pipeline's output as OpenAI takes it."""
    name = _NOT_IN_NAME.sub("_", pipeline.name)[:64]
    return {"name": name, "schema": pipeline.output, "strict": strict}
