"""Pipelines, config files, templates and schemas as people may write them: usable, or refused with file and field.

Nothing that is written there may run for ever, fill the memory, reach outside, or end a service that renders it later.
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
from nightmill.kernel.domain.prompt import PromptError, parse_prompt
from nightmill.kernel.domain.sandbox import MAX_PROMPT_CHARACTERS
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


#: expressions that take all, reach out, or differ from run to run
TEMPLATES = [
    "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{{ text * 1000 }}{% endfor %}",
    "{% for i in range(9) recursive %}{{ loop(range(9)) }}{% endfor %}",
    "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "{{ 'x' * 1000000000 }}",
    "{{ [1] * 1000000000 }}",
    "{{ 9 ** (9 ** 9) }}",
    "{{ range(10 ** 9) | list }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%*d' % (1000000000, 1) }}",
    "{{ '%1000000000d' | format(1) }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ '{:{}}'.format(1, 1000000000) }}",
    "{{ text | center(1000000000) }}",
    "{{ text | indent(1000000000) }}",
    "{{ text.ljust(1000000000) }}",
    "{{ (5).to_bytes(1000000000, 'big') }}",
    "{{ text | slice(1000000000) | list }}",
    "{{ [1] | tojson(indent=1000000000) }}",
    "{{ 2 | round(-1000000000) }}",
    "{{ text | replace('', text * 9000) | replace('', text * 9000) }}",
    "{{ (text * 9000).join(['x'] * 9000) }}",
    "{{ ['x'] * 9000 | join(text * 9000) }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{{ self._TemplateReference__context }}{{ self.__init__.__globals__ }}",
    "{{ text | attr('__class__') }}",
    "{{ '{0.__class__}'.format(text) }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}",
    "{{ [].append(1) }}{% set l = [1] %}{{ l.append(2) }}",
    "{{ range }}",
    "{{ text.upper }}",
    "{{ cycler(1) }}",
    "{{ joiner() | string }}",
    "{{ text | map('upper') }}",
    "{{ text | truncate(-5) }}",
    "{{ 1e999 | int }}",
    "{{ " + "(" * 3_000 + "1" + ")" * 3_000 + " }}",
    "{{ " + "not " * 5_000 + "1 }}",
    "{% if 1 %}" * 200 + "{% endif %}" * 200,
    "{{ nothing }}",
    "{{ text",
]


@pytest.mark.parametrize("template", TEMPLATES, ids=[text[:40] for text in TEMPLATES])
def test_a_template_ends_in_bounds_or_is_refused(template: str) -> None:
    """P6: one job's template may not take the services from all the others."""
    with pytest.raises(PromptError, match=r"^prompt") as caught:
        parse_prompt(template).render({"text": "hello world"})
    assert "hello world" not in str(caught.value)


def test_a_prompt_that_grows_too_long_names_its_longest_field() -> None:
    row = {"title": "t", "body": "b" * (MAX_PROMPT_CHARACTERS // 2 + 1)}
    prompt = parse_prompt("{{ title }}{{ body }}{{ body }}")
    with pytest.raises(PromptError, match=r"grows beyond 8,388,608 characters; the longest field is 'body'"):
        prompt.render(row)
    assert len(parse_prompt("{{ body }}").render(row)[0].content) == len(row["body"])


def test_loops_of_an_honest_size_are_rendered() -> None:
    """Bounds are far from what anybody needs; `~`, loops and their variables work as before."""
    text = (
        "{% for t in tags %}{{ loop.index ~ '/' ~ loop.length }}:{{ t | upper }}{{ ', ' if not loop.last }}{% endfor %}"
    )
    assert parse_prompt(text).render({"tags": ["a", "b"]})[0].content == "1/2:A, 2/2:B"
    tree = "{% for n in tree recursive %}{{ n.name }}({{ loop(n.inner) }}){% endfor %}"
    nodes = [{"name": "a", "inner": [{"name": "b", "inner": []}]}]
    assert parse_prompt(tree).render({"tree": nodes})[0].content == "a(b())"
    many = {"rows": [{"n": number} for number in range(50_000)]}
    assert len(parse_prompt("{% for r in rows %}{{ r.n }},{% endfor %}").render(many)[0].content) > 200_000


WORDS = [
    "{{",
    "}}",
    "{%",
    "%}",
    " text ",
    " for i in ",
    "range(9)",
    " endfor ",
    " if ",
    " endif ",
    " set x = ",
    "|",
    "~",
    "*",
]
WORDS += [
    "(",
    ")",
    "[",
    "]",
    ".",
    ",",
    "'",
    '"',
    "9",
    "999999999",
    "**",
    "loop",
    "recursive",
    "upper",
    "join",
    "\n",
    "user:\n",
]


@given(text=st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join) | TEXTS)
@searched(250)
def test_any_text_is_a_template_or_is_refused(text: str) -> None:
    try:
        parse_prompt(text).render({"text": "hello"})
    except PromptError as error:
        said = str(error)
        assert said.startswith("prompt")


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
