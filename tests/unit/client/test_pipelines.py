"""Pipelines from files, and the errors that name file, line, field, value and remedy."""

from pathlib import Path

import pytest

from nightmill.client.errors import BadInput
from nightmill.client.pipelines import load_pipeline, shipped_pipelines

YAML = """\
name: label
input: {id: id, fields: [text]}
prompt: prompt.md
output: output.schema.json
model:
  pools: [sim]
  max_output_tokens: 10
"""
PROMPT = "system:\nLabel it.\nuser:\n{{ text }}\n"
SCHEMA = '{"type": "object"}'


def folder(tmp_path: Path, yaml: str = YAML, prompt: str = PROMPT, schema: str = SCHEMA) -> Path:
    (tmp_path / "pipeline.yaml").write_text(yaml)
    (tmp_path / "prompt.md").write_text(prompt)
    (tmp_path / "output.schema.json").write_text(schema)
    return tmp_path


def refused(path: Path | str) -> str:
    with pytest.raises(BadInput) as caught:
        load_pipeline(path)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_a_folder(tmp_path: Path) -> None:
    """P2: prompt and schema are resolved to text and object."""
    loaded = load_pipeline(folder(tmp_path))
    assert (loaded.prompt, loaded.output) == (PROMPT, {"type": "object"})
    assert load_pipeline(str(tmp_path / "pipeline.yaml")) == loaded


def test_inline_prompt_and_schema(tmp_path: Path) -> None:
    inline = YAML.replace("prompt.md", "'Say it: {{ text }}'").replace("output.schema.json", "{type: string}")
    loaded = load_pipeline(folder(tmp_path, inline))
    assert (loaded.prompt, loaded.output) == ("Say it: {{ text }}", {"type": "string"})


def test_what_ships_with_nightmill_loads() -> None:
    assert {"licence-audit", "embed-documents"} <= set(shipped_pipelines())
    for name in shipped_pipelines():
        assert load_pipeline(name).name == name


@pytest.mark.parametrize(
    ("yaml", "says"),
    [
        (YAML + "colour: red\n", ["pipeline.yaml, line 8", "unknown field colour"]),
        (YAML.replace("  pools", "  polls"), ["pipeline.yaml, line 6", "unknown field model.polls"]),
        (YAML.replace("max_output_tokens: 10", "max_output_tokens: many"), ["line 7", "'many'"]),
        (YAML.replace("name: label", "name: No Name"), ["'No Name'", "a-z"]),
        (YAML.replace("prompt: prompt.md", "prompt: promtp.md"), ["'promtp.md'", "no such file"]),
        (YAML.replace("output.schema.json", "missing.json"), ["missing.json", "no such file"]),
        (YAML.replace("name: label\n", ""), ["field name is missing"]),
        (YAML.replace("[sim]", "[sim"), ["pipeline.yaml, line", "not YAML"]),
        ("- a\n- b\n", ["expected fields"]),
    ],
)
def test_a_bad_pipeline_file(tmp_path: Path, yaml: str, says: list[str]) -> None:
    text = refused(folder(tmp_path, yaml))
    assert all(each in text for each in says), text


def test_a_bad_schema_file(tmp_path: Path) -> None:
    text = refused(folder(tmp_path, schema='{\n "type": object}'))
    assert "output.schema.json, line 2: not JSON" in text


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        ("user:\nfirst\n{{ txet }}\n", ["prompt.md, line 3", "'txet'", "input.fields has text"]),
        ("user:\n{% if %}\n", ["prompt.md", "line 2"]),
    ],
)
def test_a_bad_template(tmp_path: Path, prompt: str, says: list[str]) -> None:
    text = refused(folder(tmp_path, prompt=prompt))
    assert all(each in text for each in says), text


def test_a_prompt_that_is_not_utf8(tmp_path: Path) -> None:
    folder(tmp_path)
    (tmp_path / "prompt.md").write_bytes(b"caf\xe9 {{ text }}")
    assert "prompt.md: not UTF-8 at byte 3; save it as UTF-8" in refused(tmp_path)


def test_no_such_pipeline(tmp_path: Path) -> None:
    assert "licence-audit" in refused("licence-adit")
    assert "no pipeline.yaml in this folder" in refused(tmp_path)
    assert "the name is empty" in refused("")
