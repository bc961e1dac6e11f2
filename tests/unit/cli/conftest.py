"""A real api, a pipeline with its documents, and a shell; all have one home."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.api_server import ServedApi
from unit.cli.shell import Shell
from unit.cli.small_job import YAML


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ServedApi]:
    with ServedApi(tmp_path / "home") as served:
        yield served


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "label"
    folder.mkdir()
    (folder / "pipeline.yaml").write_text(YAML)
    (tmp_path / "rows.jsonl").write_text('{"id": "a", "text": "one"}\n')
    return tmp_path


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Shell:
    return Shell(capsys, tmp_path / "home")
