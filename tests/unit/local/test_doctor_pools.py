"""What the doctor says of pools: keys and addresses (P6)."""

from pathlib import Path

from nightmill.kernel.domain.settings import KeySource, Pool, PoolLimits
from nightmill.local import doctor


def test_the_doctor_lists_pools_without_a_key(tmp_path: Path) -> None:
    """P6: named with place and remedy; it stops nothing, for other pools work."""
    limits = PoolLimits(slots=1)
    base = Pool(provider="openai_compatible", base_url="http://127.0.0.1:1", model="m", limits=limits, context_tokens=9)
    pools = {
        "open": base,
        "lacking": base.model_copy(update={"key": KeySource(env="LACKING_KEY")}),
        "keyed": base.model_copy(update={"key": KeySource(env="GOOD_KEY")}),
        "filed": base.model_copy(update={"key": KeySource(file=str(tmp_path / "key"))}),
    }
    lacking, keyed, filed = doctor.check_keys(pools, {"GOOD_KEY": "sk-1"})
    assert (lacking.ok, keyed.ok, filed.ok) == (False, True, False)
    assert lacking.detail == "environment variable LACKING_KEY is not set"
    assert lacking.remedy == "export LACKING_KEY before up, to use it"
    assert str(tmp_path / "key") in filed.remedy
    assert doctor.fatal_checks([lacking, keyed, filed]) == []


def test_the_doctor_lists_pools_that_nobody_can_call() -> None:
    """P6: without the address, which may hold a key; it stops nothing, for other pools work."""
    limits = PoolLimits(slots=1)
    good = Pool(provider="openai_compatible", base_url="http://127.0.0.1:1", model="m", limits=limits, context_tokens=9)
    urls = {"local": "local-model", "wrong": "http://127.0.0.1:99999/v1", "login": "https://u:sk-1@host/v1"}
    pools = {name: good.model_copy(update={"base_url": url}) for name, url in urls.items()} | {"good": good}
    wrong, login = doctor.check_addresses(pools)
    assert (wrong.name, wrong.detail, wrong.ok) == ("pool wrong", "base_url is no address", False)
    assert login.line() == "note    pool login: base_url holds a login, a query or a fragment → " + login.remedy
    assert doctor.fatal_checks([wrong, login]) == []
