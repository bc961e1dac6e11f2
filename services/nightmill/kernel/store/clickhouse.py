"""The ledger's database: one ClickHouse in two forms, chosen by URL. The only file that knows its clients.

`chdb:///path` is the engine inside this process, over a folder that one process at a time may own. `http://host:port`
(or https) is a server. Both run the same numbered migrations, take the same Arrow blocks and answer the same queries.

An embedded engine brings two rules for the process that owns it: one folder per process for its whole life, and no fork
once it is open. Rows go in as Arrow streams: no row objects, and no scratch file that a killed process leaves behind.
"""

import fcntl
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, unquote, urlsplit

import clickhouse_connect
from clickhouse_connect.driver.binding import bind_query
from clickhouse_connect.driver.exceptions import ClickHouseError, OperationalError

from nightmill.kernel.domain.ids import digest
from nightmill.kernel.resources import resource
from nightmill.kernel.runtime.service import Unavailable
from nightmill.kernel.store.columns import Table, arrow_stream

_NAME = re.compile(r"^[a-z0-9_]{1,63}$")
_CODE = re.compile(r"Code: (\d+)")
_ERRNO = re.compile(r"\[Errno \d+\] ([A-Za-z ]+)")
#: engine errors that pass when something outside changes: time, load, memory, disk, network, keeper, read-only tables.
#: https://github.com/ClickHouse/ClickHouse/blob/master/src/Common/ErrorCodes.cpp, 2026-11
_PASSING = frozenset({159, 160, 202, 209, 210, 236, 241, 242, 243, 252, 279, 319, 425, 439, 745, 999})
_DISK_SIGNS = ("No space left on device", "Too many open files", "File too large")
_READONLY = 164
_NOT_ENOUGH_SPACE = 243
#: what keeps rows from being stored: files and folders that can not be written, space, memory, parts, system errors
_REFUSALS = frozenset({74, 75, 76, 77, 88, 210, 236, 241, 243, 252, 425, 439, 481, 999, 1001, 1002})
_LONGEST_WORDS = 300
_CONNECT_TIMEOUT_S = 2
#: shorter than the 10 s of the transaction in which the rows are staged
_INSERT_TIMEOUT_S = 6
_READ_TIMEOUT_S = 90


class StoreLocked(Exception):
    """Another process owns the embedded engine's folder."""


class StoreError(Exception):
    """The database refused what this program wrote: a defect or a foreign change, not an outage."""


class QueryFailed(Exception):
    """The database refused a query; `code` is its own error code, 0 when it gave none."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


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
                f"the embedded ClickHouse cannot open {data}: {_line(error)}; is another program using this folder, "
                "or did this process open another one before?"
            ) from error
        self._writing: str | None = None
        self._refusals = self._count_refusals()[0]

    def command(self, sql: str, database: str | None) -> None:
        with _mapped_writes(self._where):
            self._client.database = database
            self._client.command(sql)

    def insert(self, table: Table, block: bytes, database: str) -> None:
        with _mapped_writes(self._where):
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
        with _mapped_reads(self._where):
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


class ServerForm:
    """A clickhouse-server by HTTP. Connects at the first use, so that a server that is away delays nobody's start."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._where = f"{parts.hostname}:{parts.port or 8123}"
        self._options: dict[str, Any] = {
            "host": parts.hostname,
            "port": parts.port or (8443 if parts.scheme == "https" else 8123),
            "username": unquote(parts.username or "default"),
            "password": unquote(parts.password or ""),
            "secure": parts.scheme == "https",
            "connect_timeout": _CONNECT_TIMEOUT_S,
            "query_retries": 0,
            "autogenerate_session_id": False,
        }
        self._clients: dict[int, Any] = {}

    def _client(self, timeout_s: int) -> Any:
        client = self._clients.get(timeout_s)
        if client is None:
            try:
                client = clickhouse_connect.get_client(**self._options, send_receive_timeout=timeout_s)
            except ClickHouseError as error:
                raise Unavailable(
                    f"ClickHouse at {self._where} cannot be used: {_line(error)}; start it, or correct the ledger's URL"
                ) from error
            self._clients[timeout_s] = client
        return client

    def command(self, sql: str, database: str | None) -> None:
        client = self._client(_INSERT_TIMEOUT_S)
        with _mapped_writes(self._where):
            client.database = database
            client.command(sql)

    def insert(self, table: Table, block: bytes, database: str) -> None:
        client = self._client(_INSERT_TIMEOUT_S)
        with _mapped_writes(self._where):
            client.database = database
            # an asynchronous insert would be acknowledged before it is a part
            client.raw_insert(
                table.name,
                column_names=list(table.names),
                insert_block=block,
                fmt="ArrowStream",
                settings={"async_insert": 0},
            )

    def read(
        self, sql: str, parameters: Mapping[str, Any], settings: Mapping[str, Any], database: str, fmt: str | None
    ) -> bytes:
        client = self._client(_READ_TIMEOUT_S)
        with _mapped_reads(self._where):
            client.database = database
            answer: bytes = client.raw_query(sql, parameters=dict(parameters) or None, settings=dict(settings), fmt=fmt)
            return answer

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


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

    def insert(self, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert rows as one block; when it returns they are there. The engine drops a block that it has just had.

        Raises `Unavailable` (the same rows may or may not be there: insert them again), `StoreError`.
        """
        self.migrate()
        if rows:
            self._form.insert(table, arrow_stream(table, rows), self.database)

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


@contextmanager
def _mapped_writes(where: str) -> Iterator[None]:
    try:
        yield
    except (ClickHouseError, RuntimeError) as error:
        if _passes(error):
            raise Unavailable(f"ClickHouse ({where}) does not take rows: {_line(error)}{_remedy(error)}") from error
        raise StoreError(f"ClickHouse ({where}) refused: {_line(error)}") from error


@contextmanager
def _mapped_reads(where: str) -> Iterator[None]:
    try:
        yield
    except (ClickHouseError, RuntimeError) as error:
        if isinstance(error, OperationalError) and _code(error) == 0:
            raise Unavailable(f"ClickHouse ({where}) does not answer: {_line(error)}") from error
        raise QueryFailed(_line(error), _code(error)) from error


def _passes(error: Exception) -> bool:
    if _code(error) in _PASSING or (isinstance(error, OperationalError) and _code(error) == 0):
        return True
    # the engine says so under the code of whatever it was doing
    return any(sign in str(error) for sign in _DISK_SIGNS)


def _remedy(error: Exception) -> str:
    return "; free space there" if _code(error) == _NOT_ENOUGH_SPACE or _DISK_SIGNS[0] in str(error) else ""


def _code(error: Exception) -> int:
    found = _CODE.search(str(error))
    return int(found.group(1)) if found else 0


def _line(error: Exception) -> str:
    """The engine's words without its stack, address and version; of a broken connection the system's alone."""
    broken = _ERRNO.search(str(error))
    if broken is not None and _code(error) == 0:
        return broken.group(1)
    text = str(error).rpartition("DB::Exception:")[2]
    return re.sub(r"\s+", " ", text.split("(version", maxsplit=1)[0]).strip()[:500]


def _only_reads(handle: Any, sql: str) -> None:
    """One statement that the engine itself classes as reading; readonly mode alone lets INTO OUTFILE write a file."""
    found = handle._conn.classify_query(sql)
    if found["statement_count"] != 1 or found["query_class"].name != "READ_ONLY":
        raise QueryFailed("only one reading statement is answered", _READONLY)


def _literal(value: Any) -> str:
    text = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"
