"""Scenario files: good ones are read, bad ones are refused with file, field and value."""

from __future__ import annotations

from pathlib import Path

import pytest

from nightmill.provider_simulator.call_faults import RateLimited
from nightmill.provider_simulator.operations import Operation
from nightmill.provider_simulator.run import load_scenario
from nightmill.provider_simulator.scenario import ScenarioError, parse_scenario


def test_yaml_and_json_mean_the_same(tmp_path: Path) -> None:
    yaml_file = tmp_path / "a.yaml"
    yaml_file.write_text("seed: 3\nfaults:\n  - {kind: rate_limited, rate: 0.5, retry_after: http_date}\n")
    json_file = tmp_path / "a.json"
    json_file.write_text('{"seed": 3, "faults": [{"kind": "rate_limited", "rate": 0.5, "retry_after": "http_date"}]}')
    assert load_scenario(yaml_file) == load_scenario(json_file)
    assert isinstance(load_scenario(yaml_file).faults[0], RateLimited)


def test_on_is_a_field_in_yaml_too(tmp_path: Path) -> None:
    """YAML 1.1 would read `on` as true."""
    file = tmp_path / "a.yaml"
    file.write_text("strict: false\nfaults:\n  - {kind: server_error, on: [batch_create], billed: true}\n")
    scenario = load_scenario(file)
    assert not scenario.strict
    assert scenario.faults[0].operations == {Operation.BATCH_CREATE}


def test_no_file_and_an_empty_file_are_a_provider_without_faults(tmp_path: Path) -> None:
    empty = tmp_path / "empty.yaml"
    empty.write_text("")
    assert load_scenario(None) == load_scenario(empty)
    assert load_scenario(None).faults == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("faults: [{kind: rate_limited, rate: 1.5}]", "faults[0].rate: 1.5: "),
        ("faults: [{kind: rate_limited, rate: .nan}]", "faults[0].rate: nan: "),
        ("faults: [{kind: earthquake}]", "faults[0]: {'kind': 'earthquake'}: Input tag 'earthquake'"),
        ("faults: [{kind: slow}]", "faults[0].delay_ms: "),
        ("faults: [{kind: hang, fro_ms: 3}]", "faults[0].fro_ms: 3: Extra inputs are not permitted"),
        ("answers: [{regex: '('}]", "answers[0].regex: '(': "),
        ("answers: [{expand: true, content: x}]", "expand needs `regex`"),
        ("latency: {fixed_ms: -1}", "latency.fixed_ms: -1: "),
        ("speed: 3", "speed: 3: "),
        ("[1, 2]", "(top): [1, 2]: "),
        ("{", "is neither YAML nor JSON"),
    ],
)
def test_bad_scenario_names_file_field_and_value(tmp_path: Path, text: str, said: str) -> None:
    """O2"""
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(ScenarioError) as refusal:
        load_scenario(file)
    assert str(refusal.value).startswith(f"{file}: ")
    assert said in str(refusal.value)


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"absent\.yaml: cannot be read"):
        load_scenario(tmp_path / "absent.yaml")
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"seed: 1 # \xe9")
    with pytest.raises(ScenarioError, match=r"latin\.yaml: is not UTF-8 at byte 10"):
        load_scenario(latin)


def test_every_error_gets_a_line() -> None:
    with pytest.raises(ScenarioError) as refusal:
        parse_scenario({"seed": "x", "models": 3}, where="here")
    assert len(str(refusal.value).splitlines()) == 2
