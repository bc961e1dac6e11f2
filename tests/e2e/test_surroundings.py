"""What the machine and the network do to a laptop: each fault has words, and passes without a person (E1, E9, E11, O1).

One laptop, its ledger on a ClickHouse of its own and its provider behind a door, so that both can be away.
"""

import json
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kit.clickhouse import front
from kit.disk import read_only, small_disk
from kit.door import Door
from kit.laptop import NOT_RUNNING, Laptop
from kit.simulator import Simulator
from nightmill.cli.main import run
from nightmill.local.doctor import check_descriptors
from nightmill.local.processes import free_port

SLOTS = 20
_LATENCY_MS = 100
#: a job takes long enough to be met in its middle
_SLOW_MS = 1_000
_OUTAGE_MS = 60_000


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with Simulator({"latency": {"fixed_ms": _LATENCY_MS}}) as provider:
        yield provider


@pytest.fixture(scope="module")
def door(simulator: Simulator) -> Iterator[Door]:
    with Door(simulator.port) as between:
        yield between


@pytest.fixture(scope="module")
def clickhouse_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def laptop(door: Door, clickhouse_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIGHTMILL_CLICKHOUSE", f"http://127.0.0.1:{clickhouse_port}")
        running = Laptop(tmp_path_factory.mktemp("surroundings"), door.base_url, slots=SLOTS)
        running.up()
        yield running
        running.close()


def is_published(status: Mapping[str, Any]) -> bool:
    return bool(status["state"] == "published")


def settled(least: int) -> Callable[[Mapping[str, Any]], bool]:
    return lambda status: int(status["settled"]) >= least


def waits(*words: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda status: any(all(word in each["reason"] for word in words) for each in status["waiting"])


def expect_each_once(laptop: Laptop, name: str, count: int) -> None:
    rows = laptop.results(name)
    assert Counter(row["_source_id"] for row in rows) == Counter(f"d{i}" for i in range(count))


def test_a_minute_without_provider_and_clickhouse_is_named_and_waited_out(
    laptop: Laptop, door: Door, simulator: Simulator, clickhouse_port: int, tmp_path: Path
) -> None:
    """E1, E9, M4, O1: both are away for a minute in the middle of a job, ClickHouse still when it is published.

    Items wait and die of nothing, `status` says why and how far the ledger is behind, and all goes on by itself.
    """
    simulator.reset()
    simulator.set_scenario({"latency": {"fixed_ms": _SLOW_MS}})
    job = laptop.submit(laptop.pipeline("away"), laptop.documents(300))
    laptop.wait(job, settled(20))
    door.shut()
    simulator.set_scenario({"latency": {"fixed_ms": _LATENCY_MS}})
    try:
        status = laptop.wait(job, waits("pool sim is paused", "no connection to the provider"))
        assert status["state"] == "running"
        laptop.wait(job, waits("ClickHouse", f"127.0.0.1:{clickhouse_port}"))
        said = laptop.cli("status", job).stdout
        assert "waiting   provider_gateway: pool sim is paused: no connection to the provider" in said
        assert "tried again" in said
        laptop.wait(job, both_away)
    finally:
        door.open()
    laptop.wait(job, is_published)
    status = laptop.wait(job, lambda now: (now["ledger_behind"] or 0) >= 300)
    assert status["counts"]["accepted"] == 300
    assert not any("pool" in each["reason"] for each in status["waiting"])
    expect_each_once(laptop, "away", 300)
    assert "cost, explain and sql lag, the job does not" in laptop.cli("status", job).stdout
    assert laptop.cli("cost", job).returncode == NOT_RUNNING
    with front(tmp_path / "clickhouse", clickhouse_port):
        laptop.wait(job, lambda now: now["ledger_behind"] == 0)
        query = f"SELECT count() AS n, countIf(state = 'answered') AS a FROM attempts WHERE job_id = '{job}'"
        attempts, answered = [int(value) for value in laptop.json("sql", query)["rows"][0]]
    billed = simulator.ledger()["billed"]["calls"]
    # a call that was under way when the provider left is billed, and its item has another one
    assert 300 <= billed <= attempts
    assert billed <= 300 + SLOTS
    assert answered == 300


def both_away(status: Mapping[str, Any]) -> bool:
    """The pool and ClickHouse have been away for a minute, and no item died of it."""
    assert status["counts"]["dead_letter"] == 0
    now_ms = time.time() * 1000
    lasting = [each["reason"] for each in status["waiting"] if now_ms - each["since_ms"] >= _OUTAGE_MS]
    return any("pool sim" in reason for reason in lasting) and any("ClickHouse" in reason for reason in lasting)


def test_a_gateway_without_file_descriptors_says_so_and_goes_on(
    laptop: Laptop, door: Door, simulator: Simulator
) -> None:
    """E11, O1: the limit is lowered under the running process to what it has open, and lifted again."""
    simulator.reset()
    pid = laptop.pid_of("provider_gateway")
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    # it keeps what it has open, and gets nothing new
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (16, hard))
    door.shut()  # nor the connections that are left of an earlier job
    door.open()
    try:
        job = laptop.submit(laptop.pipeline("descriptors"), laptop.documents(100))
        status = laptop.wait(job, waits("ulimit -n"))
        assert status["counts"]["dead_letter"] == 0
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
    assert laptop.wait(job, is_published)["counts"]["accepted"] == 100
    assert laptop.pid_of("provider_gateway") == pid
    expect_each_once(laptop, "descriptors", 100)


def test_a_home_that_can_not_be_written_is_refused_with_place_and_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """E11: exit code 2, one sentence, nothing started, no traceback; `doctor` says the same."""
    (tmp_path / "file").write_text("no folder")
    with read_only(tmp_path / "disk") as disk, small_disk(tmp_path / "full", 8) as full:
        homes = {
            disk / "home": "it lies on a read-only disk" if disk.is_mount() else "--home",
            tmp_path / "file": "a file stands where a folder is wanted",
            tmp_path / "file" / "below": "a file stands where a folder is wanted",
            Path("/proc/nightmill"): "--home",
        }
        if full.mounted:
            full.fill()
            homes[full.folder] = "free space there"
        for home, remedy in homes.items():
            for verb in (("up", "--detach"), ("doctor",)):
                code = run([*verb, "--home", str(home)])
                said = "".join(capsys.readouterr())
                assert code == 2, said
                assert f"cannot write to the home folder {home}: " in said
                assert remedy in said
                assert "--home" in said
                assert "Traceback" not in said
            for asked, ends in (("ps", NOT_RUNNING), ("status", NOT_RUNNING), ("down", 0)):
                assert run([asked, "--home", str(home)]) == ends
                assert str(home) in "".join(capsys.readouterr())


def test_doctor_warns_of_few_file_descriptors(tmp_path: Path) -> None:
    """O1: before anything fails for it, and stops nobody."""
    command = f'ulimit -n 256; exec "{sys.executable}" -m nightmill.cli.main doctor --json --home "{tmp_path}"'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    found = checks["open files"]
    assert not found["ok"]
    assert not found["fatal"]
    assert found["detail"] == "only 256 allowed"
    assert "ulimit -n 4096" in found["remedy"]
    assert check_descriptors(4096).ok
