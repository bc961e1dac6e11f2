"""The embedded form: chDB, the engine inside this process, over a folder that one process at a time may own.

It brings two rules for that process: one folder for its whole life, and no fork once it is open.
"""

import fcntl
import os
from collections.abc import Mapping
from datetime import UTC
from pathlib import Path
from typing import Any
from urllib.parse import quote

import clickhouse_connect
from clickhouse_connect.driver.binding import bind_query
from clickhouse_connect.driver.exceptions import ClickHouseError

from nightmill.kernel.resources import resource
from nightmill.kernel.runtime.service import Unavailable
from nightmill.kernel.store.clickhouse.errors import (
    READONLY,
    QueryFailed,
    StoreError,
    StoreLocked,
    line,
    mapped_reads,
    mapped_writes,
)
from nightmill.kernel.store.columns import Table

#: what keeps rows from being stored: files and folders that can not be written, space, memory, parts, system errors
_REFUSALS = frozenset({74, 75, 76, 77, 88, 210, 236, 241, 243, 252, 425, 439, 481, 999, 1001, 1002})
_LONGEST_WORDS = 300


class EmbeddedForm:
    """chDB over `folder`: `data` is the engine's, beside it lie the lock and the settings with this machine's paths."""

    def __init__(self, folder: Path) -> None:
        try:
            import chdb  # an extra: 500 MB that only the owner of an embedded ledger needs
        except ImportError as error:
            raise StoreError(
                "the embedded ClickHouse is not installed; install nightmill[embedded], or name a server's URL"
            ) from error
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(folder / "lock")
        self._chdb = chdb
        self._where = f"embedded in {folder}"
        data, config = folder.resolve() / "data", folder.resolve() / "engine.xml"
        template = resource("deploy", "clickhouse", "embedded.xml").read_text(encoding="utf-8")
        users = resource("deploy", "clickhouse", "embedded-users.xml").resolve()
        config.write_text(template.replace("{users_config}", str(users)), encoding="utf-8")
        self._address = f"{data}?config-file={quote(str(config), safe='')}"
        try:
            self._client = clickhouse_connect.get_client(
                interface="chdb", path=str(data), chdb_options={"config-file": str(config)}
            )
            self._writer = chdb.connect(self._address)
        except (ClickHouseError, RuntimeError) as error:
            os.close(self._lock)
            raise StoreError(
                f"the embedded ClickHouse cannot open {data}: {line(error)}; is another program using this folder, "
                "or did this process open another one before?"
            ) from error
        self._writing: str | None = None
        self._refusals = self._count_refusals()[0]

    def command(self, sql: str, database: str | None) -> None:
        with mapped_writes(self._where):
            self._client.database = database
            self._client.command(sql)

    def insert(self, table: Table, block: bytes, database: str) -> None:
        with mapped_writes(self._where):
            if self._writing != database:
                self._writer.query(f"USE `{database}`")
                self._writing = database
            statement = f"INSERT INTO {table.name} ({', '.join(table.names)})"
            with self._writer.send_insert(statement, "ArrowStream") as into:
                into.append(block)
                into.finish()
            self._check_stored()

    def _check_stored(self) -> None:
        """Raise `Unavailable` when the engine met a refusal since the last look.

        Its streamed INSERT says that rows were written although the disk refused them; only the engine's own count of
        errors tells. An error of something else costs a repeat of the insert, which stores nothing twice.
        """
        count, message = self._count_refusals()
        if count != self._refusals:
            self._refusals = count
            remedy = "; free space there" if "space" in message else ""
            raise Unavailable(f"ClickHouse ({self._where}) does not take rows: {message}{remedy}")

    def _count_refusals(self) -> tuple[int, str]:
        answer = self._writer.query(
            "SELECT toString(sum(value)), argMax(last_error_message, last_error_time) FROM system.errors "
            f"WHERE code IN ({', '.join(map(str, sorted(_REFUSALS)))})",
            "TabSeparated",
        )
        count, _, message = answer.bytes().decode().strip("\n").partition("\t")
        return int(count), message[:_LONGEST_WORDS]

    def read(
        self, sql: str, parameters: Mapping[str, Any], settings: Mapping[str, Any], database: str, fmt: str | None
    ) -> bytes:
        # a handle for each query: settings cannot leak, and readonly cannot be taken back
        with mapped_reads(self._where):
            handle = self._chdb.connect(self._address)
            try:
                bound, named = bind_query(sql, dict(parameters) or None, UTC)
                handle.query(f"USE `{database}`")
                handle.query("SET " + ", ".join(f"{name} = {_literal(value)}" for name, value in settings.items()))
                text = bound if isinstance(bound, str) else bound.decode()
                _only_reads(handle, text)
                params = {name.removeprefix("param_"): value for name, value in named.items()}
                answer: bytes = handle.query(text, fmt or "TabSeparated", params=params).bytes()
                return answer
            finally:
                handle.close()

    def close(self) -> None:
        self._writer.close()
        self._client.close()
        os.close(self._lock)


def _lock(path: Path) -> int:
    """Take the folder for this process; the system gives it back when the process ends, however it ends."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise StoreLocked(
            f"the ledger's folder {path.parent} is in use by the process with pid {holder}; stop it, or query through "
            "its HTTP endpoint: an embedded ClickHouse has one owner"
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor


def _only_reads(handle: Any, sql: str) -> None:
    """One statement that the engine itself classes as reading; readonly mode alone lets INTO OUTFILE write a file."""
    found = handle._conn.classify_query(sql)
    if found["statement_count"] != 1 or found["query_class"].name != "READ_ONLY":
        raise QueryFailed("only one reading statement is answered", READONLY)


def _literal(value: Any) -> str:
    text = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"
