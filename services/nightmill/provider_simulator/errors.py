"""What the provider refuses and how it fails, with OpenAI's texts and codes; `envelopes` puts them into bodies.

Texts and codes are those of the public APIs as noted on 2026-11-29; clients branch on status, type and code.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiError:
    """One refusal or failure as the provider words it."""

    status: int
    message: str
    type: str = "invalid_request_error"
    param: str | None = None
    code: str | None = None
    details: str | None = None  # Anthropic's `error.details.error_code`
    html: bool = False  # a proxy said it, not the provider


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


def invalid_anthropic_key() -> ApiError:
    return ApiError(status=401, message="invalid x-api-key", type="authentication_error", code="authentication_error")


def model_not_found(model: str) -> ApiError:
    return ApiError(
        status=404,
        message=f"The model `{model}` does not exist or you do not have access to it.",
        code="model_not_found",
    )


def unknown_url(method: str, path: str) -> ApiError:
    return ApiError(status=404, message=f"Unknown request URL: {method} {path}.", code="unknown_url")


def method_not_allowed(method: str, path: str) -> ApiError:
    return ApiError(status=405, message=f"Not allowed to {method} on {path}.", code="method_not_supported")


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


def request_too_large_for(*, model: str, dimension: str, detail: str) -> ApiError:
    """The 429 that no waiting cures: the request alone is above the limit."""
    return ApiError(
        status=429,
        message=f"Request too large for {model} on {dimension} per min: {detail} The input or output tokens must be "
        "reduced in order to run successfully.",
        type=dimension,
        code="rate_limit_exceeded",
    )


def anthropic_rate_limit(dimension: str, limit_per_min: int) -> ApiError:
    return ApiError(
        status=429,
        message=f"This request would exceed your organization's rate limit of {limit_per_min} "
        f"{dimension.replace('_', ' ')}. Please reduce the prompt length or the maximum tokens requested, "
        "or try again later.",
        type="rate_limit_error",
        code="rate_limit_error",
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


def spend_limit(form: str) -> ApiError:
    """Anthropic's refusals for money; `form` as in a scenario's `spend_limit`."""
    status, message, details = _SPEND[form]
    return ApiError(status=status, message=message, details=details, type=_SPEND_TYPES[status])


def slow_down(status: int) -> ApiError:
    return ApiError(
        status=status,
        message="Your request rate increased too quickly. Please reduce it and increase it gradually.",
        type="service_unavailable_error" if status == 503 else "requests",
        code="slow_down",
    )


def overloaded(status: int) -> ApiError:
    """529 of Anthropic, 503 of OpenAI."""
    if status == 529:
        return ApiError(status=529, message="Overloaded", type="overloaded_error")
    return server_failed(503)


def loading_model() -> ApiError:
    return ApiError(status=503, message="Loading model", type="unavailable_error")


def busy() -> ApiError:
    return ApiError(
        status=503, message="server busy, please try again.  maximum pending requests exceeded", type="server_error"
    )


def not_found(message: str, *, param: str | None = None) -> ApiError:
    """A 404 for a file, a batch or another resource."""
    return ApiError(status=404, message=message, param=param, type="invalid_request_error")


def conflict(message: str) -> ApiError:
    return ApiError(status=409, message=message)


def too_large(message: str) -> ApiError:
    return ApiError(status=413, message=message, type="request_too_large")


_SPEND_TYPES = {400: "invalid_request_error", 402: "billing_error", 429: "rate_limit_error"}
_SPEND: dict[str, tuple[int, str, str | None]] = {
    "enforced": (
        429,
        "You have reached your API usage limits: you will regain access on the first of next month.",
        "enforced_spend_limit_reached",
    ),
    "contract": (429, "Your organization has reached its contracted spend.", "contract_spend_limit_reached"),
    "ramp": (429, "Your usage grows faster than your organization's limit allows.", "ramp_limit_exceeded"),
    "own": (
        400,
        "You have reached your specified API usage limits. You will regain access on 2027-01-01 at 00:00 UTC.",
        None,
    ),
    "workspace": (
        400,
        "You have reached your specified workspace API usage limits. You will regain access on 2027-01-01 at "
        "00:00 UTC.",
        None,
    ),
    "billing": (402, "Your credit balance is too low to access the API. Please go to Plans & Billing.", None),
}
