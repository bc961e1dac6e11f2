"""Types of the config folder: pools, prices, retry and tenants. Read once at start, then passed down frozen."""

from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from nightmill.kernel.domain.failures import FailureClass
from nightmill.kernel.domain.pipeline import Duration, Frozen, Sensitivity


def _nano_per_million(usd: object) -> object:
    """USD per million tokens as written → nano-USD per million tokens, exactly. Raises ValueError."""
    try:
        nano = Decimal(str(usd)) * 1_000_000_000
        exact = int(nano)
    except (ArithmeticError, ValueError) as error:
        raise ValueError("write USD per million tokens as a number, for example 0.15") from error
    if isinstance(usd, bool) or exact != nano:
        raise ValueError("write USD per million tokens as a number of at most nine decimals, for example 0.15")
    return exact


NanoUsdPerMillion = Annotated[int, BeforeValidator(_nano_per_million), Field(ge=0)]


class PoolLimits(Frozen):
    """What a provider account allows for a model class; absent means no limit of that kind."""

    requests_per_minute: int | None = Field(default=None, gt=0)
    input_tokens_per_minute: int | None = Field(default=None, gt=0)
    output_tokens_per_minute: int | None = Field(default=None, gt=0)
    slots: int = Field(gt=0)  #: calls in flight over all processes


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
    base_url: str  #: `local-model` for the model server that `nightmill up` starts
    model: str
    key: KeySource | None = None
    limits: PoolLimits
    context_tokens: int = Field(gt=0)
    tokenizer: str = "estimate"  #: an encoding of toktok (exact), or `estimate`
    #: o200k tokens × factor, where the model's own tokenizer is not at hand
    token_factor: float = Field(default=1.0, gt=0)
    sensitivity: Sensitivity = Sensitivity.INTERNAL
    call_deadline: Duration = 120.0  #: seconds, in total, for one call
    structured_output: bool = True  #: the server takes response_format json_schema


class Pools(Frozen):
    """pools.yaml"""

    pools: dict[str, Pool]


class Price(Frozen):
    """USD per million tokens; written as numbers, held as integers."""

    input_usd_per_million: NanoUsdPerMillion
    cached_usd_per_million: NanoUsdPerMillion | None = None  #: as input when absent
    output_usd_per_million: NanoUsdPerMillion


class Prices(Frozen):
    """prices.yaml: a model that is not listed has no price, and a job that needs it is refused (P4)."""

    version: str
    models: dict[str, Price]


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
