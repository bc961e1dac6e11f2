"""Errors as the api answers them: `{"error": {"code", "message", "remedy"}}`, codes stable, texts for people.

Foreign errors are mapped here, in one table; anything that is not in it is a defect and answered as `internal`.
"""

import logging
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match

from nightmill.api.models import ErrorAnswer
from nightmill.kernel.runtime.log import LogUnavailable
from nightmill.kernel.runtime.service import Unavailable
from nightmill.kernel.store.blobs import BlobMissing

log = logging.getLogger(__name__)

_METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
_SHOWN = 80
_VALUES = reprlib.Repr()  # a whole value may be long, and nested too deeply for repr
_VALUES.maxstring = _VALUES.maxother = 2 * _SHOWN

_CONTENT_TYPE = (415, "content_type", "the body is not said to be JSON", "send Content-Type: application/json")
_NO_JSON = (400, "invalid", "the JSON body is nested too deeply or is no JSON", "correct the body and send it again")


class ApiError(Exception):
    """A request that is answered with an error; `remedy` is what the caller can do about it."""

    def __init__(self, status: int, code: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.remedy = remedy


def refusals(*statuses: int | str) -> dict[int | str, dict[str, Any]]:
    """For the OpenAPI document: what else a route answers. One that it does not name would be a defect."""
    return {status: {"model": ErrorAnswer, "description": "not done, and why"} for status in statuses}


def unknown_job(job_id: str) -> ApiError:
    return ApiError(404, "unknown_job", f"no job {job_id!r}", "nightmill status lists the jobs")


def unknown_dataset(dataset_id: str) -> ApiError:
    return ApiError(
        404,
        "unknown_dataset",
        f"no dataset {dataset_id!r} has a version",
        "nightmill status lists the jobs; a dataset has a version once one of them is published",
    )


def register(app: FastAPI) -> None:
    """Answer every error of `app` in the one form."""

    @app.exception_handler(ApiError)
    async def _of_ours(_: Request, error: ApiError) -> JSONResponse:
        return error_response(error)

    @app.exception_handler(RequestValidationError)
    async def _of_fields(_: Request, error: RequestValidationError) -> JSONResponse:
        problems = error.errors()
        # a body that is not declared as JSON arrives as the bytes it is
        if any(isinstance(problem.get("input"), bytes) for problem in problems):
            return error_response(ApiError(*_CONTENT_TYPE))
        return error_response(_invalid(problems))

    @app.exception_handler(HTTPException)
    async def _of_paths(request: Request, error: HTTPException) -> JSONResponse:
        if error.status_code == 400:  # only of a body that the parser gave up on
            return error_response(ApiError(*_NO_JSON))
        message = f"{request.method} {request.url.path}: {error.detail}"
        unknown = ApiError(error.status_code, "unknown_path", message, "GET /openapi.json lists them")
        return error_response(unknown, _allow(request) if error.status_code == 405 else error.headers)

    @app.exception_handler(LogUnavailable)
    async def _of_kafka(_: Request, error: LogUnavailable) -> JSONResponse:
        remedy = "try again; nightmill ps shows whether the broker runs"
        return error_response(ApiError(503, "kafka_unavailable", f"Kafka does not answer: {error}", remedy))

    @app.exception_handler(Unavailable)
    async def _of_stores(_: Request, error: Unavailable) -> JSONResponse:
        return error_response(ApiError(503, "store_unavailable", str(error), "try again"))

    @app.exception_handler(BlobMissing)
    async def _of_blobs(_: Request, error: BlobMissing) -> JSONResponse:
        return error_response(ApiError(410, "blob_missing", str(error), "restore the blob store, or submit it again"))

    @app.exception_handler(Exception)
    async def _of_defects(request: Request, error: Exception) -> JSONResponse:
        extra = {"action": "request_failed", "method": request.method, "path": request.url.path}
        log.error("request failed", extra=extra, exc_info=error)
        message = f"{type(error).__name__} in the api"
        return error_response(ApiError(500, "internal", message, "nightmill logs api shows where"))


def error_response(error: ApiError, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """`headers` are those that its status asks for, as `Allow` of a 405."""
    content = {"error": {"code": error.code, "message": error.message, "remedy": error.remedy}}
    asked = {"WWW-Authenticate": "Bearer"} if error.status == 401 else headers
    return JSONResponse(content, status_code=error.status, headers=asked)


def _allow(request: Request) -> Mapping[str, str]:
    """What a path takes; the framework names but the methods of the first of its routes."""
    asked = [(method, {**request.scope, "method": method}) for method in _METHODS]
    routes = request.app.routes
    takes = [method for method, scope in asked if any(each.matches(scope)[0] is Match.FULL for each in routes)]
    return {"Allow": ", ".join(takes)}


def _invalid(problems: Sequence[Any]) -> ApiError:
    return ApiError(
        422,
        "invalid",
        "; ".join(_problem(problem) for problem in problems[:5]),
        "correct the field; GET /openapi.json describes them all",
    )


def _problem(problem: Any) -> str:
    parts = [str(part) for part in problem["loc"] if part not in ("body", "query") and "function-" not in str(part)]
    field = ".".join(parts) or "the body"
    match problem["type"]:
        case "extra_forbidden":
            return f"{field}: unknown field"
        case "missing":
            return f"{field}: is missing"
        case "json_invalid":
            return f"the body is no JSON: {problem['ctx']['error']}"
    value = _VALUES.repr(problem.get("input"))
    shown = value if len(value) <= _SHOWN else f"{value[: _SHOWN - 1]}…"
    return f"{field} = {shown}: {problem['msg']}"
