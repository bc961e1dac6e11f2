"""A pool as the gateway uses it: where it is, how to speak to it, what it costs, or why it can not be used."""

from dataclasses import dataclass

from nightmill.kernel.domain.pricing import Period
from nightmill.kernel.domain.settings import Pool
from nightmill.provider_gateway.bulk.dialect import BulkDialect
from nightmill.provider_gateway.exchange import Adapter, Embedder


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolAccess:
    """One pool of pools.yaml."""

    name: str
    pool: Pool
    adapter: Adapter
    base_url: str
    periods: tuple[Period, ...]  #: prices of its model by time
    price_version: str
    unusable: str | None = None  #: what is missing and how to mend it; its attempts fail for the account's sake
    dialect: BulkDialect | None = None  #: of the provider's Batch API; None: it has none that we speak
    embedder: Embedder | None = None  #: None: the provider has no embeddings
