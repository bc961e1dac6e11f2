"""List prices of providers: `deploy/prices/genai-prices.json`, which travels with the code. Never from the network.

The file is written by `price_list_update` from the package genai-prices, which is not needed to run: it would bring an
HTTP client, a second or more and a hundred megabytes into every process that asks for a price. Whose list a pool's
model is looked up in is decided by the pool's address; adapters of one provider (`openai`, `anthropic`) also find it
behind another address, for example a proxy's, but not at that provider's other hosts, whose prices may differ.
"""

import json
import re
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from nightmill.kernel.domain.prices import day_ms
from nightmill.kernel.domain.pricing import Level, Period, Price, Rates, Tariff
from nightmill.kernel.domain.settings import Pool
from nightmill.kernel.resources import resource

#: atto-USD per token, of one USD per million tokens
_ATTO = 10**12


@dataclass(frozen=True, slots=True)
class PriceList:
    """The file, read."""

    source: str  #: package and version
    _providers: dict[str, Any]

    def periods(self, pool: Pool) -> tuple[Period, ...]:
        """Prices of the pool's model, newest last; none where no list has it."""
        provider = self._provider(pool)
        model = pool.model.lower()
        entries = () if provider is None else self._providers[provider]["models"]
        found = next((entry for entry in entries if matches(entry["match"], model)), None)
        return () if found is None else periods_of(found["periods"])

    def _provider(self, pool: Pool) -> str | None:
        try:
            address = urlsplit(pool.base_url)
        except ValueError:
            return None  # no address: whoever calls the pool says so
        host = address.hostname or ""
        for name, provider in self._providers.items():
            if re.fullmatch(provider["url"], f"{address.scheme}://{host}"):
                return name
        if pool.provider not in self._providers or host.endswith(f".{pool.provider}.com"):
            return None
        return pool.provider


@lru_cache(maxsize=1)
def price_list() -> PriceList:
    """The list that is shipped."""
    return read_list(price_list_file())


def price_list_file() -> Path:
    return resource("deploy", "prices", "genai-prices.json")


def read_list(path: Path) -> PriceList:
    document = json.loads(path.read_text(encoding="utf-8"))
    return PriceList(document["source"], document["providers"])


def matches(clause: dict[str, Any], model: str) -> bool:
    """Whether a model's name, in lower case, is meant, by the rules of genai-prices."""
    ((kind, value),) = clause.items()
    match kind:
        case "or":
            return any(matches(each, model) for each in value)
        case "and":
            return all(matches(each, model) for each in value)
        case "equals":
            return bool(model == value.lower())
        case "starts_with":
            return model.startswith(value.lower())
        case "ends_with":
            return model.endswith(value.lower())
        case "contains":
            return value.lower() in model
        case "regex":
            return re.search(value, model) is not None
    raise ValueError(f"clause {kind!r} of a price list is not known")


def periods_of(entries: list[dict[str, Any]]) -> tuple[Period, ...]:
    """Periods in the order of the file; each ends where the next begins."""
    begins = [0 if entry["from"] is None else day_ms(date.fromisoformat(entry["from"])) for entry in entries]
    ends = [*begins[1:], None]
    return tuple(
        Period(
            from_ms=begin,
            until_ms=end,
            price=Price(tariffs={kind: _tariff(written) for kind, written in entry["prices"].items()}),
        )
        for entry, begin, end in zip(entries, begins, ends, strict=True)
    )


def _tariff(written: dict[str, Any]) -> Tariff:
    levels = (
        Level(above_input_tokens=int(above), rates=_rates(rates)) for above, rates in written.get("above", {}).items()
    )
    return Tariff(base=_rates(written), levels=tuple(levels))


def _rates(written: dict[str, str]) -> Rates:
    fresh = written["input"]
    write = written.get("cache_write", fresh)
    return Rates(
        input=_atto(fresh),
        cached=_atto(written.get("cached", fresh)),
        cache_write=_atto(write),
        cache_write_1h=_atto(written.get("cache_write_1h", write)),
        output=_atto(written["output"]),
    )


def _atto(usd_per_million: str) -> int:
    return int(Decimal(usd_per_million) * _ATTO)
