"""What the real API takes and the simulator does not do: refused in the provider's words, never passed over."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import JsonValue
from pydantic_core import to_json

from nightmill.provider_simulator import errors
from nightmill.provider_simulator.asks import Object
from nightmill.provider_simulator.errors import ApiError

#: parameters, and which values of them are asked for in vain
_UNSERVED: dict[str, Callable[[JsonValue], bool]] = {
    "stream": bool,
    "n": lambda value: value not in (None, 1),
    "logprobs": bool,
    "top_logprobs": bool,
    "audio": lambda value: value is not None,
    "modalities": lambda value: isinstance(value, list) and "audio" in value,
    "tool_choice": lambda value: value == "required" or isinstance(value, dict),
    "web_search_options": lambda value: value is not None,
    "background": bool,
    "prompt": lambda value: value is not None,
}
_NAMES = frozenset(_UNSERVED) | {"previous_response_id", "conversation"}


def unserved(data: Object) -> ApiError | None:
    """The refusal of a checked body that asks for what is not simulated."""
    if _NAMES.isdisjoint(data):
        return None
    for name, asks_for in _UNSERVED.items():
        if name in data and asks_for(data[name]):
            shown = to_json(data[name]).decode()
            message = f"Unsupported value: '{name}' does not support {shown} with this model."
            return errors.invalid(message, param=name, code="unsupported_value")
    return _unknown_past(data)


def _unknown_past(data: Object) -> ApiError | None:
    """Answers are not stored, so there is none to go on from."""
    before, conversation = data.get("previous_response_id"), data.get("conversation")
    if before is not None:
        return errors.invalid(
            f"Previous response with id '{before}' not found.",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    if conversation is not None:
        ident = conversation.get("id") if isinstance(conversation, dict) else conversation
        return errors.not_found(f"Conversation with id '{ident}' not found.")
    return None
