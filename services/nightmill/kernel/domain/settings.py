"""Types of the config folder: pools, prices, retry and tenants. Read once at start, then passed down frozen."""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field, SkipValidation, model_validator

from nightmill.kernel.domain.failures import FailureClass
from nightmill.kernel.domain.pipeline import Duration, Frozen, Sensitivity
from nightmill.kernel.domain.prices import PriceFile
from nightmill.kernel.domain.pricing import Period

#: what calls are pinned to, unless a pool names an older one
ANTHROPIC_VERSION = "2026-10-21"
#: `base_url` of a pool that a model server of this machine answers
LOCAL_MODEL = "local-model"


class PoolLimits(Frozen):
    """What a provider account allows for a model class; absent means no limit of that kind."""

    requests_per_minute: int | None = Field(default=None, gt=0)
    input_tokens_per_minute: int | None = Field(default=None, gt=0)
    output_tokens_per_minute: int | None = Field(default=None, gt=0)
    slots: int = Field(gt=0)  #: calls in flight over all processes


class BulkLimits(Frozen):
    """What one submission to the provider's Batch API may hold, and all unfinished ones together."""

    max_requests: int = Field(default=50_000, gt=0)
    max_bytes: int = Field(default=200_000_000, gt=0)
    enqueued_tokens: int | None = Field(default=None, gt=0)  #: input tokens of all unfinished batches of the model


class EmbeddingLimits(Frozen):
    """What one embeddings call may hold. The length of one input is the pool's `context_tokens`."""

    max_inputs: int = Field(default=100, gt=0, le=2048)
    max_tokens: int = Field(default=300_000, gt=0)  #: of all inputs together


class KeySource(Frozen):
    """Where a key comes from; never the key itself."""

    env: str | None = None
    file: str | None = None  #: mode 600

    @model_validator(mode="after")
    def _one_source(self) -> "KeySource":
        if (self.env is None) == (self.file is None):
            raise ValueError("name either env or file")
        return self


class Pool(Frozen):
    """A provider account × model class: the thing that has limits."""

    provider: str  #: name of an adapter
    base_url: str  #: `local-model`: a model server that `nightmill up` starts, for `embeddings` another
    model: str
    key: KeySource | None = None
    limits: PoolLimits
    context_tokens: int = Field(gt=0)
    tokenizer: str = "estimate"  #: an encoding of toktok (exact), or `estimate`
    #: o200k tokens × factor, where the model's own tokenizer is not at hand
    token_factor: float = Field(default=1.0, gt=0)
    sensitivity: Sensitivity = Sensitivity.INTERNAL
    call_deadline: Duration = 120.0  #: seconds, in total, for one call
    structured_output: bool = True  #: the server takes a JSON Schema for the answer
    api: Literal["chat", "responses"] | None = None  #: of provider openai: chat completions unless it says responses
    anthropic_version: Literal["2023-06-01", "2026-10-21"] | None = None  #: of provider anthropic: the newest if absent
    #: parameters that the model, or its server, does not take
    refuses: tuple[Literal["temperature", "seed", "dimensions", "encoding_format"], ...] = ()
    #: what many prompts have in common is marked for the provider's prompt cache where that costs less
    prompt_cache: bool = True
    embeddings: EmbeddingLimits | None = None  #: its model makes vectors, not answers
    bulk: BulkLimits | None = None  #: the provider has a Batch API; without it the pool has no bulk lane
    #: by which the provider signs its notices of ended batches; two while one is replaced by the other
    webhook_secrets: tuple[KeySource, ...] = ()

    @model_validator(mode="after")
    def _settings_of_its_provider(self) -> "Pool":
        for name, provider in (("api", "openai"), ("anthropic_version", "anthropic")):
            if getattr(self, name) is not None and self.provider != provider:
                raise ValueError(f"{name} is a setting of provider {provider}, not of {self.provider}; take it out")
        if self.embeddings is not None and (self.provider == "anthropic" or self.api == "responses"):
            where = "provider anthropic" if self.provider == "anthropic" else "the Responses API"
            raise ValueError(f"embeddings: {where} makes none; take it out, or name a pool of another API")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalServers:
    """Where the model servers of this machine begin their API; None: it is not known that one runs."""

    model_url: str | None = None
    embeddings_url: str | None = None

    def base_url(self, pool: Pool) -> str | None:
        """Where the pool's API begins; None: at a server of this machine that is not known."""
        if pool.base_url != LOCAL_MODEL:
            return pool.base_url
        return self.model_url if pool.embeddings is None else self.embeddings_url


class Pools(Frozen):
    """pools.yaml"""

    pools: dict[str, Pool]


class Prices(PriceFile):
    """The price book: prices.yaml on top of the lists of providers. No price is None, and unknown; it is never 0."""

    #: by `listing`, for the pools of pools.yaml whose model is on its provider's list
    listed: dict[str, SkipValidation[tuple[Period, ...]]] = Field(default_factory=dict)
    list_version: str | None = None  #: of those lists; None: no pool needs them

    def periods(self, pool: Pool) -> tuple[Period, ...]:
        """Prices of a pool's model, those of prices.yaml first; the first that covers a moment holds."""
        own = tuple(price.period() for price in self.models.get(pool.model, ()))
        return (*own, *self.listed.get(listing(pool), ()))

    @property
    def book_version(self) -> str:
        """What an attempt's row says of the prices that its cost was told by."""
        return self.version if self.list_version is None else f"{self.version} + {self.list_version}"


def listing(pool: Pool) -> str:
    """Key of a pool in `Prices.listed`: its price depends on whose model it is and where."""
    return f"{pool.provider} {pool.base_url} {pool.model}"


class RetryRule(Frozen):
    """Waits of one failure class: exponential from base to cap, with full jitter on the upper half."""

    base: Duration
    cap: Duration


class Retry(Frozen):
    """retry.yaml"""

    classes: dict[FailureClass, RetryRule]
    capacity_limit: Duration = 86400.0  #: an item that waited so long for capacity is given up


class Tenant(Frozen):
    """What one tenant may use."""

    pools: tuple[str, ...] | None = None  #: None: every pool
    sensitivity: Sensitivity = Sensitivity.CONFIDENTIAL  #: the most sensitive documents it may submit


class Tenants(Frozen):
    """tenants.yaml"""

    tenants: dict[str, Tenant]


class Config(Frozen):
    """The whole config folder."""

    pools: dict[str, Pool]
    prices: Prices
    retry: Retry
    tenants: dict[str, Tenant]
