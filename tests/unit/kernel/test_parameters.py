"""Parameters that a pool's API does not take: left out where nothing is lost, refused where something is."""

from typing import Any

import pytest
from pydantic import ValidationError

from nightmill.kernel.domain.parameters import anthropic_version, sampling, unfit, unfit_kind
from nightmill.kernel.domain.pipeline import Embedding, ModelPolicy
from nightmill.kernel.domain.settings import EmbeddingLimits, Pool, PoolLimits


def pool(provider: str = "openai", **fields: Any) -> Pool:
    base: dict[str, Any] = {"base_url": "https://host/v1", "model": "m", "limits": PoolLimits(slots=1)}
    return Pool(provider=provider, context_tokens=1000, **base, **fields)


def policy(**fields: Any) -> ModelPolicy:
    return ModelPolicy(pools=("p",), **{"max_output_tokens": 64, **fields})


OPENAI, RESPONSES = pool(), pool(api="responses")
NEW, OLD = pool("anthropic"), pool("anthropic", anthropic_version="2023-06-01")
REASONING = pool(refuses=("temperature",))


@pytest.mark.parametrize(
    ("asked", "of", "sent"),
    [
        (policy(seed=3), OPENAI, {"temperature": 0, "seed": 3}),
        (policy(temperature=0.7), OPENAI, {"temperature": 0.7}),
        (policy(), RESPONSES, {"temperature": 0}),
        (policy(), NEW, {}),
        (policy(temperature=0.5), OLD, {"temperature": 0.5}),
        (policy(), REASONING, {}),
        (policy(seed=3), pool("openai_compatible"), {"temperature": 0, "seed": 3}),
    ],
)
def test_what_is_sent(asked: ModelPolicy, of: Pool, sent: dict[str, Any]) -> None:
    assert unfit(asked, of) is None
    assert sampling(asked, of) == sent


@pytest.mark.parametrize(
    ("asked", "of", "rule", "words"),
    [
        (policy(temperature=0.7), NEW, "parameter_removed", "anthropic-version 2026-10-21 has removed it"),
        (policy(seed=3), NEW, "parameter_unknown", "model.seed: 3"),
        (policy(seed=3), OLD, "parameter_unknown", "Messages API"),
        (policy(temperature=1.5), OLD, "parameter_out_of_range", "Anthropic takes 1 at most"),
        (policy(seed=0), RESPONSES, "parameter_unknown", "Responses API"),
        (policy(max_output_tokens=8), RESPONSES, "parameter_out_of_range", "16 at least"),
        (policy(temperature=1), REASONING, "parameter_not_taken", "pools.yaml"),
    ],
)
def test_what_keeps_a_job_from_starting(asked: ModelPolicy, of: Pool, rule: str, words: str) -> None:
    """E8: refused once, before anything is spent, and not with every call."""
    found = unfit(asked, of)
    assert found is not None
    assert found.rule == rule
    assert words in found.message


VECTORS = pool(embeddings=EmbeddingLimits())
PLAIN, SHORT = Embedding(dimensions=8), Embedding(dimensions=8, shorten=True)


@pytest.mark.parametrize(
    ("asked", "of", "rule", "words"),
    [
        (PLAIN, NEW, "no_embeddings", "Anthropic has no embeddings API"),
        (PLAIN, OPENAI, "no_embeddings", "add embeddings: {} in pools.yaml"),
        (None, VECTORS, "embeddings_only", "makes vectors and no answers"),
        (
            SHORT,
            pool(embeddings=EmbeddingLimits(), refuses=("dimensions",)),
            "parameter_not_taken",
            "embedding.shorten",
        ),
    ],
)
def test_a_model_does_one_kind_of_work(asked: Embedding | None, of: Pool, rule: str, words: str) -> None:
    """E7, P4: vectors or answers, and what a model does not do is told before anything is spent."""
    found = unfit_kind(asked, of)
    assert found is not None
    assert found.rule == rule
    assert words in found.message


@pytest.mark.parametrize(("asked", "of"), [(None, OPENAI), (PLAIN, VECTORS), (SHORT, VECTORS)])
def test_work_that_a_model_does(asked: Embedding | None, of: Pool) -> None:
    assert unfit_kind(asked, of) is None


def test_the_version_is_pinned() -> None:
    assert (anthropic_version(NEW), anthropic_version(OLD)) == ("2026-10-21", "2023-06-01")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"provider": "anthropic", "api": "chat"}, "api is a setting of provider openai, not of anthropic"),
        ({"provider": "openai", "anthropic_version": "2023-06-01"}, "is a setting of provider anthropic"),
        ({"provider": "anthropic", "anthropic_version": "2024-01-01"}, "2026-10-21"),
        ({"provider": "openai", "api": "completions"}, "responses"),
        ({"provider": "openai", "refuses": ["top_k"]}, "temperature"),
        ({"provider": "anthropic", "embeddings": EmbeddingLimits()}, "provider anthropic makes none"),
        ({"provider": "openai", "api": "responses", "embeddings": EmbeddingLimits()}, "the Responses API makes none"),
    ],
)
def test_settings_that_a_provider_does_not_have_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        pool(**fields)
