"""OpenAI's request bodies that make a model work: a checked value in, what is asked of the model out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import JsonValue

from nightmill.provider_simulator import errors
from nightmill.provider_simulator.asks import Ask, Object, estimate_tokens, prompt_tokens
from nightmill.provider_simulator.checks import Check
from nightmill.provider_simulator.errors import ApiError
from nightmill.provider_simulator.openai import fields
from nightmill.provider_simulator.openai.caching import cached_prefixes, is_breakpoint
from nightmill.provider_simulator.openai.unserved import unserved
from nightmill.provider_simulator.openai.words import worded
from nightmill.provider_simulator.operations import Operation
from nightmill.provider_simulator.scenario import Dialect, Scenario

MAX_EMBEDDING_TOKENS = 8192
MAX_EMBEDDING_REQUEST_TOKENS = 300_000

_BAD_INPUT = "'$.input' is invalid. Please check the API reference: https://platform.openai.com/docs/api-reference."


_Piece = tuple[str, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """How one endpoint's bodies are checked and read."""

    strict: Check
    tolerant: Check
    rules: Callable[[Object, Scenario], ApiError | None]
    read: Callable[[Object], Ask | ApiError]


def read_body(operation: Operation, data: JsonValue, scenario: Scenario, *, checked: bool = False) -> Ask | ApiError:
    """What is asked, or the 400 or 404 that the body earns; `checked`: its fields are known to be right."""
    reader = _READERS[operation]
    if not isinstance(data, dict):
        return errors.invalid("Invalid type for the request body: expected an object.", code="invalid_type")
    if scenario.strict:
        refusal = None if checked else _checked(reader, data, scenario)
        if refusal is None:
            refusal = reader.rules(data, scenario)
        if refusal is not None:
            return refusal
    ask = reader.read(data)
    if isinstance(ask, ApiError):
        return ask
    wanted = ask.prompt_tokens + (ask.max_tokens or 0)
    limit = scenario.context_tokens
    if limit is not None and wanted > limit and scenario.truncate_tokens is None:
        return errors.context_length_exceeded(limit_tokens=limit, requested_tokens=wanted)
    return ask


def _checked(reader: _Reader, data: Object, scenario: Scenario) -> ApiError | None:
    model = data.get("model")
    if model is None or model == "":
        return errors.invalid("you must provide a model parameter")
    openai = scenario.dialect is Dialect.OPENAI
    problem = (reader.strict if openai else reader.tolerant)(data)
    if problem is not None:
        return worded(problem)
    if scenario.models and model not in scenario.models:
        return errors.model_not_found(str(model))
    return None


def _chat_rules(data: Object, scenario: Scenario) -> ApiError | None:
    """What no table of fields can say."""
    refusal = unserved(data)
    if refusal is not None:
        return refusal
    if scenario.dialect is not Dialect.OPENAI:
        return None
    if data.get("max_tokens") is not None and data.get("max_completion_tokens") is not None:
        return errors.invalid(
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
            param="max_tokens",
            code="invalid_parameter_combination",
        )
    answer = data.get("response_format")
    if not isinstance(answer, dict):
        return None
    wrapper = answer.get("json_schema")
    if isinstance(wrapper, dict) and wrapper.get("strict") is True:
        return _strict_schema(wrapper, "response_format")
    if answer.get("type") == "json_object" and "json" not in str(data.get("messages")).lower():
        return errors.invalid(
            "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.",
            param="messages",
        )
    return None


def _responses_rules(data: Object, scenario: Scenario) -> ApiError | None:
    refusal = unserved(data)
    if refusal is not None or scenario.dialect is not Dialect.OPENAI:
        return refusal
    options = data.get("text")
    wanted = options.get("format") if isinstance(options, dict) else None
    if isinstance(wanted, dict) and wanted.get("strict") is True:
        return _strict_schema(wanted, "text.format")
    return None


def _no_rules(data: Object, scenario: Scenario) -> ApiError | None:
    return None


def _strict_schema(wrapper: Object, param: str) -> ApiError | None:
    """Strict output wants closed objects with every property required."""
    said = _open_object(wrapper.get("schema"), ())
    if said is None:
        return None
    return errors.invalid(
        f"Invalid schema for {'response_format' if param == 'response_format' else param} '{wrapper.get('name')}': "
        f"{said}",
        param=param,
        code="invalid_json_schema",
    )


def _open_object(schema: JsonValue, at: tuple[str, ...]) -> str | None:
    if not isinstance(schema, dict):
        return None
    properties = schema.get("properties")
    if schema.get("type") == "object" or isinstance(properties, dict):
        if schema.get("additionalProperties") is not False:
            return f"In context={at!r}, 'additionalProperties' is required to be supplied and to be false."
        required = schema.get("required")
        listed = required if isinstance(required, list) else []
        names = properties if isinstance(properties, dict) else {}
        missing = next((name for name in names if name not in listed), None)
        if missing is not None:
            return (
                f"In context={at!r}, 'required' is required to be supplied and to be an array including every key in "
                f"properties. Missing '{missing}'."
            )
        for name, inner in names.items():
            said = _open_object(inner, (*at, "properties", name))
            if said is not None:
                return said
    return _open_object(schema.get("items"), (*at, "items"))


def _chat(data: Object) -> Ask:
    messages = data["messages"]
    texts = [_pieces(message) for message in messages] if isinstance(messages, list) else [[("", False)]]
    limit = data.get("max_completion_tokens")
    if limit is None:
        limit = data.get("max_tokens")
    answer = data.get("response_format")
    kind, schema = "text", None
    if isinstance(answer, dict):
        kind = str(answer.get("type"))
        wrapper = answer.get("json_schema")
        schema = wrapper.get("schema") if isinstance(wrapper, dict) else None
    return _ask(data, texts, limit=limit, kind=kind, schema=schema)


def _responses(data: Object) -> Ask:
    given = data["input"]
    texts = [_pieces(item) for item in given] if isinstance(given, list) else [[(str(given), False)]]
    instructions = data.get("instructions")
    if isinstance(instructions, str):
        texts.insert(0, [(instructions, False)])
    options = data.get("text")
    wanted = options.get("format") if isinstance(options, dict) else None
    kind, schema = "text", None
    if isinstance(wanted, dict):
        kind, schema = str(wanted.get("type")), wanted.get("schema")
    return _ask(data, texts, limit=data.get("max_output_tokens"), kind=kind, schema=schema)


def _ask(data: Object, texts: list[list[_Piece]], *, limit: JsonValue, kind: str, schema: JsonValue) -> Ask:
    """What is asked by these messages, each of which is pieces of text."""
    pieces = [piece for message in texts for piece in message]
    prompt = "\n".join([text for text, _ in pieces])
    tier = data.get("service_tier")
    return Ask(
        model=str(data.get("model")),
        prompt=prompt,
        last_text="\n".join([text for text, _ in texts[-1]]) if texts else "",
        prompt_tokens=prompt_tokens(prompt, len(texts)),
        max_tokens=limit if isinstance(limit, int) else None,
        json_answer=kind != "text",
        schema=schema,
        service_tier=tier if isinstance(tier, str) else None,
        prefixes=cached_prefixes(data, pieces, prompt),
    )


def _pieces(message: JsonValue) -> list[_Piece]:
    """The texts of a message, each with whether the prompt cache is to end after it."""
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        return [(_part(part), is_breakpoint(part)) for part in content]
    return [(content if isinstance(content, str) else "", False)]


def _part(part: JsonValue) -> str:
    text = part.get("text") if isinstance(part, dict) else None
    return text if isinstance(text, str) else ""


def _embeddings(data: Object) -> Ask | ApiError:
    inputs = _inputs(data["input"])
    if inputs is None or "" in inputs:
        return errors.invalid(_BAD_INPUT)
    counts = [estimate_tokens(text) for text in inputs]
    if max(counts) > MAX_EMBEDDING_TOKENS:
        return errors.invalid(
            f"This model's maximum context length is {MAX_EMBEDDING_TOKENS} tokens, however you requested "
            f"{max(counts)} tokens ({max(counts)} in your prompt; 0 for the completion). Please reduce your prompt; or "
            "completion length.",
            code="context_length_exceeded",
        )
    if sum(counts) > MAX_EMBEDDING_REQUEST_TOKENS:
        return errors.invalid(
            f"Invalid 'input': maximum request size is {MAX_EMBEDDING_REQUEST_TOKENS} tokens per request.",
            param="input",
            code="max_tokens_per_request",
        )
    dimensions = data.get("dimensions")
    return Ask(
        model=str(data.get("model")),
        prompt="\n".join(inputs),
        last_text=inputs[-1],
        prompt_tokens=sum(counts),
        max_tokens=None,
        inputs=tuple(inputs),
        dimensions=dimensions if isinstance(dimensions, int) else None,
        base64=data.get("encoding_format") == "base64",
    )


def _inputs(given: JsonValue) -> list[str] | None:
    """The texts to embed; token ids stand as texts of their own. None: a mixture that the API does not take."""
    if isinstance(given, str):
        return [given]
    if not isinstance(given, list):
        return None
    texts = [one for one in given if isinstance(one, str)]
    if len(texts) == len(given):
        return texts
    if all(type(one) is int for one in given):
        return [" ".join(str(one) for one in given)]
    if all(isinstance(one, list) and one and all(type(token) is int for token in one) for one in given):
        return [" ".join(str(token) for token in one) for one in given if isinstance(one, list)]
    return None


_READERS: dict[Operation, _Reader] = {
    Operation.CHAT: _Reader(strict=fields.CHAT, tolerant=fields.CHAT_TOLERANT, rules=_chat_rules, read=_chat),
    Operation.RESPONSES: _Reader(
        strict=fields.RESPONSES, tolerant=fields.RESPONSES_TOLERANT, rules=_responses_rules, read=_responses
    ),
    Operation.EMBEDDINGS: _Reader(
        strict=fields.EMBEDDINGS, tolerant=fields.EMBEDDINGS_TOLERANT, rules=_no_rules, read=_embeddings
    ),
}
