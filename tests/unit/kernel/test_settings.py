"""Settings and config files: what is read, and how each mistake is named by file, line, field, value and remedy."""

import os
from pathlib import Path

import pytest

from nightmill.kernel.domain.pipeline import Sensitivity
from nightmill.kernel.domain.settings import Prices
from nightmill.kernel.resources import resource
from nightmill.kernel.runtime.settings import SettingsError, load_config, load_yaml, read_settings

FILES = {
    "pools.yaml": """\
pools:
  local:
    provider: openai_compatible
    base_url: http://127.0.0.1:1/v1
    model: small
    limits: {slots: 8}
    context_tokens: 2048
""",
    "prices.yaml": """\
version: "1"
models:
  small: {input_usd_per_million: 0.15, output_usd_per_million: 0.6}
""",
    "retry.yaml": """\
classes:
  transient: {base: 1s, cap: 60s}
""",
    "tenants.yaml": """\
tenants:
  acme: {sensitivity: internal}
""",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_a_config_folder_is_read_whole(folder: Path) -> None:
    config = load_config(folder)
    assert config.pools["local"].call_deadline == 120.0
    assert [each.output_usd_per_million for each in config.prices.models["small"]] == [600_000_000]
    assert config.tenants["acme"].sensitivity is Sensitivity.INTERNAL


def test_the_folder_that_is_shipped_can_be_read() -> None:
    config = load_config(resource("deploy", "config"))
    assert all(config.prices.periods(pool) for pool in config.pools.values())


@pytest.mark.parametrize(
    ("file", "before", "after", "message"),
    [
        ("pools.yaml", "model: small", "modle: small", "line 5: unknown field pools.local.modle; remove it or mend"),
        ("pools.yaml", "    model: small\n", "", "line 2: field pools.local.model is missing"),
        ("pools.yaml", "slots: 8", "slots: none", "line 6: pools.local.limits.slots = 'none': Input should be a valid"),
        ("pools.yaml", "slots: 8", "slots: 0", "line 6: pools.local.limits.slots = 0: Input should be greater than 0"),
        ("pools.yaml", "slots: 8", "slot: 8", "line 6: unknown field pools.local.limits.slot"),
        ("pools.yaml", "2048", "2048\n    call_deadline: 2 minutes", "line 8: pools.local.call_deadline = '2 minutes'"),
        (
            "pools.yaml",
            "2048",
            "2048\n    key: {}",
            "line 8: pools.local.key = (not shown): Value error, name either env or",
        ),
        ("pools.yaml", "2048", "2048\n    sensitivity: secret", "line 8: pools.local.sensitivity = 'secret': Input"),
        ("pools.yaml", "pools:", "pool:", "line 1: field pools is missing"),
        ("prices.yaml", "0.15", "free", "line 3: models.small.input_usd_per_million = 'free': Value error, write USD"),
        ("prices.yaml", "0.15", ".inf", "line 3: models.small.input_usd_per_million = inf: Value error, write USD"),
        ("prices.yaml", "0.15", "-1", "line 3: models.small.input_usd_per_million = -1: Input should be greater"),
        ("prices.yaml", 'version: "1"', "version: 1", "line 1: version = 1: Input should be a valid string"),
        ("retry.yaml", "transient", "tranzient", "line 2: classes.tranzient.[key] = 'tranzient': Input should be"),
        ("retry.yaml", "1s", "1 second", "line 2: classes.transient.base = '1 second': Value error, '1 second' is no"),
        ("tenants.yaml", "internal", "[internal]", "line 2: tenants.acme.sensitivity = ['internal']: Input should be"),
    ],
)
def test_a_bad_field_is_named_by_file_line_value_and_remedy(
    folder: Path, file: str, before: str, after: str, message: str
) -> None:
    path = folder / file
    assert FILES[file].count(before) >= 1
    path.write_text(FILES[file].replace(before, after, 1), encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        load_config(folder)
    assert f"{path}, {message}" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", ": expected fields with values, found nothing"),
        (b"# only a comment\n", ": expected fields with values, found nothing"),
        (b"- a\n- b\n", ": expected fields with values, found a list"),
        (b"text", ": expected fields with values, found a text"),
        (b"a: [1\nb: 2\n", ", line 2: not YAML: expected ',' or ']'"),
        (b"a: 1\n\tb: 2\n", ", line 2: not YAML: found character '\\t' that cannot start any token"),
        (b"pools: {}\npools: {}\n", ", line 2: field pools stands twice; remove one"),
        (b"pools:\n  a: {}\n  b: {}\n  a: {}\n", ", line 4: field a stands twice; remove one"),
        (b"pools: !!python/object/apply:os.system [x]\n", ", line 1: not YAML: could not determine a constructor"),
        (b"pools: \xff\n", ": not UTF-8 at byte 7; save it as UTF-8"),
        (b"pools: {}\n---\npools: {}\n", ", line 2: not YAML: but found another document"),
        (b"a: \x00\n", ": not YAML: special characters are not allowed"),
    ],
)
def test_a_file_that_is_no_config_is_named_with_the_reason(folder: Path, content: bytes, message: str) -> None:
    path = folder / "pools.yaml"
    path.write_bytes(content)
    with pytest.raises(SettingsError) as caught:
        load_config(folder)
    assert str(caught.value).startswith(f"{path}{message}")


@pytest.mark.parametrize("name", ["", "nothing", "prices.yaml"])
def test_a_folder_that_is_no_config_is_named_with_the_remedy(folder: Path, name: str) -> None:
    """O1"""
    (folder / "pools.yaml").unlink()
    with pytest.raises(SettingsError) as caught:
        load_config(folder / name)
    assert str(caught.value).startswith(f"{folder / name}: no folder with pools.yaml")
    assert f"cp -r {resource('deploy', 'config')} my-config" in str(caught.value)


def test_a_byte_order_mark_is_accepted(folder: Path) -> None:
    path = folder / "tenants.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert load_config(folder).tenants


def test_a_missing_file_or_a_folder_in_its_place_is_named(folder: Path) -> None:
    path = folder / "retry.yaml"
    path.unlink()
    with pytest.raises(SettingsError, match=r"retry\.yaml: no such file"):
        load_config(folder)
    path.mkdir()
    with pytest.raises(SettingsError, match=r"retry\.yaml: is a folder, expected a file"):
        load_config(folder)


def test_all_problems_of_a_file_are_told_at_once(folder: Path) -> None:
    path = folder / "pools.yaml"
    path.write_text(FILES["pools.yaml"].replace("slots: 8", "slots: 0").replace("2048", "many"), encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        load_config(folder)
    assert [line.split(": ")[0] for line in str(caught.value).splitlines()] == [f"{path}, line 6", f"{path}, line 7"]


def test_a_key_is_never_told(folder: Path) -> None:
    """A key that somebody wrote into the file does not go on into the error."""
    path = folder / "pools.yaml"
    path.write_text(FILES["pools.yaml"] + "    key: sk-very-secret\n", encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        load_config(folder)
    assert "line 8: pools.local.key" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_settings_without_variables_are_those_of_a_laptop(tmp_path: Path) -> None:
    settings = read_settings({"NIGHTMILL_HOME": str(tmp_path)})
    assert (settings.home, settings.bootstrap, settings.namespace, settings.partitions) == (
        tmp_path,
        "127.0.0.1:9092",
        "nightmill",
        2,
    )
    assert settings.config_dir == resource("deploy", "config").absolute()
    assert settings.blobs_url == str(tmp_path / "blobs")
    assert (settings.clickhouse_url, settings.metrics_port) == (None, None)
    places = {settings.state_dir, settings.outbox_dir, settings.ledger_dir, settings.results_dir, settings.run_dir}
    assert len({*places, settings.token_file}) == 6
    assert all(place.parent == tmp_path for place in places)


def test_settings_are_read_from_their_variables(tmp_path: Path) -> None:
    settings = read_settings(
        {
            "NIGHTMILL_HOME": str(tmp_path),
            "NIGHTMILL_KAFKA": "broker:9093",
            "NIGHTMILL_NAMESPACE": "team-a",
            "NIGHTMILL_PARTITIONS": "12",
            "NIGHTMILL_CONFIG": str(tmp_path / "config"),
            "NIGHTMILL_INSTANCE": "3",
            "NIGHTMILL_BLOBS": "s3://bucket/blobs",
            "NIGHTMILL_CLICKHOUSE": "http://ch:8123",
            "NIGHTMILL_METRICS_PORT": "9100",
            "OPENAI_API_KEY": "k",
        }
    )
    assert (settings.bootstrap, settings.namespace, settings.partitions) == ("broker:9093", "team-a", 12)
    assert (settings.config_dir, settings.instance) == (tmp_path / "config", "3")
    assert (settings.blobs_url, settings.clickhouse_url) == ("s3://bucket/blobs", "http://ch:8123")
    assert settings.metrics_port == 9100
    assert settings.environment["OPENAI_API_KEY"] == "k"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("NIGHTMILL_NAMESPACE", "Team A", "NIGHTMILL_NAMESPACE 'Team A': use at most 41 of a-z, 0-9 and '-'"),
        ("NIGHTMILL_NAMESPACE", "a.b", "NIGHTMILL_NAMESPACE 'a.b': use"),
        ("NIGHTMILL_NAMESPACE", "", "NIGHTMILL_NAMESPACE '': use"),
        ("NIGHTMILL_NAMESPACE", "a" * 42, "NIGHTMILL_NAMESPACE"),
        ("NIGHTMILL_NAMESPACE", "a\n", "NIGHTMILL_NAMESPACE"),
        ("NIGHTMILL_PARTITIONS", "two", "NIGHTMILL_PARTITIONS = 'two': expected a whole number"),
        ("NIGHTMILL_PARTITIONS", "0", "NIGHTMILL_PARTITIONS = '0': expected a whole number from 1"),
        ("NIGHTMILL_PARTITIONS", "-2", "NIGHTMILL_PARTITIONS = '-2': expected a whole number"),
        (
            "NIGHTMILL_METRICS_PORT",
            "70000",
            "NIGHTMILL_METRICS_PORT = '70000': expected a whole number from 1 to 65535",
        ),
        ("NIGHTMILL_METRICS_PORT", "²", "NIGHTMILL_METRICS_PORT = '²': expected a whole number"),
    ],
)
def test_a_bad_variable_is_named(tmp_path: Path, name: str, value: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings({"NIGHTMILL_HOME": str(tmp_path), name: value})
    assert str(caught.value).startswith(message)


def test_a_file_that_may_not_be_read_is_named(folder: Path) -> None:
    path = folder / "loop.yaml"
    os.symlink(path, path)
    from nightmill.kernel.domain.settings import Retry

    with pytest.raises(SettingsError, match=r"loop\.yaml: can not be read: "):
        load_yaml(path, Retry)


def test_an_alias_that_holds_itself_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text("x: &a [*a]\n")
    with pytest.raises(SettingsError, match="an alias refers to what holds it"):
        load_yaml(path, Prices)
