"""Which sampling parameters a pool's API takes, and what keeps a pipeline that needs another from it. Pure.

A parameter that a version removed is refused with every call, so a job that needs it is refused before it starts, with
the rule's name. A temperature of 0 says "as little chance as there can be" and needs nothing: where the parameter is
not taken it is left out. Sources: Anthropic, "Versions" and the migration guide of 2026-10-21; OpenAI, "Migrate to the
Responses API"; both read 2026-11-29.
"""

from typing import Any, NamedTuple

from nightmill.kernel.domain.pipeline import Embedding, ModelPolicy
from nightmill.kernel.domain.settings import ANTHROPIC_VERSION, Pool

#: a temperature above this is refused by Anthropic
_WARMEST = 1.0
#: the Responses API takes no smaller limit
_LEAST_RESPONSE_TOKENS = 16


class Unfit(NamedTuple):
    """Why a pipeline's model settings can not be used with a pool."""

    rule: str
    message: str


def anthropic_version(pool: Pool) -> str:
    """The `anthropic-version` that a pool's calls are pinned to."""
    return pool.anthropic_version or ANTHROPIC_VERSION


def untaken(pool: Pool) -> dict[str, Unfit]:
    """Sampling parameters that calls to the pool may not hold, each with the rule."""
    found: dict[str, Unfit] = {}
    if pool.provider == "anthropic":
        found["seed"] = Unfit("parameter_unknown", "Anthropic's Messages API has no such parameter")
        if anthropic_version(pool) >= "2026-10-21":
            version = anthropic_version(pool)
            found["temperature"] = Unfit("parameter_removed", f"anthropic-version {version} has removed it")
    elif pool.api == "responses":
        found["seed"] = Unfit("parameter_unknown", "OpenAI's Responses API has no such parameter")
    for name in pool.refuses:
        found[name] = Unfit("parameter_not_taken", "pools.yaml says that the model refuses it")
    return found


def sampling(model: ModelPolicy, pool: Pool) -> dict[str, Any]:
    """The sampling parameters of a call, without those that the pool does not take."""
    wanted: dict[str, Any] = {"temperature": model.temperature}
    if model.seed is not None:
        wanted["seed"] = model.seed
    refused = untaken(pool)
    return {name: value for name, value in wanted.items() if name not in refused}


def unfit_kind(embedding: Embedding | None, pool: Pool) -> Unfit | None:
    """Why a pool's model can not do a pipeline's kind of work; None when it can."""
    if embedding is None:
        if pool.embeddings is None:
            return None
        return Unfit(
            "embeddings_only",
            f"its model {pool.model!r} makes vectors and no answers (embeddings in pools.yaml); name another pool",
        )
    if pool.embeddings is None:
        why = (
            "Anthropic has no embeddings API; name a pool of another provider"
            if pool.provider == "anthropic"
            else "it makes no vectors; if its model does, add embeddings: {} in pools.yaml, else name another pool"
        )
        return Unfit("no_embeddings", f"embedding: {why}")
    if embedding.shorten and "dimensions" in pool.refuses:
        return Unfit(
            "parameter_not_taken",
            "embedding.shorten: pools.yaml says that the model refuses dimensions; take it out of pipeline.yaml and "
            "state the model's own number, or name another pool",
        )
    return None


def unfit(model: ModelPolicy, pool: Pool) -> Unfit | None:
    """The first setting that a pool's API would refuse with every call; None when all of them may be sent."""
    refused = untaken(pool)
    needed = {"temperature": model.temperature or None, "seed": model.seed}
    for name, value in needed.items():
        if value is not None and name in refused:
            rule, why = refused[name]
            return Unfit(rule, f"model.{name}: {value}: {why}; take it out of pipeline.yaml, or name another pool")
    if pool.provider == "anthropic" and model.temperature > _WARMEST:
        return Unfit(
            "parameter_out_of_range",
            f"model.temperature: {model.temperature}: Anthropic takes {_WARMEST:g} at most; lower it in pipeline.yaml",
        )
    if pool.api == "responses" and model.max_output_tokens < _LEAST_RESPONSE_TOKENS:
        return Unfit(
            "parameter_out_of_range",
            f"model.max_output_tokens: {model.max_output_tokens}: OpenAI's Responses API takes "
            f"{_LEAST_RESPONSE_TOKENS} at least; raise it in pipeline.yaml",
        )
    return None
