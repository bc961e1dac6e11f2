"""The request bodies of OpenAI's API as tables of fields, as the official SDK 3.57 types them (read 2026-11-29)."""

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
    mapping,
    nullable,
    record,
    remembered,
    tagged,
    text,
)

NAME = r"^[a-zA-Z0-9_-]{1,64}$"
MAX_EMBEDDING_INPUTS = 2048
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_TIERS = ("auto", "default", "flex", "scale", "priority", "fast")
_TEXT_OR_PARTS = "a string or an array of content parts"

_any_object = record({}, open_ended=True)
_metadata = nullable(mapping(text(longest=512), most=16, longest_key=64))
_tier = nullable(choice(*_TIERS))
_unit = nullable(decimal(0, 1))
_cache_retention = nullable(choice("in_memory", "24h"))

# Chat completions

_text_part = record({"type": anything, "text": text(), "prompt_cache_breakpoint": nullable(_any_object)}, "text")
_image_part = record(
    {"type": anything, "image_url": record({"url": text(), "detail": choice("auto", "low", "high")}, "url")},
    "image_url",
)
_audio_part = record(
    {"type": anything, "input_audio": record({"data": text(), "format": choice("wav", "mp3")}, "data", "format")},
    "input_audio",
)
_file_part = record({"type": anything, "file": _any_object}, "file")
_refusal_part = record({"type": anything, "refusal": text()}, "refusal")


def _content(**parts: Check) -> Check:
    return by_type(_TEXT_OR_PARTS, text=text(), array=array(tagged("type", parts), shortest=1))


_function_call = record({"name": text(), "arguments": text()}, "name", "arguments")
_tool_call = record(
    {"id": text(), "type": choice("function", "custom"), "function": _function_call, "custom": _any_object},
    "id",
    "type",
)
_name = nullable(text(pattern=NAME))
_instruction = record({"role": anything, "content": _content(text=_text_part), "name": _name}, "content")
_user = record(
    {
        "role": anything,
        "name": _name,
        "content": _content(text=_text_part, image_url=_image_part, input_audio=_audio_part, file=_file_part),
    },
    "content",
)
_assistant = record(
    {
        "role": anything,
        "name": _name,
        "content": nullable(_content(text=_text_part, refusal=_refusal_part)),
        "refusal": nullable(text()),
        "audio": nullable(_any_object),
        "function_call": nullable(_function_call),
        "tool_calls": array(_tool_call, shortest=1),
    }
)
_tool = record(
    {"role": anything, "content": _content(text=_text_part), "tool_call_id": text()}, "content", "tool_call_id"
)
_function = record({"role": anything, "content": nullable(text()), "name": text()}, "name")
_message = tagged(
    "role",
    {
        "system": _instruction,
        "assistant": _assistant,
        "user": _user,
        "function": _function,
        "tool": _tool,
        "developer": _instruction,
    },
)

_json_schema = record(
    {"name": text(pattern=NAME), "description": text(), "schema": _any_object, "strict": nullable(flag)}, "name"
)
_response_format = tagged(
    "type",
    {
        "json_object": record({"type": anything}),
        "json_schema": record({"type": anything, "json_schema": _json_schema}, "json_schema"),
        "text": record({"type": anything}),
    },
)
_function_tool = record(
    {"name": text(pattern=NAME), "description": text(), "parameters": _any_object, "strict": nullable(flag)}, "name"
)
_chat_tool = tagged(
    "type",
    {
        "function": record({"type": anything, "function": _function_tool}, "function"),
        "custom": record({"type": anything, "custom": _any_object}, "custom"),
    },
)
_tool_choice = by_type("a string or an object", text=choice("none", "auto", "required"), record=_any_object)

_chat_fields: Fields = {
    "messages": array(_message, shortest=1),
    "model": text(shortest=1),
    "audio": nullable(_any_object),
    "frequency_penalty": nullable(decimal(-2, 2)),
    "function_call": by_type("a string or an object", text=choice("none", "auto"), record=_any_object),
    "functions": array(_function_tool, shortest=1, longest=128),
    "logit_bias": nullable(mapping(decimal(-100, 100), most=1024)),
    "logprobs": nullable(flag),
    "max_completion_tokens": nullable(integer(least=1)),
    "max_tokens": nullable(integer(least=1)),
    "metadata": _metadata,
    "modalities": nullable(array(choice("text", "audio"), shortest=1)),
    "moderation": nullable(_any_object),
    "n": nullable(integer(least=1, most=128)),
    "parallel_tool_calls": flag,
    "prediction": nullable(_any_object),
    "presence_penalty": nullable(decimal(-2, 2)),
    "prompt_cache_key": nullable(text()),
    "prompt_cache_options": _any_object,
    "prompt_cache_retention": _cache_retention,
    "reasoning_effort": nullable(choice(*_EFFORTS)),
    "response_format": nullable(remembered(_response_format)),
    "safety_identifier": nullable(text(longest=64)),
    "seed": nullable(integer(least=-(2**63), most=2**63 - 1)),
    "service_tier": _tier,
    "stop": nullable(
        by_type("a string or an array of strings", text=text(), array=array(text(), shortest=1, longest=4))
    ),
    "store": nullable(flag),
    "stream": nullable(flag),
    "stream_options": nullable(_any_object),
    "temperature": nullable(decimal(0, 2)),
    "tool_choice": _tool_choice,
    "tools": remembered(array(_chat_tool, longest=128)),
    "top_logprobs": nullable(integer(least=0, most=20)),
    "top_p": _unit,
    "user": text(),
    "verbosity": nullable(choice("low", "medium", "high")),
    "web_search_options": _any_object,
}

# Responses

_input_text = record({"type": anything, "text": text()}, "text", open_ended=True)
_input_parts = tagged(
    "type",
    {
        "input_text": _input_text,
        "input_image": _any_object,
        "input_file": _any_object,
        "output_text": _input_text,
        "refusal": _refusal_part,
    },
)
_input_message = record(
    {
        "type": anything,
        "role": choice("assistant", "system", "developer", "user"),
        "content": by_type(_TEXT_OR_PARTS, text=text(), array=array(_input_parts, shortest=1)),
        "id": text(),
        "phase": nullable(text()),
        "status": choice("in_progress", "completed", "incomplete"),
    },
    "role",
    "content",
)
_OTHER_ITEMS = (
    "function_call",
    "function_call_output",
    "reasoning",
    "item_reference",
    "custom_tool_call",
    "custom_tool_call_output",
)
_input_item = tagged("type", {"message": _input_message, **dict.fromkeys(_OTHER_ITEMS, _any_object)}, default="message")
_text_format = tagged(
    "type",
    {
        "text": record({"type": anything}),
        "json_object": record({"type": anything}),
        "json_schema": record(
            {
                "type": anything,
                "name": text(pattern=NAME),
                "description": text(),
                "schema": _any_object,
                "strict": nullable(flag),
            },
            "name",
            "schema",
        ),
    },
)
_responses_fields: Fields = {
    "access_programs": _any_object,
    "background": nullable(flag),
    "background_options": _any_object,
    "context_management": nullable(array(_any_object)),
    "conversation": nullable(by_type("a string or an object", text=text(), record=_any_object)),
    "image": _any_object,
    "include": nullable(array(text())),
    "input": by_type("a string or an array of input items", text=text(), array=array(_input_item, shortest=1)),
    "instructions": nullable(text()),
    "max_output_tokens": nullable(integer(least=16)),
    "max_tool_calls": nullable(integer(least=1)),
    "metadata": _metadata,
    "model": text(shortest=1),
    "moderation": nullable(_any_object),
    "parallel_tool_calls": nullable(flag),
    "previous_response_id": nullable(text()),
    "prompt": nullable(_any_object),
    "prompt_cache_key": nullable(text()),
    "prompt_cache_options": _any_object,
    "prompt_cache_retention": _cache_retention,
    "reasoning": nullable(record({"effort": nullable(choice(*_EFFORTS))}, open_ended=True)),
    "safety_identifier": nullable(text(longest=64)),
    "service_tier": _tier,
    "store": nullable(flag),
    "stream": nullable(flag),
    "stream_options": nullable(_any_object),
    "temperature": nullable(decimal(0, 2)),
    "text": record({"format": _text_format, "verbosity": nullable(choice("low", "medium", "high"))}),
    "tool_choice": by_type("a string or an object", text=choice("none", "auto", "required"), record=_any_object),
    "tools": array(record({"type": text()}, "type", open_ended=True), longest=128),
    "top_logprobs": nullable(integer(least=0, most=20)),
    "top_p": _unit,
    "truncation": nullable(choice("auto", "disabled")),
    "user": text(),
}

# Embeddings, batches

_embedding_fields: Fields = {
    "input": by_type(
        "a string or an array", text=text(), array=array(anything, shortest=1, longest=MAX_EMBEDDING_INPUTS)
    ),
    "model": text(shortest=1),
    "dimensions": integer(least=1),
    "encoding_format": choice("float", "base64"),
    "user": text(),
}
ENDPOINTS = ("/v1/chat/completions", "/v1/embeddings", "/v1/responses")
_expiry = record({"anchor": choice("created_at"), "seconds": integer(least=3600, most=2_592_000)}, "anchor", "seconds")
_batch_fields: Fields = {
    "input_file_id": text(),
    "endpoint": choice(*ENDPOINTS),
    "completion_window": choice("24h"),
    "metadata": _metadata,
    "output_expires_after": _expiry,
}

CHAT: Check = record(_chat_fields, "model", "messages")
RESPONSES: Check = record(_responses_fields, "model", "input")
EMBEDDINGS: Check = record(_embedding_fields, "model", "input")
BATCH: Check = record(_batch_fields, "input_file_id", "endpoint", "completion_window")

#: the same checks for servers that ignore fields they do not know
CHAT_TOLERANT: Check = record(_chat_fields, "model", "messages", open_ended=True)
RESPONSES_TOLERANT: Check = record(_responses_fields, "model", "input", open_ended=True)
EMBEDDINGS_TOLERANT: Check = record(_embedding_fields, "model", "input", open_ended=True)
