"""The ledger's database: one ClickHouse in two forms, chosen by URL. The only package that knows its clients.

`chdb:///path` is the engine inside this process (`embedded`), `http://host:port` or https is a server (`server`). Both
run the same numbered migrations, take the same Arrow blocks and answer the same queries (`database`).
"""

from nightmill.kernel.store.clickhouse.database import ClickHouse, open_clickhouse
from nightmill.kernel.store.clickhouse.errors import QueryFailed, StoreError, StoreLocked

__all__ = ["ClickHouse", "QueryFailed", "StoreError", "StoreLocked", "open_clickhouse"]
