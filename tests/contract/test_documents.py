"""What README and docs show can be typed and loaded: commands, the pipeline, settings and scenarios. Nothing runs."""

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.commands import VERBS, parsed
from nightmill.client.pipelines import load_pipeline
from nightmill.kernel.resources import resource
from nightmill.kernel.runtime.settings import load_config
from nightmill.provider_simulator.run import load_scenario

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
USING, SIMULATOR = ROOT / "docs/using.md", ROOT / "docs/simulator.md"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]+`")
_INLINE = re.compile(r"`nightmill ([a-z][a-z-]*)")
_LINK = re.compile(r"\]\((?!https?:)([^)#]+)[^)]*\)")
_PATH = re.compile(r"`((?:contracts|deploy|docs|schemas|services|tests)/[\w./-]+)`")
_TARGET = re.compile(r"\bmake ([a-z][a-z-]*)[`\s]")


def blocks(path: Path) -> list[str]:
    return [text for _, text in _BLOCK.findall(path.read_text(encoding="utf-8"))]


def block(path: Path, start: str) -> str:
    """The only block that begins so."""
    (found,) = [each for each in blocks(path) if each.startswith(start)]
    return found


def commands() -> Iterator[str]:
    for path in DOCUMENTS:
        for text in blocks(path):
            lines = text.replace("\\\n", " ").splitlines()
            yield from (line for line in lines if line.startswith("nightmill "))


@pytest.mark.parametrize("command", sorted(set(commands())))
def test_a_command_that_is_shown_can_be_typed(command: str) -> None:
    """O1: verbs, options and values are those of the command line."""
    assert parsed(shlex.split(command, comments=True)) in VERBS


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_what_a_document_names_is_there(path: Path) -> None:
    """O1: verbs, steps of make, links and files of the repository."""
    text = path.read_text(encoding="utf-8")
    code = "\n".join(blocks(path)) + "\n".join(_CODE.findall(text))
    steps = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(_INLINE.findall(text)) - {name.split()[0] for name in VERBS} == set()
    assert set(_TARGET.findall(code + "\n")) - steps == set()
    assert [link for link in _LINK.findall(text) if not (path.parent / link).exists()] == []
    assert [named for named in _PATH.findall(text) if not (ROOT / named).exists()] == []


def test_the_pipeline_that_is_shown_loads(tmp_path: Path) -> None:
    """O1: the three files of docs/using.md, typed as they stand there."""
    folder = tmp_path / "classify"
    folder.mkdir()
    (folder / "pipeline.yaml").write_text(block(USING, "name: classify-tickets"))
    (folder / "prompt.md").write_text(block(USING, "system:"))
    (folder / "output.schema.json").write_text(block(USING, '{\n  "type"'))
    assert load_pipeline(folder).name == "classify-tickets"


def test_the_settings_that_are_shown_load(tmp_path: Path) -> None:
    config = Path(shutil.copytree(resource("deploy", "config"), tmp_path / "my-config"))
    for name in ("pools.yaml", "prices.yaml"):
        (config / name).write_text(block(USING, f"# my-config/{name}"))
    loaded = load_config(config)
    assert (list(loaded.pools), "my-llama" in loaded.prices.models) == (["openai-mini"], True)


def test_the_scenarios_that_are_shown_load(tmp_path: Path) -> None:
    for number, text in enumerate((block(USING, "# scenario.yaml"), block(SIMULATOR, "seed: 7"))):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text)
        assert load_scenario(path).faults
