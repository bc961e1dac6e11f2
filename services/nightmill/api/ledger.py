"""The ledger's query endpoint as the api uses it: named questions, a person's SQL, and whether it answers.

The ledger may be away, and ClickHouse with it: then these answers are, and nothing else.
"""

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx

from nightmill.api.errors import ApiError
from nightmill.api.findings import SqlAnswer
from nightmill.api.requests import SqlRequest

_TIMEOUT_S = 90.0
_REMEDY = "nightmill ps shows whether the ledger runs; status and results do not need it"
_CODES = {"refused": (403, "sql_refused"), "invalid": (400, "sql_invalid"), "limit": (400, "sql_limit")}


class Ledger:
    """The endpoint that the file `port_file` names. Safe from several threads."""

    def __init__(self, port_file: Path, token: str) -> None:
        self._port_file = port_file
        headers = {"Authorization": f"Bearer {token}"}
        # a proxy in the environment has no business on loopback
        self._http = httpx.Client(headers=headers, timeout=_TIMEOUT_S, trust_env=False)

    def close(self) -> None:
        self._http.close()

    def named(self, query: str, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Rows of a named question as dictionaries. Raises `ApiError`."""
        answer = self._post(f"/named/{query}", {"parameters": dict(parameters)})
        return [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]

    def sql(self, request: SqlRequest) -> SqlAnswer:
        """Answer of a person's question. Raises `ApiError`."""
        return SqlAnswer.model_validate(self._post("/query", {**request.model_dump(), "parameters": {}}))

    def probe(self) -> None:
        """Raises `ApiError` unless the endpoint answers."""
        try:
            self._http.get(f"{self._url()}/health", timeout=5).raise_for_status()
        except httpx.HTTPError as error:
            raise _away(str(error)) from error

    def _post(self, path: str, body: Mapping[str, Any]) -> Any:
        try:
            response = self._http.post(f"{self._url()}{path}", json=body)
            content = response.json()
        except (httpx.HTTPError, ValueError) as error:
            raise _away(f"{type(error).__name__}: {error}") from error
        if response.status_code == httpx.codes.OK:
            return content
        problem = content.get("error", {})
        status, code = _CODES.get(problem.get("kind"), (503, "ledger_unavailable"))
        message = str(problem.get("message", f"status {response.status_code}"))
        if status == httpx.codes.SERVICE_UNAVAILABLE:
            raise _away(message)
        raise ApiError(status, code, message, "correct the query; SHOW TABLES lists what can be asked")

    def _url(self) -> str:
        try:
            return f"http://127.0.0.1:{int(self._port_file.read_text(encoding='ascii'))}"
        except (OSError, ValueError) as error:
            raise _away("it has not said where it listens") from error


def nano_usd(amount: object) -> int | None:
    """A decimal of the ledger, in USD, as integer nano-USD; None stays None."""
    return None if amount is None else int(Decimal(str(amount)) * 10**9)


def in_nano_usd(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row whose `…_usd` columns became `…_nano_usd`."""
    return {
        name.removesuffix("_usd") + "_nano_usd" if name.endswith("_usd") else name: (
            nano_usd(value) if name.endswith("_usd") else value
        )
        for name, value in row.items()
    }


def _away(reason: str) -> ApiError:
    return ApiError(503, "ledger_unavailable", f"the ledger does not answer: {reason}", _REMEDY)
