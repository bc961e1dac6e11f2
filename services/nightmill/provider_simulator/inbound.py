"""One HTTP request as the provider's handlers see it: no socket, no framework."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from pydantic import JsonValue
from pydantic_core import from_json

from nightmill.provider_simulator import errors
from nightmill.provider_simulator.errors import ApiError

_NOT_JSON = (
    "We could not parse the JSON body of your request. The API expects a JSON payload, but what was sent was not valid "
    "JSON."
)


def plain(text: str | None) -> str | None:
    """A header as JSON can hold it: bytes that are no text come as halves of surrogate pairs."""
    return text if text is None or text.isascii() else text.encode("ascii", "backslashreplace").decode()


@dataclass(slots=True, kw_only=True)
class Inbound:
    """One request. `chunks` in place of `body` where a body is streamed."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""
    chunks: AsyncIterator[bytes] | None = None

    def json(self) -> JsonValue | ApiError:
        """The body, or the 400 that it earns."""
        try:
            value: JsonValue = from_json(self.body, allow_inf_nan=False)
        except ValueError:
            return errors.invalid(_NOT_JSON)
        return value

    def whole_number(self, name: str, default: int, least: int, most: int) -> int | ApiError:
        """A number of the query, or the 400 that it earns."""
        text = self.query.get(name)
        if text is None:
            return default
        try:
            value = int(text)
        except ValueError:
            message = f"Invalid type for '{name}': expected an integer, but got a string instead."
            return errors.invalid(message, param=name, code="invalid_type")
        if value < least:
            message = (
                f"Invalid '{name}': integer below minimum value. Expected a value >= {least}, but got {value} instead."
            )
            return errors.invalid(message, param=name, code="integer_below_min_value")
        if value > most:
            message = (
                f"Invalid '{name}': integer above maximum value. Expected a value <= {most}, but got {value} instead."
            )
            return errors.invalid(message, param=name, code="integer_above_max_value")
        return value
