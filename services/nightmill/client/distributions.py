"""The input `distributions`: licence texts of the installed Python packages, with what each says of itself as gold.

Only distributions that ship a licence text and state a licence become rows. By name, so that a limit takes the same.
"""

import re
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackagePath, distributions
from pathlib import Path, PurePosixPath
from typing import Any

from nightmill.client.licences import label_of

_LICENCE_FILE = re.compile(r"^(LICEN[CS]E|COPYING)([.-].*)?$", re.IGNORECASE)
_CODE = (".py", ".pyc", ".json", ".xml", ".spdx")


def read_distributions(installed: Iterable[Distribution] | None = None) -> Iterator[dict[str, Any]]:
    """Rows `{id, name, text, licence}`; `licence` is None where the stated one is not one of the labels alone.

    A name that is installed twice counts once: the one that an import would find.
    """
    found: dict[str, Distribution] = {}
    for each in distributions() if installed is None else installed:
        name = each.metadata["Name"]
        if name:
            found.setdefault(_normalised(name), each)
    for name in sorted(found):
        row = _row(found[name])
        if row is not None:
            yield row


def _row(distribution: Distribution) -> dict[str, Any] | None:
    metadata = distribution.metadata
    stated, label = label_of(
        _field(distribution, "License-Expression"),
        metadata.get_all("Classifier") or (),
        _field(distribution, "License"),
    )
    text = _licence_text(distribution) if stated else None
    if text is None:
        return None
    name = metadata["Name"]
    return {"id": f"{name}=={metadata['Version']}", "name": name, "text": text, "licence": label}


def _field(distribution: Distribution, name: str) -> str | None:
    values = distribution.metadata.get_all(name)
    return str(values[0]) if values else None


def _licence_text(distribution: Distribution) -> str | None:
    """The licence file nearest to the root of the distribution's own metadata folder."""
    candidates = [file for file in distribution.files or () if _is_licence(file)]
    for file in sorted(candidates, key=lambda file: (len(file.parts), file.as_posix())):
        try:
            raw = Path(file.locate()).read_bytes()
        except OSError:
            # listed in RECORD, but gone from the disk
            continue
        text = _decoded(raw).strip()
        if text:
            return text
    return None


def _is_licence(file: PackagePath) -> bool:
    path = PurePosixPath(file)
    own = path.parts[0].endswith((".dist-info", ".egg-info"))
    return own and _LICENCE_FILE.match(path.name) is not None and not path.name.lower().endswith(_CODE)


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        # old licence files are Latin-1; it decodes any byte
        return raw.decode("latin-1")


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
