"""Pipelines from files: a folder with `pipeline.yaml`, or the name of one that ships with nightmill.

`prompt` and `output` are the name of a file in that folder, or the thing itself.
"""

import json
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

from nightmill.client.errors import BadInput
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.prompt import PromptError, parse_prompt
from nightmill.kernel.resources import resource
from nightmill.kernel.runtime.settings import SettingsError, load_yaml, read_text, validated

_FILE = "pipeline.yaml"
_PROMPT_ENDINGS = (".md", ".txt", ".j2", ".jinja")


class _Fields(BaseModel):
    """Any fields: they are checked once prompt and output are resolved."""

    model_config = ConfigDict(extra="allow")


def load_pipeline(name_or_folder: str | Path) -> Pipeline:
    """A pipeline ready to be submitted. Raises `BadInput` that names file, line, field, value and remedy."""
    try:
        return _load(_folder(name_or_folder))
    except SettingsError as error:
        raise BadInput(str(error)) from error


def shipped_pipelines() -> list[str]:
    """Names of the pipelines that ship with nightmill."""
    return sorted(file.parent.name for file in resource("deploy", "pipelines").glob(f"*/{_FILE}"))


def _folder(name_or_folder: str | Path) -> Path:
    if name_or_folder == "":
        raise BadInput(
            "pipeline: the name is empty", f"name a folder with a {_FILE}, or one of {', '.join(shipped_pipelines())}"
        )
    given = Path(name_or_folder).expanduser()
    if given.name == _FILE and given.is_file():
        return given.parent
    if (given / _FILE).is_file():
        return given
    shipped = shipped_pipelines()
    if str(name_or_folder) in shipped:
        return resource("deploy", "pipelines", str(name_or_folder))
    if given.is_dir():
        raise BadInput(f"{given}: no {_FILE} in this folder", "name the folder of a pipeline")
    remedy = f"name a folder with a {_FILE}, or one of {', '.join(shipped)}"
    raise BadInput(f"no pipeline {str(name_or_folder)!r}", remedy)


def _load(folder: Path) -> Pipeline:
    path = folder / _FILE
    fields: dict[str, Any] = dict(load_yaml(path, _Fields).model_extra or {})
    node = yaml.compose(read_text(path), Loader=yaml.SafeLoader)
    prompt_file = _named_file(fields.get("prompt"), folder, _PROMPT_ENDINGS, path)
    if prompt_file is not None:
        fields["prompt"] = read_text(prompt_file)
    schema_file = fields.get("output")
    if isinstance(schema_file, str):
        fields["output"] = _read_schema(folder / schema_file)
    pipeline = validated(fields, Pipeline, path, node)
    _check_prompt(pipeline, prompt_file or path)
    return pipeline


def _named_file(value: Any, folder: Path, endings: tuple[str, ...], path: Path) -> Path | None:
    """The file that a field names; None when the field holds the text itself."""
    if not isinstance(value, str) or "\n" in value.strip():
        return None
    name = value.strip()
    if name.endswith(endings) and " " not in name:
        if not (folder / name).is_file():
            raise SettingsError(f"{path}: prompt = {name!r}: no such file in {folder}; make it, or write the text here")
        return folder / name
    return None


def _read_schema(path: Path) -> Any:
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise SettingsError(f"{path}, line {error.lineno}: not JSON: {error.msg}; write a JSON Schema") from error
    except (RecursionError, ValueError) as error:
        text = "nested too deeply, or a number has too many digits; correct the schema"
        raise SettingsError(f"{path}: {text}") from error


def _check_prompt(pipeline: Pipeline, path: Path) -> None:
    """The template parses and uses input fields only; the api checks it too, but does not know the file."""
    try:
        variables = parse_prompt(pipeline.prompt).variables
    except PromptError as error:
        raise SettingsError(f"{path}: {error}; correct the template") from error
    unknown = sorted(variables - set(pipeline.input.fields))
    if unknown:
        line = next((n for n, text in enumerate(pipeline.prompt.split("\n"), 1) if unknown[0] in text), 1)
        where = f"{path}, line {line}" if path.name != _FILE else f"{path}: prompt, line {line}"
        raise SettingsError(
            f"{where}: unknown variable {unknown[0]!r}; input.fields has {', '.join(pipeline.input.fields)}: "
            "correct the name, or add it there"
        )
