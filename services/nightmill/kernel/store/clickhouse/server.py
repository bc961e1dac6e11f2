"""The server form: a clickhouse-server by HTTP."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

import clickhouse_connect
from clickhouse_connect.driver.exceptions import ClickHouseError

from nightmill.kernel.runtime.service import Unavailable
from nightmill.kernel.store.clickhouse.errors import line, mapped_reads, mapped_writes
from nightmill.kernel.store.columns import Table

_CONNECT_TIMEOUT_S = 2
#: shorter than the 10 s of the transaction in which the rows are staged
_INSERT_TIMEOUT_S = 6
_READ_TIMEOUT_S = 90


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
                    f"ClickHouse at {self._where} cannot be used: {line(error)}; start it, or correct the ledger's URL"
                ) from error
            self._clients[timeout_s] = client
        return client

    def command(self, sql: str, database: str | None) -> None:
        client = self._client(_INSERT_TIMEOUT_S)
        with mapped_writes(self._where):
            client.database = database
            client.command(sql)

    def insert(self, table: Table, block: bytes, database: str) -> None:
        client = self._client(_INSERT_TIMEOUT_S)
        with mapped_writes(self._where):
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
        with mapped_reads(self._where):
            client.database = database
            answer: bytes = client.raw_query(sql, parameters=dict(parameters) or None, settings=dict(settings), fmt=fmt)
            return answer

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
