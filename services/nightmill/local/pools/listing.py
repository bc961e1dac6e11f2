"""`nightmill pool list`: every pool with its limits, where its key comes from, and what it lacks. Never the key."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from nightmill.kernel.domain.lifecycle import Lane
from nightmill.kernel.domain.pipeline import Sensitivity
from nightmill.kernel.domain.pricing import Tariff, price_at
from nightmill.kernel.domain.settings import Config, KeySource, Pool, PoolLimits, Prices
from nightmill.provider_gateway.keys import KeyUnusable, read_key

_VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]{0,63}\Z")
_HIDDEN = "(not shown)"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyState:
    """Where a key comes from, and what is wrong with it."""

    env: str | None
    file: str | None
    problem: str | None  #: None: the key is there
    remedy: str = ""

    @property
    def place(self) -> str:
        """The key's place in words."""
        return f"variable {self.env}" if self.env is not None else f"file {self.file}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLine:
    """One pool as it is listed."""

    name: str
    provider: str
    model: str
    limits: PoolLimits
    context_tokens: int
    sensitivity: Sensitivity
    key: KeyState | None  #: None: it needs none
    price_known: bool


def pool_lines(config: Config, environment: Mapping[str, str], *, now_ms: int) -> list[PoolLine]:
    """The pools in the order of their file; keys are looked for in `environment` and in files."""
    return [
        PoolLine(
            name=name,
            provider=pool.provider,
            model=pool.model,
            limits=pool.limits,
            context_tokens=pool.context_tokens,
            sensitivity=pool.sensitivity,
            key=None if pool.key is None else key_state(pool.key, environment)[0],
            price_known=tariff_of(pool, config.prices, now_ms=now_ms) is not None,
        )
        for name, pool in config.pools.items()
    ]


def tariff_of(pool: Pool, prices: Prices, *, now_ms: int) -> Tariff | None:
    """What realtime calls of the pool cost now; None: it is not known."""
    price = price_at(prices.periods(pool), now_ms)
    return None if price is None else price.tariff(Lane.REALTIME)


def key_state(source: KeySource, environment: Mapping[str, str]) -> tuple[KeyState, str | None]:
    """The state of a key, by the gateway's own rule, and the key when it is there."""
    if source.env is not None and not _VARIABLE.match(source.env):
        problem = "key.env in pools.yaml is no name of a variable, and not shown, as it may be the key itself"
        remedy = "export the key and write the variable's name there"
        return KeyState(env=_HIDDEN, file=None, problem=problem, remedy=remedy), None
    try:
        return KeyState(env=source.env, file=source.file, problem=None), read_key(source, environment)
    except KeyUnusable as error:
        problem, _, remedy = str(error).partition("; run: ")
    if source.env is not None:
        problem, remedy = problem.partition("; ")[0], f"export {source.env} before nightmill up"
    elif not remedy:
        remedy = f"write the key alone into {source.file}, on one line, and chmod 600 it"
    return KeyState(env=source.env, file=source.file, problem=problem, remedy=remedy), None
