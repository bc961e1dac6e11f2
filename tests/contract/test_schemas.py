"""The schemas themselves: no orphans, stable numbers and forms, versions that still read what was written before."""

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import pytest
import yaml

from contract.schema_files import ROOT, Version, channels, fingerprint, versions
from nightmill.kernel.domain import failures, lifecycle
from nightmill.kernel.wire import schemas
from nightmill.kernel.wire.compatibility import breaks
from nightmill.kernel.wire.schemas import (
    all_schemas,
    newest,
    newest_schemas,
    schema_ids,
    self_contained,
    shared_types,
)

FINGERPRINTS: dict[str, str] = yaml.safe_load((ROOT / "contracts/fingerprints.yaml").read_text("utf-8"))
STEMS = sorted(all_schemas())


def test_every_schema_file_is_a_version_of_a_message() -> None:
    files = sorted(path.relative_to(ROOT / "schemas") for path in (ROOT / "schemas").rglob("*") if path.is_file())
    strange = [str(file) for file in files if not re.fullmatch(r"(types/)?[a-z_]+\.v[1-9]\d*\.avsc", str(file))]
    assert strange == []
    assert [version.stem for version in versions()] == STEMS


def test_versions_of_a_message_are_consecutive_and_of_one_record() -> None:
    for message, group in itertools.groupby(versions(), key=lambda version: version.message):
        found = list(group)
        assert [version.number for version in found] == list(range(1, len(found) + 1)), message
        assert len({version.record for version in found}) == 1, message


def test_no_schema_is_an_orphan() -> None:
    """Each record belongs to one topic or table, and each of those has a record."""
    assert Counter(spec["message"] for spec in channels().values()) == Counter({v.record for v in versions()})


def test_no_shared_type_is_an_orphan() -> None:
    used = set(re.findall(r"nightmill\.\w+", json.dumps([*all_schemas().values(), *shared_types().values()])))
    assert {f"nightmill.{schema['name']}" for schema in shared_types().values()} <= used


@pytest.mark.parametrize("stem", newest(STEMS))
def test_the_newest_message_holds_the_newest_of_every_type(stem: str) -> None:
    """There is one class for each type; a type's new version asks for a new version of each message that holds it."""
    _, named = newest_schemas()
    for avro in written_out(self_contained(stem)):
        wanted = named[f"nightmill.{avro['name']}"]
        found = [field["name"] for field in avro["fields"]] if avro["type"] == "record" else avro["symbols"]
        assert found == ([field["name"] for field in wanted["fields"]] if "fields" in wanted else wanted["symbols"]), (
            f"{stem} holds an older {avro['name']}: add a version whose `holds` names the newest"
        )


def written_out(avro: Any) -> Iterator[dict[str, Any]]:
    """Every record and enumeration that stands in a schema."""
    match avro:
        case list():
            for branch in avro:
                yield from written_out(branch)
        case {"items": inner} | {"values": inner}:
            yield from written_out(inner)
        case {"name": _}:
            yield avro
            for field in avro.get("fields", ()):
                yield from written_out(field["type"])


def test_a_new_version_of_a_type_changes_no_published_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message holds the version it was published with, until a new version of its own holds a newer one."""
    for cached in (schemas.all_schemas, schemas.shared_types, schemas.newest_schemas, schemas._definitions):
        monkeypatch.setattr(schemas, cached.__name__, cached.__wrapped__)
    usage = schemas.shared_types()["usage.v1"]
    more = {**usage, "fields": [*usage["fields"], {"name": "thinking", "type": ["null", "long"], "default": None}]}
    judged = all_schemas()["attempt_judged.v1"]
    before = self_contained("attempt_judged.v1")
    types, messages = {**shared_types(), "usage.v2": more}, dict(all_schemas())
    messages["attempt_judged.v2"] = {**judged, "holds": {"Usage": 2}}
    monkeypatch.setattr(schemas, "shared_types", lambda: types)
    monkeypatch.setattr(schemas, "all_schemas", lambda: messages)
    assert self_contained("attempt_judged.v1") == before
    after = self_contained("attempt_judged.v2")
    assert "thinking" in json.dumps(after)
    assert breaks(writer=before, reader=after) == []


def test_every_schema_has_a_number_of_its_own() -> None:
    numbers = schema_ids()
    assert sorted(numbers) == STEMS
    assert len(set(numbers.values())) == len(numbers)
    assert all(0 < number < 2**32 for number in numbers.values())


@pytest.mark.parametrize("stem", STEMS)
def test_a_published_schema_and_its_number_never_change(stem: str) -> None:
    found = fingerprint(stem)
    assert stem in FINGERPRINTS, f"a new schema: add the line `{stem}: {found}` to contracts/fingerprints.yaml"
    assert found == FINGERPRINTS[stem], (
        f"schemas/{stem}.avsc, a type that it holds, or its number in contracts/schema-ids.yaml was changed after it "
        "was published: put it back and add a new version"
    )


def test_no_published_schema_is_gone() -> None:
    assert sorted(FINGERPRINTS) == STEMS


def later_versions() -> list[tuple[Version, Version]]:
    return [(a, b) for a, b in itertools.combinations(versions(), 2) if a.message == b.message]


def test_a_new_version_reads_every_older_one() -> None:
    problems = {
        f"{older.stem} → {newer.stem}": breaks(writer=self_contained(older.stem), reader=self_contained(newer.stem))
        for older, newer in later_versions()
    }
    assert {pair: found for pair, found in problems.items() if found} == {}


@pytest.mark.parametrize("stem", STEMS)
def test_every_schema_reads_itself(stem: str) -> None:
    assert breaks(writer=self_contained(stem), reader=self_contained(stem)) == []


@pytest.mark.parametrize("stem", STEMS)
def test_a_careless_new_version_of_any_message_fails_with_the_fields_name(stem: str) -> None:
    """The check that guards new versions, tried on each message that there is."""
    schema = self_contained(stem)
    added = {**schema, "fields": [*schema["fields"], {"name": "careless", "type": "string"}]}
    assert breaks(writer=schema, reader=added) == ["careless: added without a default"]
    first, *rest = schema["fields"]
    changed = {**schema, "fields": [{**first, "type": {"type": "array", "items": "int"}}, *rest]}
    assert breaks(writer=schema, reader=changed) == [f"{first['name']}: changed from string to array"]


def enums() -> list[dict[str, Any]]:
    _, named = newest_schemas()
    return [schema for schema in named.values() if schema["type"] == "enum"]


@pytest.mark.parametrize("schema", enums(), ids=lambda schema: schema["name"])
def test_an_enumeration_of_the_domain_has_exactly_the_symbols_of_the_schema(schema: dict[str, Any]) -> None:
    module, _, name = schema["python"].partition(".")
    assert name == schema["name"]
    found: type[StrEnum] = getattr({"lifecycle": lifecycle, "failures": failures}[module], name)
    assert [member.value for member in found] == schema["symbols"]


def fields() -> list[tuple[str, dict[str, Any]]]:
    _, named = newest_schemas()
    return [(s["name"], field) for s in named.values() if s["type"] == "record" for field in s["fields"]]


def test_a_field_that_may_be_absent_defaults_to_null() -> None:
    """So that it can be left out when a message is made, and older records still read."""
    wrong = [
        f"{record}.{field['name']}"
        for record, field in fields()
        if isinstance(field["type"], list) and (field["type"][0] != "null" or field.get("default", 0) is not None)
    ]
    assert wrong == []


def test_units_and_types_of_times_and_money() -> None:
    wrong = [
        f"{record}.{field['name']}"
        for record, field in fields()
        if field["name"].endswith(("_ms", "_nano_usd")) and field["type"] not in ("long", ["null", "long"])
    ]
    assert wrong == []
    assert [f"{record}.{field['name']}" for record, field in fields() if field["type"] in ("float", "double")] == []
