"""Assembles the provider gateway from the settings of its process."""

import logging
import sys
import time

from nightmill.kernel.domain.addresses import flaw
from nightmill.kernel.domain.settings import LocalServers, Pool, Prices
from nightmill.kernel.runtime.service import Service
from nightmill.kernel.runtime.settings import Settings, SettingsError, load_config
from nightmill.kernel.store.blobs import BlobStore
from nightmill.provider_gateway.adapters import DIALECTS, EMBEDDERS, UnknownProvider, adapter_of
from nightmill.provider_gateway.bulk.steps import Timing
from nightmill.provider_gateway.bulk.worker import ThreadRunner
from nightmill.provider_gateway.http import HttpCaller
from nightmill.provider_gateway.keys import KeyUnusable, read_key
from nightmill.provider_gateway.outbox import Outbox
from nightmill.provider_gateway.pools import PoolAccess
from nightmill.provider_gateway.service import ProviderGateway

log = logging.getLogger(__name__)

#: three threads share the interpreter; the default of 5 ms makes each hand-over between them as long as a call
_SWITCH_S = 0.0005


def build(settings: Settings) -> Service:
    """The service of this instance. Raises `SettingsError`.

    A pool whose key or server is missing does not keep the others from working: its attempts fail for the account's
    sake and stay queued, and the log says what to do.
    """
    config = load_config(settings.config_dir)
    accesses: dict[str, PoolAccess] = {}
    authorizations: dict[str, str] = {}
    for name, pool in config.pools.items():
        access, key = access_of(name, pool, config.prices, settings)
        accesses[name] = access
        if key is not None:
            authorizations[name] = f"Bearer {key}"
        if access.unusable is not None:
            extra = {"action": "pool_unusable", "pool": name, "reason": access.unusable}
            log.warning("pool can not be used", extra=extra)
    sys.setswitchinterval(_SWITCH_S)
    blobs = BlobStore(settings.blobs_url)
    outbox = Outbox(settings.outbox_dir / f"provider_gateway-{settings.instance}")
    caller = HttpCaller(outbox, put_blob=blobs.put, authorizations=authorizations, clock_ms=_now_ms)
    timing = Timing()
    runner = ThreadRunner(
        settings.outbox_dir / f"bulk-{settings.instance}",
        blobs=blobs,
        authorizations=authorizations,
        clock_ms=_now_ms,
        request_s=timing.request / 1000,
    )
    return ProviderGateway(
        instance=settings.instance,
        pools=accesses,
        blobs=blobs,
        outbox=outbox,
        caller=caller,
        runner=runner,
        bulk_timing=timing,
        partitions=settings.partitions,
    )


def access_of(name: str, pool: Pool, prices: Prices, settings: Settings) -> tuple[PoolAccess, str | None]:
    """A pool as it can be used here, and its key. Raises `SettingsError` for a provider that no adapter speaks to."""
    try:
        adapter = adapter_of(name, pool.provider)
    except UnknownProvider as error:
        raise SettingsError(f"{settings.config_dir}: {error}") from error
    base_url, unusable = _base_url(pool, settings.local_servers)
    key: str | None = None
    if pool.key is not None:
        try:
            key = read_key(pool.key, settings.environment)
        except KeyUnusable as error:
            unusable = unusable or str(error)
    access = PoolAccess(
        name=name,
        pool=pool,
        adapter=adapter,
        base_url=base_url,
        periods=prices.periods(pool),
        price_version=prices.book_version,
        unusable=unusable,
        dialect=DIALECTS.get(pool.provider),
        embedder=EMBEDDERS.get(pool.provider),
    )
    return access, key


def _base_url(pool: Pool, local_servers: LocalServers) -> tuple[str, str | None]:
    url = local_servers.base_url(pool)
    if url is None:
        kind, variable = ("model", "MODEL") if pool.embeddings is None else ("embeddings", "EMBEDDINGS")
        return "", f"the local {kind} server is not known; start it with nightmill up, or set NIGHTMILL_{variable}_URL"
    wrong = flaw(url)
    return (url, None) if wrong is None else ("", f"base_url {wrong}; mend it in pools.yaml")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
