"""`POST /v1/chat/completions`: bytes in, a checked request or the provider's refusal out."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import JsonValue
from pydantic_core import from_json

from nightmill.provider_simulator import errors
from nightmill.provider_simulator.errors import ApiError
from nightmill.provider_simulator.scenario import Dialect, Scenario

ROLES = frozenset({"developer", "system", "user", "assistant", "tool", "function"})
FORMATS = frozenset({"text", "json_object", "json_schema"})
INVALID_KEY_PREFIX = "sk-invalid"
MAX_CLIENT_REQUEST_ID_CHARS = 512

_TOKENS_PER_MESSAGE = 4
_TOKENS_PER_REPLY = 3

Object = dict[str, JsonValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """What the simulator reads of a request."""

    model: str
    prompt: str  # the texts of all messages, one after another
    last_text: str  # the text of the last message
    prompt_tokens: int
    max_tokens: int | None
    json_answer: bool
    schema: JsonValue  # of the answer; None: any


def estimate_tokens(text: str) -> int:
    """A quarter of the UTF-8 bytes, rounded up: close enough to be a bill, and the same everywhere."""
    return (len(text.encode("utf-8", "surrogatepass")) + 3) // 4


def check_headers(*, authorization: str | None, client_request_id: str | None, dialect: Dialect) -> ApiError | None:
    """The refusal that a request earns before its body is looked at."""
    scheme, _, key = (authorization or "").partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        if authorization is not None or dialect is Dialect.OPENAI:
            return errors.missing_key()
    elif key.strip().startswith(INVALID_KEY_PREFIX):
        return errors.invalid_key()
    if client_request_id is not None and (
        len(client_request_id) > MAX_CLIENT_REQUEST_ID_CHARS or not client_request_id.isascii()
    ):
        return errors.invalid(
            f"X-Client-Request-Id must be ASCII and at most {MAX_CLIENT_REQUEST_ID_CHARS} characters long."
        )
    return None


def read_request(body: bytes, scenario: Scenario) -> ChatRequest | ApiError:
    """The request in `body`, or the 400 or 404 that it earns."""
    try:
        data = from_json(body, allow_inf_nan=False)
    except ValueError:
        return errors.invalid(
            "We could not parse the JSON body of your request. The API expects a JSON payload, but what was sent "
            "was not valid JSON."
        )
    if not isinstance(data, dict):
        return errors.invalid("Invalid type for the request body: expected an object.", code="invalid_type")
    refusal = _check_model(data, scenario) or _check_options(data) or _check_format(data.get("response_format"))
    if refusal is not None:
        return refusal
    texts = _texts(data.get("messages"))
    return texts if isinstance(texts, ApiError) else _within_context(_build(data, texts), scenario)


def _build(data: Object, texts: list[str]) -> ChatRequest:
    prompt = "\n".join(texts)
    limit = data.get("max_completion_tokens")
    if limit is None:
        limit = data.get("max_tokens")
    answer = data.get("response_format")
    kind = answer.get("type") if isinstance(answer, dict) else "text"
    wrapper = answer.get("json_schema") if isinstance(answer, dict) else None
    return ChatRequest(
        model=str(data["model"]),
        prompt=prompt,
        last_text=texts[-1],
        prompt_tokens=estimate_tokens(prompt) + _TOKENS_PER_MESSAGE * len(texts) + _TOKENS_PER_REPLY,
        max_tokens=limit if isinstance(limit, int) else None,
        json_answer=kind in ("json_object", "json_schema"),
        schema=wrapper.get("schema") if isinstance(wrapper, dict) else None,
    )


def _within_context(request: ChatRequest, scenario: Scenario) -> ChatRequest | ApiError:
    limit = scenario.context_tokens
    wanted = request.prompt_tokens + (request.max_tokens or 0)
    if limit is not None and wanted > limit:
        return errors.context_length_exceeded(limit_tokens=limit, requested_tokens=wanted)
    return request


def _check_model(data: Object, scenario: Scenario) -> ApiError | None:
    model = data.get("model")
    if model is None or model == "":
        return errors.invalid("you must provide a model parameter")
    if not isinstance(model, str):
        return _wrong_type("model", "a string")
    if scenario.models and model not in scenario.models:
        return errors.model_not_found(model)
    return None


def _check_options(data: Object) -> ApiError | None:
    if data.get("stream"):
        return errors.invalid(
            "Unsupported value: 'stream' does not support true here. Only false is supported.",
            param="stream",
            code="unsupported_value",
        )
    if data.get("n") not in (None, 1):
        return errors.invalid("Unsupported value: 'n' supports only 1 here.", param="n", code="unsupported_value")
    for name in ("max_tokens", "max_completion_tokens"):
        value = data.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            return _wrong_type(name, "an integer")
        if value < 1:
            return _out_of_range(name, f"Expected a value >= 1, but got {value} instead.", "integer_below_min_value")
    temperature = data.get("temperature")
    if temperature is None:
        return None
    if not isinstance(temperature, int | float) or isinstance(temperature, bool):
        return _wrong_type("temperature", "a decimal")
    if not 0 <= temperature <= 2:
        detail = f"Expected a value between 0 and 2, but got {temperature} instead."
        return _out_of_range("temperature", detail, "decimal_out_of_range")
    return None


def _check_format(answer: JsonValue) -> ApiError | None:
    if answer is None:
        return None
    if not isinstance(answer, dict):
        return _wrong_type("response_format", "an object")
    kind = answer.get("type")
    if kind not in FORMATS:
        return errors.invalid(
            f"Invalid value: {kind!r}. Supported values are: 'json_object', 'json_schema', and 'text'.",
            param="response_format.type",
            code="invalid_value",
        )
    if kind != "json_schema":
        return None
    wrapper = answer.get("json_schema")
    if not isinstance(wrapper, dict):
        return _missing("response_format.json_schema")
    if not isinstance(wrapper.get("name"), str):
        return _missing("response_format.json_schema.name")
    if not isinstance(wrapper.get("schema", {}), dict):
        return _wrong_type("response_format.json_schema.schema", "an object")
    return None


def _texts(messages: JsonValue) -> list[str] | ApiError:
    if messages is None:
        return _missing("messages")
    if not isinstance(messages, list):
        return _wrong_type("messages", "an array of objects")
    if not messages:
        return errors.invalid(
            "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            param="messages",
            code="empty_array",
        )
    texts: list[str] = []
    for position, message in enumerate(messages):
        text = _text(message, f"messages[{position}]")
        if isinstance(text, ApiError):
            return text
        texts.append(text)
    return texts


def _text(message: JsonValue, where: str) -> str | ApiError:
    if not isinstance(message, dict):
        return _wrong_type(where, "an object")
    role = message.get("role")
    if role not in ROLES:
        return errors.invalid(f"Invalid value: {role!r}.", param=f"{where}.role", code="invalid_value")
    content = message.get("content")
    if isinstance(content, str):
        return content
    if content is None and role == "assistant":
        return ""
    if isinstance(content, list) and content:
        return "\n".join(_part(part) for part in content)
    return _wrong_type(f"{where}.content", "a string or an array of content parts")


def _part(part: JsonValue) -> str:
    text = part.get("text") if isinstance(part, dict) else None
    return text if isinstance(text, str) else ""


def _missing(param: str) -> ApiError:
    return errors.invalid(f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter")


def _wrong_type(param: str, expected: str) -> ApiError:
    return errors.invalid(f"Invalid type for '{param}': expected {expected}.", param=param, code="invalid_type")


def _out_of_range(param: str, detail: str, code: str) -> ApiError:
    return errors.invalid(f"Invalid '{param}': out of range. {detail}", param=param, code=code)
