"""Error answers in OpenAI's shape: `{"error": {message, type, param, code}}`.

Texts and codes are those of the public API as noted on 2026-11-29; clients branch on status, type and code.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic_core import to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiError:
    """One refusal or failure as the provider words it."""

    status: int
    message: str
    type: str = "invalid_request_error"
    param: str | None = None
    code: str | None = None

    def body(self) -> bytes:
        """The JSON body that goes with `status`."""
        return to_json({"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}})


def invalid(message: str, *, param: str | None = None, code: str | None = None) -> ApiError:
    """A 400: the request itself is at fault and no retry will help."""
    return ApiError(status=400, message=message, param=param, code=code)


def missing_key() -> ApiError:
    return ApiError(
        status=401,
        message="You didn't provide an API key. You need to provide your API key in an Authorization header using "
        "Bearer auth (i.e. Authorization: Bearer YOUR_KEY).",
    )


def invalid_key() -> ApiError:
    return ApiError(status=401, message="Incorrect API key provided.", code="invalid_api_key")


def model_not_found(model: str) -> ApiError:
    return ApiError(
        status=404,
        message=f"The model `{model}` does not exist or you do not have access to it.",
        code="model_not_found",
    )


def unknown_url(method: str, path: str) -> ApiError:
    return ApiError(status=404, message=f"Unknown request URL: {method} {path}.", code="unknown_url")


def context_length_exceeded(*, limit_tokens: int, requested_tokens: int) -> ApiError:
    return invalid(
        f"This model's maximum context length is {limit_tokens} tokens. However, you requested {requested_tokens} "
        "tokens. Please reduce the length of the messages or completion.",
        param="messages",
        code="context_length_exceeded",
    )


def rate_limit_exceeded(*, model: str, dimension: str, detail: str) -> ApiError:
    """`dimension` is `requests` or `tokens`: which of the two limits was hit."""
    return ApiError(
        status=429,
        message=f"Rate limit reached for {model} on {dimension} per min: {detail}",
        type=dimension,
        code="rate_limit_exceeded",
    )


def quota_exhausted(code: str) -> ApiError:
    return ApiError(
        status=429,
        message="You exceeded your current quota, please check your plan and billing details.",
        type="insufficient_quota",
        code=code,
    )


def server_failed(status: int) -> ApiError:
    """A failure on the provider's side, 500 to 599."""
    if status == 503:
        return ApiError(
            status=503,
            message="The server is currently overloaded with other requests. Please try again later.",
            type="service_unavailable_error",
            code="server_is_overloaded",
        )
    return ApiError(
        status=status, message="The server had an error while processing your request.", type="server_error"
    )
