"""Answers read-only queries, bounded in time, rows, bytes and memory, and says why it refuses the others (O1).

The same on the embedded engine and on a server: the engine itself turns the text into its canonical form and its tree,
guard.py decides, and the canonical text is run in readonly mode with limits that the query cannot change.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nightmill.kernel.store.clickhouse import ClickHouse, QueryFailed
from nightmill.ledger import guard
from nightmill.ledger.named import NamedQuery, WrongParameters, check_parameters

_MAX_SQL_BYTES = 64 * 1024
_MAX_PARAMETER_BYTES = 256 * 1024
_MAX_RESULT_BYTES = 32 * 1024 * 1024
_MAX_MEMORY_BYTES = 640 * 1024 * 1024
_LARGE = f"the answer is larger than {_MAX_RESULT_BYTES >> 20} MiB; select less"
_CHECK_SECONDS = 5
DEFAULT_ROWS, MAX_ROWS = 1_000, 100_000
DEFAULT_SECONDS, MAX_SECONDS = 10, 60

#: of a syntax error: where our own question shows, and a list of half of all keywords, cut somewhere
_OURS = re.compile(r" *:? In scope SELECT formatQuerySingleLine.*")
_MANY_WORDS = re.compile(r"\. Expected one of:(?:[^,]*,){8}.*", re.DOTALL)
_TIMEOUT, _MEMORY, _TOO_LARGE, _SYNTAX, _READONLY = 159, 241, 396, 62, 164


class Refused(Exception):
    """This query is not answered; the text says why, `kind` what kind of reason: refused, invalid or limit."""

    def __init__(self, message: str, kind: str = "refused") -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Rows in the order of `columns`; decimals are strings, so that money stays exact."""

    columns: list[str]
    types: list[str]
    rows: list[list[Any]]
    truncated: bool  #: there are more rows than were asked for


class Desk:
    """Runs queries of readers on the ledger. Safe from several threads."""

    def __init__(self, store: ClickHouse, queries: Mapping[str, NamedQuery]) -> None:
        self._store = store
        self.queries = queries

    def query(
        self,
        sql: str,
        parameters: Mapping[str, Any],
        *,
        max_rows: int = DEFAULT_ROWS,
        max_seconds: int = DEFAULT_SECONDS,
    ) -> Answer:
        """Answer of a reader's own SQL. Raises `Refused`, `Unavailable`."""
        if len(sql.encode()) > _MAX_SQL_BYTES:
            raise Refused(f"the query is longer than {_MAX_SQL_BYTES} bytes", "limit")
        return self._run(self._checked(sql, parameters), parameters, max_rows, max_seconds)

    def named(self, name: str, parameters: Mapping[str, Any]) -> Answer:
        """Answer of a query of queries.sql. Raises `Refused`, `Unavailable`."""
        query = self.queries.get(name)
        if query is None:
            raise Refused(f"no query is named {name}; there are {', '.join(self.queries)}", "invalid")
        _check_values(query.sql, parameters)
        return self._run(query.sql, parameters, MAX_ROWS, MAX_SECONDS)

    def _checked(self, sql: str, parameters: Mapping[str, Any]) -> str:
        """The query in canonical form, when a reader may run it."""
        canonical = self._canonical(sql)
        reason = guard.text_refusal(canonical)
        if reason is not None:
            raise Refused(reason)
        _check_values(canonical, parameters)
        # no format: after EXPLAIN it would be taken for a part of the query that is explained
        tree = self._ask(f"EXPLAIN AST {canonical}", parameters, fmt=None).decode().splitlines()
        reason = guard.tree_refusal(guard.parse(tree), canonical, self._store.database)
        if reason is not None:
            raise Refused(reason)
        return canonical

    def _canonical(self, sql: str) -> str:
        # a literal, not a parameter: the engine's own parser is the judge of quotes and comments
        text = sql.replace("\\", "\\\\").replace("'", "\\'")
        answer = json.loads(self._ask(f"SELECT formatQuerySingleLine('{text}')", {}, fmt="JSONCompact"))
        return str(answer["data"][0][0])

    def _ask(self, sql: str, parameters: Mapping[str, Any], *, fmt: str | None) -> bytes:
        settings = {"max_execution_time": _CHECK_SECONDS, "max_memory_usage": _MAX_MEMORY_BYTES, "readonly": 1}
        try:
            return self._store.read(sql, parameters=parameters, settings=settings, fmt=fmt)
        except QueryFailed as error:
            raise _explained(error, _CHECK_SECONDS) from error

    def _run(self, sql: str, parameters: Mapping[str, Any], max_rows: int, max_seconds: int) -> Answer:
        rows_limit, seconds = _within("max_rows", max_rows, MAX_ROWS), _within("max_seconds", max_seconds, MAX_SECONDS)
        settings = {
            "final": 1,
            "do_not_merge_across_partitions_select_final": 1,
            "max_threads": 2,
            "max_execution_time": seconds,
            "timeout_overflow_mode": "throw",
            "max_memory_usage": _MAX_MEMORY_BYTES,
            "max_result_bytes": _MAX_RESULT_BYTES,
            "limit": rows_limit + 1,
            "date_time_output_format": "iso",
            "output_format_json_quote_64bit_integers": 0,
            "output_format_json_quote_decimals": 1,
            "readonly": 1,  # last: it closes the settings
        }
        try:
            raw = self._store.read(sql, parameters=parameters, settings=settings)
        except QueryFailed as error:
            raise _explained(error, seconds) from error
        if len(raw) > _MAX_RESULT_BYTES:  # the engine counts a repeated value once
            raise Refused(_LARGE, "limit")
        answer = json.loads(raw)
        rows = answer["data"]
        return Answer(
            columns=[column["name"] for column in answer["meta"]],
            types=[column["type"] for column in answer["meta"]],
            rows=rows[:rows_limit],
            truncated=len(rows) > rows_limit,
        )


def _check_values(sql: str, parameters: Mapping[str, Any]) -> None:
    try:
        check_parameters(sql, parameters)
    except WrongParameters as error:
        raise Refused(str(error), "invalid") from error
    if len(json.dumps(dict(parameters)).encode()) > _MAX_PARAMETER_BYTES:
        raise Refused(f"the parameters are longer than {_MAX_PARAMETER_BYTES} bytes", "limit")


def _within(name: str, value: int, limit: int) -> int:
    if not 1 <= value <= limit:
        raise Refused(f"{name} = {value}: give 1 to {limit}", "invalid")
    return value


def _explained(error: QueryFailed, seconds: int) -> Refused:
    match error.code:
        case code if code == _TIMEOUT:
            return Refused(f"the query took longer than {seconds} s; ask for less, or raise max_seconds", "limit")
        case code if code == _MEMORY:
            mib = _MAX_MEMORY_BYTES >> 20
            return Refused(f"the query needs more than {mib} MiB of memory; group or select less", "limit")
        case code if code == _TOO_LARGE:
            return Refused(_LARGE, "limit")
        case code if code == _READONLY:
            return Refused(f"the ledger is read-only, and SETTINGS are the endpoint's: {error}")
        case code if code == _SYNTAX:
            return Refused(_OURS.sub("", _MANY_WORDS.sub("", str(error))), "invalid")
    return Refused(str(error), "invalid")
