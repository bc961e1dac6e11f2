"""The same error in the body of each provider and self-hosted server.

Shapes from the servers' sources and issues as noted on 2026-11-29: vLLM nests and has a number for a code, SGLang is
flat, llama.cpp leads with the code, TGI has a text, AIBrix is a FastAPI application.
"""

from __future__ import annotations

from collections.abc import Callable

from pydantic import JsonValue
from pydantic_core import to_json

from nightmill.provider_simulator.errors import ApiError
from nightmill.provider_simulator.scenario import Dialect

ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
HTML = (
    "<!DOCTYPE html>\n<html><head><title>{status}</title></head>"
    "<body><center><h1>{status}</h1></center><hr><center>proxy</center></body></html>\n"
)
_REASONS = {400: "BadRequestError", 401: "AuthenticationError", 404: "NotFoundError", 422: "UnprocessableEntityError"}
_TGI_TYPES = {400: "validation", 422: "validation", 424: "generation", 429: "overloaded", 500: "incomplete_generation"}

Object = dict[str, JsonValue]


def openai_error(error: ApiError) -> Object:
    """`{message, type, param, code}`, as it also stands in the rows of a batch."""
    return {"message": error.message, "type": error.type, "param": error.param, "code": error.code}


def anthropic_error(error: ApiError, request_id: str) -> Object:
    """Anthropic's whole body, as it also stands in the results of a batch."""
    kind = ANTHROPIC_TYPES.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
    inner: Object = {"type": kind, "message": error.message}
    if error.details is not None:
        inner["details"] = {"error_code": error.details}
    return {"type": "error", "error": inner, "request_id": request_id}


def openai_body(error: ApiError, dialect: Dialect) -> bytes:
    """The body on OpenAI's routes."""
    if error.html:
        return HTML.format(status=error.status).encode()
    return to_json(_SHAPES[dialect](error))


def anthropic_body(error: ApiError, request_id: str) -> bytes:
    """The body on Anthropic's routes."""
    if error.html:
        return HTML.format(status=error.status).encode()
    return to_json(anthropic_error(error, request_id))


def shown(value: Object, dialect: Dialect) -> Object:
    """A file or batch as this server shows it: AIBrix leaves out what is null."""
    if dialect is not Dialect.AIBRIX:
        return value
    return {name: inner for name, inner in value.items() if inner is not None}


def _nested(error: ApiError) -> Object:
    return {"error": openai_error(error)}


def _numbered(error: ApiError) -> Object:
    if error.status == 401:
        return {"error": "Unauthorized"}
    kind = _REASONS.get(error.status, "InternalServerError" if error.status >= 500 else "BadRequestError")
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.status}}


def _flat(error: ApiError) -> Object:
    return {
        "object": "error",
        "message": error.message,
        "type": str(error.status),
        "param": error.param,
        "code": error.status,
    }


def _llama_cpp(error: ApiError) -> Object:
    kind = "exceed_context_size_error" if error.code == "context_length_exceeded" else error.type
    return {"error": {"code": error.status, "message": error.message, "type": kind}}


def _tgi(error: ApiError) -> Object:
    return {"error": error.message, "error_type": _TGI_TYPES.get(error.status, "unhealthy")}


def _fastapi(error: ApiError) -> Object:
    if error.status in (404, 405):
        return {"detail": "Not Found" if error.status == 404 else "Method Not Allowed"}
    return {"detail": {"error": openai_error(error)}}


_SHAPES: dict[Dialect, Callable[[ApiError], Object]] = {
    Dialect.OPENAI: _nested,
    Dialect.SELF_HOSTED: _nested,
    Dialect.VLLM: _numbered,
    Dialect.SGLANG: _flat,
    Dialect.LLAMA_CPP: _llama_cpp,
    Dialect.OLLAMA: _nested,
    Dialect.TGI: _tgi,
    Dialect.AIBRIX: _fastapi,
    Dialect.LLM_D: _numbered,
}
