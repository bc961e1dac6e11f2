"""One database, whatever runs it: numbered migrations, blocks of rows in, answers out.

Rows go in as Arrow streams: no row objects, and no scratch file that a killed process leaves behind.
"""

import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from nightmill.kernel.domain.ids import digest
from nightmill.kernel.resources import resource
from nightmill.kernel.store.clickhouse.embedded import EmbeddedForm
from nightmill.kernel.store.clickhouse.errors import StoreError
from nightmill.kernel.store.clickhouse.server import ServerForm
from nightmill.kernel.store.columns import Table, arrow_stream
from nightmill.kernel.wire.columnar import Column

_NAME = re.compile(r"^[a-z0-9_]{1,63}$")


class Form(Protocol):
    """What differs between the embedded engine and a server. Raises `Unavailable`, `StoreError`, `QueryFailed`."""

    def command(self, sql: str, database: str | None) -> None: ...

    def insert(self, table: Table, block: bytes, database: str) -> None: ...

    def read(
        self, sql: str, parameters: Mapping[str, Any], settings: Mapping[str, Any], database: str, fmt: str | None
    ) -> bytes:
        """The answer in format `fmt`; None: tab-separated, and nothing is added to the query.

        Safe from any thread; `settings` hold for this query alone.
        """

    def close(self) -> None: ...


class ClickHouse:
    """One database of one ClickHouse, migrated at its first use."""

    def __init__(self, form: Form, database: str) -> None:
        if not _NAME.match(database):
            raise ValueError(f"database {database!r}: use at most 63 of a-z, 0-9 and _")
        self.database = database
        self._form = form
        self._migrating = threading.Lock()
        self._migrated = False

    def migrate(self) -> None:
        """Create the database and apply what is missing of deploy/clickhouse/NNN_*.sql; does nothing the second time.

        Raises `Unavailable`; `StoreError` when a file was changed after it had been applied.
        """
        with self._migrating:
            if not self._migrated:
                self._apply_missing()
                self._migrated = True

    def _apply_missing(self) -> None:
        self._form.command(f"CREATE DATABASE IF NOT EXISTS `{self.database}`", None)
        self._form.command(
            "CREATE TABLE IF NOT EXISTS migrations (name String, digest String, applied_at DateTime DEFAULT now()) "
            "ENGINE = ReplacingMergeTree ORDER BY name",
            self.database,
        )
        listed = self._form.read("SELECT name, digest FROM migrations FINAL", {}, {"readonly": 1}, self.database, None)
        applied = dict(line.split("\t") for line in listed.decode().splitlines())
        for file in sorted(resource("deploy", "clickhouse").glob("[0-9][0-9][0-9]_*.sql")):
            self._apply(file, applied.get(file.name))

    def _apply(self, file: Path, applied: str | None) -> None:
        text = file.read_text(encoding="utf-8")
        if applied is None:
            for statement in text.split(";\n"):
                if statement.strip():
                    self._form.command(statement, self.database)
            # last: a crash before this line applies the file's IF NOT EXISTS statements again
            values = f"('{file.name}', '{digest(text.encode())}')"
            self._form.command(f"INSERT INTO migrations (name, digest) VALUES {values}", self.database)
        elif applied != digest(text.encode()):
            raise StoreError(
                f"{file.name} was changed after it had been applied to database {self.database}; restore it and put "
                "the change into a new numbered file"
            )

    def insert(self, table: Table, columns: Sequence[Sequence[Any] | Column]) -> None:
        """Insert rows, given by column in the table's order, as one block; when it returns they are there.

        The engine drops a block that it has just had. Raises `Unavailable` (the same rows may or may not be there:
        insert them again), `StoreError`, and `ValueError` for a text that is no UTF-8.
        """
        self.migrate()
        self._form.insert(table, arrow_stream(table, columns), self.database)

    def read(
        self, sql: str, *, parameters: Mapping[str, Any], settings: Mapping[str, Any], fmt: str | None = "JSONCompact"
    ) -> bytes:
        """Answer of one query under `settings`; parameters fill `{name:Type}`.

        Without `fmt` it is tab-separated, and nothing is added to the query. Raises `Unavailable`, `QueryFailed`.
        """
        self.migrate()
        return self._form.read(sql, parameters, settings, self.database, fmt)

    def close(self) -> None:
        self._form.close()


def open_clickhouse(url: str, database: str) -> ClickHouse:
    """The store that `url` names. The embedded form opens now and raises `StoreLocked`, a server is not asked yet."""
    parts = urlsplit(url)
    match parts.scheme:
        case "chdb":
            return ClickHouse(EmbeddedForm(Path(unquote(parts.path))), database)
        case "http" | "https" if parts.hostname:
            return ClickHouse(ServerForm(url), database)
    raise ValueError(f"ClickHouse URL with scheme {parts.scheme!r}: use chdb:///folder or http://host:port")
