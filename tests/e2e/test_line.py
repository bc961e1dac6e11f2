"""The product as a user has it: `nightmill up` on a real broker, eight processes, chDB, and the command itself.

The provider is the simulator; its ledger is the oracle of what was paid.
"""

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kit.broker import bootstrap
from kit.laptop import Laptop
from kit.patience import PATIENCE_S
from kit.simulator import Simulator
from nightmill.kernel.runtime.kafka import KafkaLog
from nightmill.kernel.runtime.log import Outgoing, Place, Record

SERVICES = ("planner", "dispatcher", "provider_gateway", "validator", "publisher", "rate_governor", "ledger", "api")
SLOTS = 20
POISON = b"\x00\x00\x00\x00\x01not avro"


@pytest.fixture(scope="module")
def provider() -> Iterator[Simulator]:
    with Simulator() as simulator:
        yield simulator


@pytest.fixture(scope="module")
def running(provider: Simulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    laptop = Laptop(tmp_path_factory.mktemp("laptop"), provider.base_url, slots=SLOTS, local_embeddings=True)
    laptop.up()
    yield laptop
    laptop.close()


@pytest.fixture
def simulator(provider: Simulator) -> Simulator:
    provider.set_scenario({})
    provider.reset()
    return provider


@pytest.fixture
def laptop(running: Laptop, simulator: Simulator) -> Laptop:
    return running


def is_over(status: Mapping[str, Any]) -> bool:
    return status["state"] in ("published", "partial_failed", "refused", "held", "cancelled")


def settled(status: Mapping[str, Any]) -> int:
    counts: Mapping[str, int] = status["counts"]
    return sum(number for outcome, number in counts.items() if outcome != "reused")


def expect_each_once(laptop: Laptop, name: str, count: int) -> None:
    rows = laptop.results(name)
    assert Counter(row["_source_id"] for row in rows) == Counter(f"d{i}" for i in range(count))


def test_a_job_is_published_costed_and_explained(laptop: Laptop, simulator: Simulator) -> None:
    """M1-M5, Q3, Q5, O1, P2: from a file to results, and a bill that agrees."""
    pipeline = laptop.pipeline("first")
    documents = laptop.documents(60)
    done = laptop.cli("run", pipeline, "--input", documents, "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "60 accepted" in done.stdout
    expect_each_once(laptop, "first", 60)
    bill = simulator.ledger()["billed"]
    assert bill["calls"] == 60
    job = laptop.json("status")["jobs"][0]["job_id"]
    deadline = time.monotonic() + PATIENCE_S
    query = f"SELECT count() AS n, sum(input_tokens) AS i, sum(output_tokens) AS o FROM attempts WHERE job_id = '{job}'"
    while (found := laptop.json("sql", query)["rows"][0])[0] != 60:
        assert time.monotonic() < deadline, found
        time.sleep(0.3)
    assert [int(value) for value in found] == [60, bill["prompt_tokens"], bill["completion_tokens"]]
    explained = laptop.cli("explain", "d7")
    assert explained.returncode == 0, explained.stderr
    assert "document number 7 end" in explained.stdout
    assert laptop.cli("cost", job, "--by", "model").returncode == 0
    versions = laptop.json("versions", "first")["versions"]
    assert [version["version"] for version in versions] == [1]


def test_the_local_model_makes_vectors(laptop: Laptop) -> None:
    """E7, P6: the pipeline that ships, by the server that `up` started beside the services."""
    assert {each["name"]: each["ready"] for each in laptop.json("ps")["processes"]}["embeddings_server"]
    checks = {check["name"]: check["ok"] for check in laptop.json("doctor", "--config", laptop.config)["checks"]}
    assert checks["local embeddings"]
    said = laptop.cli("pool", "check", "local-embeddings", "--call", "--config", laptop.config).stdout
    assert "all-minilm-l6-v2 makes vectors of 384 numbers" in said
    ran = laptop.cli("run", "embed-documents", "--input", laptop.documents(5))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    rows = laptop.results("embed-documents")
    assert {(row["_source_id"], len(row["embedding"])) for row in rows} == {(f"d{i}", 384) for i in range(5)}


def test_a_second_run_reuses_every_result_and_a_new_prompt_makes_a_version(
    laptop: Laptop, simulator: Simulator
) -> None:
    """M3: the provider hears nothing of an equal run."""
    pipeline = laptop.pipeline("again")
    documents = laptop.documents(40)
    for _ in range(2):
        assert laptop.cli("run", pipeline, "--input", documents, "--yes").returncode == 0
    assert simulator.ledger()["billed"]["calls"] == 40
    (pipeline / "prompt.md").write_text("system:\nLabel this text.\n\nuser:\n{{ text }}\n")
    assert laptop.cli("run", pipeline, "--input", documents, "--yes").returncode == 0
    assert simulator.ledger()["billed"]["calls"] == 80
    assert sorted(version["version"] for version in laptop.json("versions", "again")["versions"]) == [1, 2, 3]


@pytest.mark.parametrize("victim", SERVICES)
def test_a_service_killed_in_the_middle_loses_nothing(laptop: Laptop, simulator: Simulator, victim: str) -> None:
    """E1, M4: one SIGKILL among 500 items: each is published once, only calls in flight cost twice."""
    simulator.set_scenario({"latency": {"fixed_ms": 100}})
    name = f"kill-{victim.replace('_', '-')}"
    job = laptop.submit(laptop.pipeline(name), laptop.documents(500))
    laptop.wait(job, lambda status: settled(status) >= 60)
    laptop.kill(victim)
    status = laptop.wait(job, is_over)
    assert status["state"] == "published", status
    assert status["counts"]["accepted"] == 500
    expect_each_once(laptop, name, 500)
    assert simulator.ledger()["billed"]["calls"] <= 500 + SLOTS


def test_cancel_in_the_middle_and_resume(laptop: Laptop, simulator: Simulator) -> None:
    """E11: nothing of the cancelled generation shows; the resumed one pays for no item again."""
    # half a minute of work: each look at it and the command take their time
    simulator.set_scenario({"latency": {"fixed_ms": 2_000}})
    job = laptop.submit(laptop.pipeline("cancelled"), laptop.documents(300))
    laptop.wait(job, lambda status: settled(status) >= 1)
    assert laptop.cli("cancel", job).returncode == 0
    simulator.set_scenario({"latency": {"fixed_ms": 20}})
    assert laptop.wait(job, is_over)["state"] == "cancelled"
    assert laptop.cli("results", "cancelled").stdout.strip() == ""
    assert laptop.cli("resume", job).returncode == 0
    status = laptop.wait(job, lambda found: found["state"] == "published")
    assert status["generation"] == 2
    expect_each_once(laptop, "cancelled", 300)
    assert simulator.ledger()["billed"]["calls"] == 300


def test_down_and_up_in_the_middle(laptop: Laptop, simulator: Simulator) -> None:
    """E1: an orderly stop loses nothing, and `up` goes on with what was unfinished."""
    simulator.set_scenario({"latency": {"fixed_ms": 100}})
    job = laptop.submit(laptop.pipeline("restarted"), laptop.documents(300))
    laptop.wait(job, lambda status: settled(status) >= 40)
    laptop.down()
    assert laptop.cli("status", job).returncode == 5
    laptop.up()
    assert laptop.wait(job, is_over)["state"] == "published"
    expect_each_once(laptop, "restarted", 300)
    assert simulator.ledger()["billed"]["calls"] <= 300 + SLOTS


def test_status_answers_while_the_ledger_does_not(laptop: Laptop) -> None:
    """E1: views, not ClickHouse; the job completes meanwhile, and the ledger catches up."""
    pid = laptop.pid_of("ledger")
    os.kill(pid, signal.SIGSTOP)
    try:
        job = laptop.submit(laptop.pipeline("no-ledger"), laptop.documents(30))
        assert laptop.wait(job, is_over)["state"] == "published"
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_poisoned_record_is_quarantined_and_the_line_goes_on(laptop: Laptop) -> None:
    """Q7: undecodable bytes on a topic of an item's way stop nobody."""
    writer = KafkaLog(bootstrap(), laptop.namespace, 2).writer()
    for topic in ("item-planned", "attempt-answered", "attempt-judged", "item-settled", "shard-dispatched"):
        writer.write([Outgoing(topic, b"poison", POISON, partition) for partition in (0, 1)])
    writer.close()
    job = laptop.submit(laptop.pipeline("poisoned"), laptop.documents(30))
    assert laptop.wait(job, is_over)["state"] == "published"
    reader = KafkaLog(bootstrap(), laptop.namespace, 2).reader()
    ends = {place: reader.end(place) for place in (Place("item-planned-dlq", partition) for partition in (0, 1))}
    for place in ends:
        reader.start(place, 0)
    letters: list[Record] = []
    while any(reader.position(place) < end for place, end in ends.items()):
        letters += reader.poll(0.1, 10)
    reader.close()
    assert [letter.value for letter in letters] == [POISON, POISON]


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


GOOD = b'{"id": "a", "text": "one"}\n'
BAD_INPUTS: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "empty file": (b"", ("bad.jsonl", "empty")),
    "not utf-8": (GOOD + b'{"id": "b", "text": "\xff"}\n', ("line 2", "UTF-8")),
    "broken line": (GOOD + b'{"id": "b", "text": \n', ("line 2",)),
    "duplicate ids": (GOOD + GOOD, ("line 2", "a")),
    "row without id": (GOOD + b'{"text": "two"}\n', ("line 2", "id")),
    "row without field": (GOOD + b'{"id": "b"}\n', ("line 2", "text")),
    "not a number": (GOOD + b'{"id": "b", "text": NaN}\n', ("line 2", "NaN")),
}


@pytest.mark.parametrize("case", BAD_INPUTS)
def test_bad_input_is_refused_by_place_and_value(laptop: Laptop, simulator: Simulator, case: str) -> None:
    """P4, M5: exit code 2, the place, the value; nothing is spent and no traceback shows."""
    content, named = BAD_INPUTS[case]
    path = write(laptop.folder / "bad.jsonl", content)
    done = laptop.cli("run", laptop.pipeline("bad"), "--input", path, "--yes")
    said = done.stdout + done.stderr
    assert done.returncode == 2, said
    assert all(word in said for word in named), said
    assert "Traceback" not in said
    assert simulator.ledger()["accepted"]["calls"] == 0


def test_a_byte_order_mark_is_accepted_and_bad_rows_can_be_skipped(laptop: Laptop) -> None:
    """P2, Q6: refused rows are counted and listed, never dropped in silence."""
    path = write(laptop.folder / "mark.jsonl", b"\xef\xbb\xbf" + GOOD + b"broken\n")
    done = laptop.cli("run", laptop.pipeline("skipped"), "--input", path, "--yes", "--skip-bad-rows")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row["_source_id"] for row in laptop.results("skipped")] == ["a"]


BAD_PIPELINES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "unknown field": ({"colour": "red"}, ("pipeline.yaml", "line", "colour")),
    "no schema": ({"output": {"type": "no-such-type"}}, ("no-such-type",)),
    "unknown variable": ({"prompt": "Say {{ nothing }}"}, ("nothing",)),
    "unknown pool": ({"model": {"pools": ["nowhere"], "max_output_tokens": 8}}, ("nowhere",)),
    "unknown rule": ({"checks": [{"spelling": {}}]}, ("spelling",)),
    "budget": ({"limits": {"budget_usd": 0.0000001}}, ("budget",)),
    "sensitivity": ({"sensitivity": "restricted"}, ("restricted",)),
}


@pytest.mark.parametrize("case", BAD_PIPELINES)
def test_a_bad_pipeline_is_refused_before_anything_is_spent(laptop: Laptop, simulator: Simulator, case: str) -> None:
    """P4, P6: exit code 2, and the words that help."""
    fields, named = BAD_PIPELINES[case]
    done = laptop.cli("run", laptop.pipeline("refused", **fields), "--input", laptop.documents(5), "--yes")
    said = done.stdout + done.stderr
    assert done.returncode == 2, said
    assert all(word in said for word in named), said
    assert "Traceback" not in said
    assert simulator.ledger()["accepted"]["calls"] == 0


def test_a_wrong_token_is_refused(laptop: Laptop) -> None:
    token = laptop.home / "token"
    right = token.read_text()
    assert token.stat().st_mode & 0o777 == 0o600
    token.write_text("wrong")
    try:
        done = laptop.cli("status")
        assert done.returncode != 0
        assert "token" in done.stderr
    finally:
        token.write_text(right)


def test_missing_and_unreadable_files_are_named(laptop: Laptop) -> None:
    """Errors name the place; nothing was started."""
    folder = laptop.folder / "texts"
    folder.mkdir()
    binary = write(folder / "binary.txt", b"\xff\xfe\x00")
    for path, named in ((laptop.folder / "nowhere.jsonl", "nowhere.jsonl"), (folder, binary.name)):
        done = laptop.cli("run", laptop.pipeline("nofile"), "--input", path, "--yes", "--json")
        said = done.stdout + done.stderr
        assert done.returncode == 2, said
        assert named in said
    jobs = json.loads(laptop.cli("status", "--json").stdout)["jobs"]
    assert not any("nofile" in job["job_id"] for job in jobs)
