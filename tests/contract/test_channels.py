"""channels.yaml is the truth: code and contract say the same of every topic, key, producer and consumer."""

import re
from typing import Any

import pytest

from contract.schema_files import channels, contract
from contract.source import PACKAGE, constructed, handled, rooms, viewed
from nightmill.kernel.runtime.dlq import dead_letter_topic
from nightmill.kernel.runtime.kafka.admin import wanted_topics
from nightmill.kernel.wire.channel import Table, Topic
from nightmill.kernel.wire.codegen import main as codegen
from nightmill.kernel.wire.schemas import newest_schemas
from nightmill.kernel.wire.topics import CHANNELS, TABLES

EVERYTHING: tuple[Topic | Table, ...] = (*CHANNELS, *TABLES)
SPECS: dict[str, dict[str, Any]] = contract()["channels"]
ROWS: dict[str, dict[str, Any]] = contract()["tables"]

#: a message that a service makes and does not send: a value in its own hands
NOT_SENT = {
    ("dispatcher", "ItemPlanned"): "stands in for a plan that could not be read, so that its item is settled",
    ("publisher", "ItemSettled"): "stands in for a settlement that could not be read, so that its bit is set",
    ("validator", "AttemptAnswered"): "stands in, inside a judgement, for an answer that could not be read",
}

#: topics whose viewers miss nothing that is not there any more
HINTS = {"webhook-received": "a reason to look at a batch sooner; it is looked at in any case"}

#: messages that the runtime makes for every service that it runs
SENT_BY_RUNTIME = {"StallReported"}


def test_generated_code_is_what_schemas_and_contract_give(capsys: pytest.CaptureFixture[str]) -> None:
    assert codegen(["--check"]) == 0, capsys.readouterr().err


def test_topics_in_code_are_those_of_the_contract() -> None:
    assert {channel.name: as_written(channel) for channel in EVERYTHING} == {
        name: {"views": [], **spec} for name, spec in channels().items()
    }


def as_written(channel: Topic | Table) -> dict[str, Any]:
    names = [name for name in channel.__dataclass_fields__ if name != "name"]
    spec = {name: getattr(channel, name) for name in names}
    spec["message"] = channel.message.__name__
    lists = {name: list(value) if isinstance(value, tuple) else value for name, value in spec.items()}
    return {name: value for name, value in lists.items() if value is not None}


@pytest.mark.parametrize("name", channels())
def test_a_name_separates_safely(name: str) -> None:
    """A '.' would make two of Kafka's metric names one, and parts the namespace from the topic."""
    assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name)
    assert not name.endswith("-dlq")


@pytest.mark.parametrize("name", ROWS)
def test_a_table_is_named_after_its_owner(name: str) -> None:
    assert name.startswith(ROWS[name]["owner"].replace("_", "-") + "-")


@pytest.mark.parametrize("name", SPECS)
def test_compaction_or_retention_never_both(name: str) -> None:
    spec = SPECS[name]
    assert spec["cleanup"] in ("compact", "delete")
    assert ("retention_h" in spec) == (spec["cleanup"] == "delete")
    assert spec.get("retention_h", 1) > 0


def test_a_dead_letter_topic_holds_the_largest_original_and_its_reason() -> None:
    """E1: quarantine never fails because a record is too large."""
    made = {topic.topic: dict(topic.config or {}) for topic in wanted_topics("t", 1, 1)}
    for channel in CHANNELS:
        limit = int(made[f"t.{channel.name}"]["max.message.bytes"])
        assert limit >= channel.max_bytes
        # originals keep their headers; the reason and the place are added
        assert int(made[f"t.{dead_letter_topic(channel.name)}"]["max.message.bytes"]) >= channel.max_bytes + 4_096


def test_created_topics_keep_what_the_contract_says() -> None:
    made = {topic.topic: dict(topic.config or {}) for topic in wanted_topics("t", 1, 1)}
    assert set(made) == {f"t.{c.name}" for c in EVERYTHING} | {f"t.{c.name}-dlq" for c in CHANNELS}
    for channel in EVERYTHING:
        settings = made[f"t.{channel.name}"]
        if isinstance(channel, Table) or channel.cleanup == "compact":
            assert settings["cleanup.policy"] == "compact"
            assert "retention.ms" not in settings
        else:
            assert channel.retention_h is not None
            assert settings["cleanup.policy"] == "delete"
            assert settings["retention.ms"] == str(channel.retention_h * 3_600_000)


def type_of(record: str, field: str) -> Any:
    _, named = newest_schemas()
    return next((f["type"] for f in named[f"nightmill.{record}"]["fields"] if f["name"] == field), None)


@pytest.mark.parametrize("name", channels())
def test_the_key_is_a_text_of_the_message(name: str) -> None:
    spec = channels()[name]
    assert type_of(spec["message"], spec["key"]) == "string"


@pytest.mark.parametrize("name", SPECS)
def test_the_partition_comes_from_the_message(name: str) -> None:
    """A text that is hashed, or a whole number that is the partition itself."""
    spec = SPECS[name]
    assert type_of(spec["message"], spec["partition_by"]) in ("string", "int")


@pytest.mark.parametrize("name", ROWS)
def test_the_partition_of_a_row_can_be_told_from_the_row(name: str) -> None:
    """From a field of its own, of a record it holds, or for a dataset from its batch's id, which begins with it.

    The runtime writes a row in the partition of the message that caused it; a reader must find that partition again.
    """
    spec = ROWS[name]
    _, named = newest_schemas()
    fields = named[f"nightmill.{spec['message']}"]["fields"]
    inner = [field["type"] for field in fields if isinstance(field["type"], str) and field["type"] in named]
    holders = [spec["message"], *(full.rsplit(".", 1)[-1] for full in inner if named[full]["type"] == "record")]
    own = any(type_of(holder, spec["partition_by"]) in ("string", "int") for holder in holders)
    assert own or (spec["partition_by"] == "dataset_id" and type_of(spec["message"], "batch_id") == "string")


def test_everybody_named_is_a_service() -> None:
    assert [room for room in rooms() if not (PACKAGE / room / "__init__.py").exists()] == []


@pytest.mark.parametrize("room", rooms())
def test_consumers_in_code_are_those_of_the_contract(room: str) -> None:
    assert handled(room) == {name for name, spec in SPECS.items() if room in spec["consumers"]}


@pytest.mark.parametrize("room", rooms())
def test_producers_in_code_are_those_of_the_contract(room: str) -> None:
    declared = {spec["message"] for spec in SPECS.values() if room in spec["producers"]} - SENT_BY_RUNTIME
    kept = {message for maker, message in NOT_SENT if maker == room}
    topics = {spec["message"] for spec in SPECS.values()}
    assert constructed(room) & topics == declared | kept


@pytest.mark.parametrize("room", rooms())
def test_rows_are_made_by_their_owner_alone(room: str) -> None:
    rows = {spec["message"] for spec in ROWS.values()}
    assert constructed(room) & rows == {spec["message"] for spec in ROWS.values() if spec["owner"] == room}


@pytest.mark.parametrize("room", rooms())
def test_views_in_code_are_those_of_the_contract(room: str) -> None:
    declared = {spec["message"] for spec in channels().values() if room in spec.get("views", ())}
    assert viewed(room) == declared


def test_nobody_views_what_is_deleted() -> None:
    """A view is the whole of a topic: only a compacted one keeps it."""
    viewed_and_deleted = {name for name, spec in SPECS.items() if spec.get("views") and spec["cleanup"] != "compact"}
    assert viewed_and_deleted == set(HINTS)
