"""Pipelines, config files and schemas as people may write them: usable, or refused with file and field.

Nothing that is written there may run for ever, fill the memory, reach outside, or end a service that reads it later.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from fuzz.bytes_of import SCALARS, TEXTS, damaged, mutated, searched
from nightmill.client.errors import BadInput
from nightmill.client.pipelines import load_pipeline
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.resources import resource
from nightmill.kernel.runtime.settings import SettingsError, load_config
from nightmill.validator.gate import SchemaError, compile_gate

CONFIG = {path.name: path.read_text("utf-8") for path in resource("deploy", "config").glob("*.yaml")}
PIPELINE: dict[str, Any] = {
    "name": "label",
    "input": {"id": "id", "fields": ["text"]},
    "prompt": "Label this:\n{{ text }}",
    "output": {"type": "object", "properties": {"label": {"enum": ["a", "b"]}}, "required": ["label"]},
    "checks": [{"enum": {"field": "label", "values": ["a"]}}],
    "model": {"pools": ["sim"], "max_output_tokens": 10, "seed": 1},
    "limits": {"budget_usd": 1, "deadline": "6h"},
}


def usable(folder: Path, content: bytes) -> str | None:
    """None when the pipeline can be frozen and checked, else what was said."""
    (folder / "pipeline.yaml").write_bytes(content)
    try:
        pipeline = load_pipeline(folder)
        Pipeline.model_validate_json(pipeline.canonical())
    except BadInput as error:
        return str(error)
    try:
        compile_gate(pipeline)
    except (SchemaError, ValueError) as error:
        said = str(error)
        assert said.startswith(("output", "checks"))
    return None


def refused(said: str | None) -> None:
    assert said is None or ("pipeline.yaml" in said and len(said.encode("utf-8", "replace")) < 6_000), said


def written(value: Any) -> bytes:
    return yaml.safe_dump(value, allow_unicode=True).encode("utf-8", "surrogatepass")


def laughs(levels: int) -> str:
    rows = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(["a0: &a0 [x, x]", *rows])


def merges(levels: int) -> str:
    rows = [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, levels)]
    return "\n".join(["a0: &a0 {a: x}", *rows])


HOSTILE = [
    laughs(30),
    merges(30),
    "a: &a {<<: *a}",
    "a: &a [*a]",
    "output: &o {properties: {a: *o}}",
    "output: " + "[" * 3_000 + "]" * 3_000,
    "output: " + "{a: " * 1_000 + "1" + "}" * 1_000,
    "output: {a: " + "9" * 5_000 + "}",
    "output: {a: 0x" + "f" * 20_000 + "}",
    "output: {a: " + ":".join(["59"] * 2_000) + "}",
    "output: {a: 2026-99-99}",
    "output: {a: 2026-01-01T99:99:99}",
    "output: {a: 2026-01-01}",
    "output: {a: .nan}",
    'output: {a: "\\ud800"}',
    "output: {1: 2}",
    "output: !!python/object/apply:os.system [id]",
    "output: !!binary '####'",
    "output: !!set {a, b}",
    "name: a\nname: b",
    "? [a]\n: b",
    "name: *nobody",
    "limits: {deadline: 1e300}",
    "limits: {deadline: -1s}",
    "limits: {budget_usd: .inf}",
    "limits: {budget_usd: 1e300}",
    "model: {pools: [a], max_output_tokens: 5, seed: 99999999999999999999999}",
    "checks: [{range: {field: x, min: .nan}}]",
    "checks: [{}]",
    "a: \0",
    "--- 1\n--- 2",
]


@pytest.mark.parametrize("text", HOSTILE, ids=[text[:30] for text in HOSTILE])
def test_a_hostile_file_is_refused_at_once_with_its_name(tmp_path: Path, text: str) -> None:
    """O1: and where there is a place in it, with its line."""
    names = {line.partition(":")[0] for line in text.splitlines()}
    rest = {name: value for name, value in PIPELINE.items() if name not in names}
    said = usable(tmp_path, written(rest) + text.encode())
    assert said is not None
    refused(said)


@given(value=mutated(PIPELINE))
@example(value={**PIPELINE, "output": {"a": {"b": "\ud800"}}})
@searched(150)
def test_a_pipeline_with_anything_in_any_field(folder: Path, value: Any) -> None:
    try:
        content = written(value)
    except (yaml.YAMLError, ValueError):
        return  # no writer has a form for it
    refused(usable(folder, content))


PIECES = [
    b"&a ",
    b"*a",
    b"<<: ",
    b"!!",
    b"{",
    b"[",
    b"- ",
    b"? ",
    b": ",
    b"|\n",
    b"\t",
    b"'",
    b'"',
    b"\xff",
    b"\0",
    b"%",
    b"@",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("config")


@given(content=damaged(st.just(written(PIPELINE)), inserts=PIECES))
@searched(120)
def test_a_damaged_pipeline_file(folder: Path, content: bytes) -> None:
    refused(usable(folder, content))


@given(name=st.sampled_from(sorted(CONFIG)), data=st.data())
@searched(120)
def test_a_config_folder_with_a_damaged_file_names_it(folder: Path, name: str, data: st.DataObject) -> None:
    value = mutated(yaml.safe_load(CONFIG[name]), values=SCALARS | TEXTS).map(yaml.safe_dump).map(str.encode)
    content = data.draw(damaged(st.just(CONFIG[name].encode()), inserts=PIECES) | value)
    for each, text in CONFIG.items():
        (folder / each).write_bytes(content if each == name else text.encode())
    try:
        load_config(folder)
    except SettingsError as error:
        said = str(error)
        assert name in said
        assert len(said) < 6_000


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"properties": {"a": schema}}
    return schema


SCHEMAS: list[tuple[dict[str, Any], str]] = [
    ({"pattern": "("}, "output.pattern"),
    ({"pattern": "((a{1000}){1000}){1000}"}, "output.pattern"),
    ({"type": "nothing"}, "output.type"),
    ({"$ref": "http://127.0.0.1:1/x"}, "lies outside"),
    ({"$ref": "file:///etc/passwd"}, "lies outside"),
    ({"$ref": "#/nowhere"}, "does not exist"),
    ({"$schema": "http://127.0.0.1:1/x"}, "meta-schema"),
    ({"$id": ":::"}, "output"),
    ({"maxItems": -1}, "output.maxItems"),
    ({"multipleOf": 0}, "output.multipleOf"),
    ({"$ref": "#"}, "leads back to where it stands"),
    ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "leads back to where it stands"),
]


@pytest.mark.parametrize(("schema", "place"), SCHEMAS, ids=[place for _, place in SCHEMAS])
def test_a_schema_that_is_none_says_where(schema: dict[str, Any], place: str) -> None:
    with pytest.raises(SchemaError, match=place):
        compile_gate(Pipeline.model_validate({**PIPELINE, "output": schema, "checks": []}))


@pytest.mark.parametrize("levels", [70, 300, 3_000])
def test_a_schema_nested_too_deeply_is_called_that(levels: int) -> None:
    """It was called a bad check."""
    with pytest.raises(ValueError, match=r"output\n.*nested deeper than 128 levels"):
        Pipeline.model_validate({**PIPELINE, "output": nested(levels)})


BACK = {"properties": {"a": {"$ref": "#"}}}
KILLER = {"type": "object", "anyOf": [BACK, {**BACK, "required": ["b"]}]}


@pytest.mark.parametrize(
    "schema",
    [
        {"items": {"$ref": "#"}},
        {"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"},
        nested(60),
        KILLER,
    ],
)
def test_a_schema_that_refers_to_itself_judges(schema: dict[str, Any]) -> None:
    """Also where two ways lead from each level to the next: 2 ** 60 steps would never end."""
    gate = compile_gate(Pipeline.model_validate({**PIPELINE, "output": schema, "checks": []}))
    for levels, leaf in ((2, "{}"), (60, "{}"), (60, "1")):
        assert gate.judge('{"a": ' * levels + leaf + "}" * levels, "stop", dict)[0]
