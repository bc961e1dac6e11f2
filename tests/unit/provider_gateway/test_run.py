"""How the gateway is assembled: what a pool needs, and what is said when it lacks it."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from nightmill.kernel.domain.settings import EmbeddingLimits, KeySource, LocalServers, Pool, Prices
from nightmill.kernel.runtime.settings import Settings, SettingsError
from nightmill.provider_gateway.pools import PoolAccess
from nightmill.provider_gateway.run import access_of, build
from unit.provider_gateway.makers import PRICE, make_pool

PRICES = Prices(version="v7", models={"small": (PRICE,)})


def make_settings(
    folder: Path, environment: Mapping[str, str] | None = None, local: LocalServers | None = None
) -> Settings:
    return Settings(
        home=folder,
        bootstrap="127.0.0.1:1",
        config_dir=folder / "config",
        blobs_url=str(folder / "blobs"),
        local_servers=local or LocalServers(),
        environment=environment or {},
    )


def access(folder: Path, pool: Pool, **settings: object) -> tuple[PoolAccess, str | None]:
    return access_of("p", pool, PRICES, make_settings(folder, **settings))  # type: ignore[arg-type]


def test_a_pool_with_its_price_and_key(tmp_path: Path) -> None:
    pool = make_pool("https://host/v1", key=KeySource(env="K"))
    made, key = access(tmp_path, pool, environment={"K": "sk-1"})
    assert (made.base_url, made.periods, made.price_version, made.unusable, key) == (
        "https://host/v1",
        (PRICE.period(),),
        "v7",
        None,
        "sk-1",
    )


def test_the_local_model_is_where_the_settings_say(tmp_path: Path) -> None:
    servers = LocalServers(model_url="http://127.0.0.1:8123/v1", embeddings_url="http://127.0.0.1:8124/v1")
    made, _ = access(tmp_path, make_pool("local-model"), local=servers)
    assert (made.base_url, made.unusable) == ("http://127.0.0.1:8123/v1", None)
    vectors, _ = access(tmp_path, make_pool("local-model", embeddings=EmbeddingLimits()), local=servers)
    assert (vectors.base_url, vectors.unusable) == ("http://127.0.0.1:8124/v1", None)


@pytest.mark.parametrize(
    ("pool", "words"),
    [
        (make_pool("local-model"), "nightmill up"),
        (make_pool("local-model", embeddings=EmbeddingLimits()), "NIGHTMILL_EMBEDDINGS_URL"),
        (make_pool("https://host/v1", key=KeySource(env="K")), "environment variable K is not set"),
        (make_pool("https://host/v1", key=KeySource(file="/no/such/key")), "can not be read"),
        (make_pool("ftp://host"), "no http or https address"),
        (make_pool("http://host:99999/v1"), "base_url is no address; mend it in pools.yaml"),
        (make_pool(f"https://{'a' * 64}.example/v1"), "base_url names no host"),
    ],
    ids=["local", "local embeddings", "variable", "file", "address", "port", "host"],
)
def test_an_unusable_pool_says_why(tmp_path: Path, pool: Pool, words: str) -> None:
    """One pool without its key does not keep the others from working."""
    made, key = access(tmp_path, pool)
    assert words in (made.unusable or "")
    assert key is None


def test_a_model_that_is_not_listed_has_no_price(tmp_path: Path) -> None:
    """P4: no price is not price 0."""
    made, _ = access(tmp_path, make_pool(model="other"))
    assert made.periods == ()


def test_an_unknown_provider_is_refused_at_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"pool p, provider: 'mistral' is not known; use one of: anthropic, "):
        access(tmp_path, make_pool(provider="mistral"))


def test_build_from_a_config_folder(tmp_path: Path) -> None:
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "pools.yaml").write_text(
        "pools: {p: {provider: openai_compatible, base_url: 'http://h/v1', model: m, "
        "limits: {slots: 1}, context_tokens: 10}}"
    )
    (folder / "prices.yaml").write_text("version: a\nmodels: {}")
    (folder / "retry.yaml").write_text("classes: {}")
    (folder / "tenants.yaml").write_text("tenants: {}")
    service = build(make_settings(tmp_path))
    assert service.name == "provider_gateway"
    assert not service.busy()
    service.close()
