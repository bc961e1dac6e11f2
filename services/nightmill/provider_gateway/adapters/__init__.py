"""Adapters by the provider's name in pools.yaml: a new one is a file here, its tests, and the simulator's side."""

from nightmill.provider_gateway.adapters.anthropic import Anthropic
from nightmill.provider_gateway.adapters.anthropic_batches import AnthropicBatches
from nightmill.provider_gateway.adapters.openai import OpenAi
from nightmill.provider_gateway.adapters.openai_batches import OpenAiBatches
from nightmill.provider_gateway.adapters.openai_compatible import OpenAiCompatible
from nightmill.provider_gateway.bulk.dialect import BulkDialect
from nightmill.provider_gateway.exchange import Adapter, Embedder

ADAPTERS: dict[str, Adapter] = {
    "anthropic": Anthropic(),
    "openai": OpenAi(),
    "openai_compatible": OpenAiCompatible(),
}

#: providers of embeddings by the same names
EMBEDDERS: dict[str, Embedder] = {
    "openai": OpenAi(),
    "openai_compatible": OpenAiCompatible(),
}

#: Batch APIs by the same names; a provider that is not here has none that we speak
DIALECTS: dict[str, BulkDialect] = {
    "anthropic": AnthropicBatches(),
    "openai": OpenAiBatches(),
    "openai_compatible": OpenAiBatches(),
}


class UnknownProvider(ValueError):
    """pools.yaml names a provider that no adapter speaks to."""


def adapter_of(pool: str, provider: str) -> Adapter:
    """The adapter of a pool. Raises `UnknownProvider` with place, value and remedy."""
    adapter = ADAPTERS.get(provider)
    if adapter is None:
        known = ", ".join(sorted(ADAPTERS))
        raise UnknownProvider(f"pools.yaml, pool {pool}, provider: {provider!r} is not known; use one of: {known}")
    return adapter
