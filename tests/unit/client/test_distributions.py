"""Rows from installed distributions: those on a disk of our own, and those of this very environment."""

import json
from importlib.metadata import PathDistribution, distributions
from pathlib import Path

from nightmill.client.distributions import read_distributions
from nightmill.client.licences import LABELS
from nightmill.kernel.resources import resource


def install(site: Path, name: str, metadata: str, files: dict[str, bytes]) -> PathDistribution:
    folder = site / f"{name}-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\n{metadata}\n")
    for path, content in files.items():
        file = site / path.replace("INFO", folder.name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    names = [path.replace("INFO", folder.name) for path in files]
    (folder / "RECORD").write_text("".join(f"{path},,\n" for path in [*names, f"{folder.name}/METADATA"]))
    return PathDistribution(folder)


def test_rows_of_a_small_site(tmp_path: Path) -> None:
    """P2: id, name, text and gold; only what ships a text and states a licence."""
    mit = "License-Expression: MIT"
    site = [
        install(tmp_path, "zeta", mit, {"INFO/licenses/LICENSE": "\ufeffMIT Licence\n".encode()}),
        install(tmp_path, "alpha", "License: BSD", {"INFO/LICENCE.txt": b"Caf\xe9 licence"}),
        install(tmp_path, "two", "License-Expression: MIT OR Apache-2.0", {"INFO/licenses/LICENSE-MIT": b"mit text"}),
        install(tmp_path, "silent", "", {"INFO/LICENSE": b"text"}),
        install(tmp_path, "textless", mit, {"pkg/LICENSE": b"vendored", "INFO/license_files.py": b"x"}),
        install(tmp_path, "deep", mit, {"INFO/licenses/vendor/x/LICENSE": b"other", "INFO/licenses/COPYING": b"own"}),
        install(tmp_path, "empty", mit, {"INFO/LICENSE": b" \n"}),
    ]
    assert list(read_distributions(site)) == [
        {"id": "alpha==1.0", "name": "alpha", "text": "Café licence", "licence": "BSD"},
        {"id": "deep==1.0", "name": "deep", "text": "own", "licence": "MIT"},
        {"id": "two==1.0", "name": "two", "text": "mit text", "licence": None},
        {"id": "zeta==1.0", "name": "zeta", "text": "MIT Licence", "licence": "MIT"},
    ]


def test_a_name_that_is_installed_twice_counts_once(tmp_path: Path) -> None:
    first = install(tmp_path / "a", "My.Pack_age", "License: MIT", {"INFO/LICENSE": b"first"})
    second = install(tmp_path / "b", "my-pack-age", "License: MIT", {"INFO/LICENSE": b"second"})
    assert [row["text"] for row in read_distributions([first, second])] == ["first"]


def test_a_listed_file_that_is_gone_is_passed_over(tmp_path: Path) -> None:
    gone = install(tmp_path, "gone", "License: MIT", {"INFO/LICENSE": b"x", "INFO/licenses/LICENSE": b"still here"})
    (tmp_path / "gone-1.0.dist-info" / "LICENSE").unlink()
    assert [row["text"] for row in read_distributions([gone])] == ["still here"]


def test_this_environment_has_documents_of_several_labels() -> None:
    """The demo's input: real documents, unique ids, labels that the shipped schema knows."""
    rows = list(read_distributions())
    assert len({row["id"] for row in rows}) == len(rows) > 20
    assert len(rows) <= len(list(distributions()))
    assert len({row["licence"] for row in rows} - {None}) >= 3
    schema = json.loads(resource("deploy", "pipelines", "licence-audit", "output.schema.json").read_text())
    assert tuple(schema["properties"]["licence"]["enum"]) == LABELS
