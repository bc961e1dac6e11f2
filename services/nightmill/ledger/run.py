"""Assembles the ledger from settings."""

import logging

from nightmill.kernel.runtime.settings import Settings, SettingsError
from nightmill.kernel.store.clickhouse import ClickHouse, StoreError, StoreLocked, open_clickhouse
from nightmill.ledger.http import QueryServer
from nightmill.ledger.named import load_queries
from nightmill.ledger.query import Desk
from nightmill.ledger.service import Ledger

log = logging.getLogger(__name__)

#: exit code when another process owns the embedded engine's folder (EX_TEMPFAIL: it may pass)
EXIT_LOCKED = 75
#: exit code when the embedded engine cannot open its folder, or its tables are not this program's (EX_DATAERR)
EXIT_UNUSABLE = 65


def build(settings: Settings) -> Ledger:
    """The ledger over its store, with its endpoint open. Ends the process when an embedded store cannot be owned.

    Raises `SettingsError` for a URL that names no store.
    """
    store = _open(settings)
    desk = Desk(store, load_queries())
    server = QueryServer(desk, token_file=settings.token_file, port_file=settings.run_dir / "ledger.port")
    server.start()
    return Ledger(store, server)


def _open(settings: Settings) -> ClickHouse:
    url = settings.clickhouse_url or f"chdb://{settings.ledger_dir}"
    try:
        store = open_clickhouse(url, settings.namespace.replace("-", "_"))
        if settings.clickhouse_url is None:
            store.migrate()
    except ValueError as error:
        raise SettingsError(f"NIGHTMILL_CLICKHOUSE: {error}") from error
    except StoreLocked as error:
        log.error("store locked", extra={"action": "store_locked", "reason": str(error)})
        raise SystemExit(EXIT_LOCKED) from error
    except StoreError as error:
        log.error("store unusable", extra={"action": "store_unusable", "reason": str(error)})
        raise SystemExit(EXIT_UNUSABLE) from error
    return store
