"""What lies in schemas/ and contracts/, read as files, without the code that is under test."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from nightmill.kernel.domain.pipeline import canonical_json
from nightmill.kernel.wire.schemas import all_schemas, schema_ids, self_contained

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "contracts" / "examples"
_STEM = re.compile(r"^(?P<name>\w+)\.v(?P<version>[1-9]\d*)$")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Version:
    """One version of a message's schema."""

    message: str  #: as in the file's name
    number: int

    @property
    def stem(self) -> str:
        return f"{self.message}.v{self.number}"

    @property
    def record(self) -> str:
        """The record's name: the class."""
        return str(all_schemas()[self.stem]["name"])


def versions() -> list[Version]:
    """Every version of every message."""
    matches = (_STEM.match(stem) for stem in all_schemas())
    return sorted(Version(message=m["name"], number=int(m["version"])) for m in matches if m is not None)


def contract() -> dict[str, dict[str, dict[str, Any]]]:
    """channels.yaml."""
    found: dict[str, dict[str, dict[str, Any]]] = yaml.safe_load((ROOT / "contracts/channels.yaml").read_text("utf-8"))
    return found


def channels() -> dict[str, dict[str, Any]]:
    """Topics and tables by name."""
    return {**contract()["channels"], **contract()["tables"]}


def fingerprint(stem: str) -> str:
    """sha256 of a schema's number and its canonical form: self-contained, sorted, without docs and Python names."""
    return hashlib.sha256(canonical_json([schema_ids()[stem], _bare(self_contained(stem))])).hexdigest()


def _bare(avro: Any) -> Any:
    match avro:
        case dict():
            return {name: _bare(value) for name, value in avro.items() if name not in ("doc", "python")}
        case list():
            return [_bare(value) for value in avro]
    return avro


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One file of contracts/examples."""

    path: Path
    channel: str
    version: Version

    @property
    def name(self) -> str:
        return str(self.path.relative_to(EXAMPLES))

    def record(self) -> Any:
        """The record as fastavro takes it: JSON, with bytes as base64."""
        return _with_bytes(json.loads(self.path.read_text("utf-8")), self_contained(self.version.stem), {})


def examples() -> Iterator[Example]:
    """Every example that lies under a channel and a version that exist."""
    by_record = {(version.record, version.number): version for version in versions()}
    for path in sorted(EXAMPLES.glob("*/v*/*.json")):
        channel = path.parts[-3]
        yield Example(
            path=path,
            channel=channel,
            version=by_record[channels()[channel]["message"], int(path.parts[-2].removeprefix("v"))],
        )


def _with_bytes(value: Any, avro: Any, seen: dict[str, Any]) -> Any:
    if isinstance(avro, str):
        avro = seen.get(avro.rsplit(".", 1)[-1], avro)
    if isinstance(avro, dict) and "name" in avro:
        seen[avro["name"]] = avro
    match avro, value:
        case "bytes", str():
            return base64.b64decode(value, validate=True)
        case ["null", inner], _:
            # the type is known from here on, whether or not this record has a value of it
            return _with_bytes(value, inner, seen)
        case {"type": "record", "fields": fields}, None:
            for field in fields:
                _with_bytes(None, field["type"], seen)
        case {"type": "record", "fields": fields}, dict():
            known = {field["name"]: _with_bytes(value.get(field["name"]), field["type"], seen) for field in fields}
            return {name: known.get(name, inner) for name, inner in value.items()}
        case {"type": "array", "items": inner}, _:
            _with_bytes(None, inner, seen)
            return value if value is None else [_with_bytes(each, inner, seen) for each in value]
    return value
