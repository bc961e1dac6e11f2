"""Full disks: each place says which it is and what to do, nothing is lost or published twice, and it passes by itself.

Where the tests may not mount a disk, the service that writes there is forbidden to make files longer (kit/disk.py).
"""

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kit.disk import FULL, Disk, small_disk
from kit.laptop import Laptop
from kit.patience import PATIENCE_S
from kit.simulator import Simulator
from nightmill.kernel.runtime.kafka.admin import create_topics
from nightmill.local.processes import is_alive

_T = TypeVar("_T")
SLOTS = 20
ITEMS = 200
#: slow enough that the job is under way when its disk is full
_SLOW_MS = 4_000
_MEBIBYTES = 160
_HOME_MEBIBYTES = 4_096
#: for the supervisor's state while its disk is full
_TO_TELL = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A folder of the home, the service that suffers first, and what is said then."""

    folder: str
    service: str
    words: str
    ends: bool = False  #: the service's process ends and says so in `ps`; else it waits, and `status` tells


PLACES = (
    Place(folder="results", service="publisher", words="staging results in"),
    Place(folder="outbox", service="provider_gateway", words="outbox in"),
    Place(folder="ledger", service="ledger", words="does not take rows"),
    Place(folder="state", service="dispatcher", words="local tables in", ends=True),
)


@pytest.fixture(scope="module")
def provider() -> Iterator[Simulator]:
    with Simulator() as simulator:
        yield simulator


def answer_in(provider: Simulator, milliseconds: int) -> None:
    provider.set_scenario({"latency": {"fixed_ms": milliseconds}})


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Not one of pytest's own, which sweeps those of other runs, mounted disks or not."""
    with tempfile.TemporaryDirectory(prefix="nightmill-disks-") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def disks(folder: Path) -> Iterator[dict[str, Disk]]:
    home = folder / "places" / "home"
    with ExitStack() as mounts:
        yield {each.folder: mounts.enter_context(small_disk(home / each.folder, _MEBIBYTES)) for each in PLACES}


@pytest.fixture(scope="module")
def laptop(provider: Simulator, disks: dict[str, Disk]) -> Iterator[Laptop]:
    running = Laptop(disks["state"].folder.parents[1], provider.base_url, slots=SLOTS)
    running.up()
    yield running
    running.close()


def settled(least: int) -> Callable[[Mapping[str, Any]], bool]:
    return lambda status: int(status["settled"]) >= least


def is_published(status: Mapping[str, Any]) -> bool:
    return bool(status["state"] == "published")


def process(laptop: Laptop, name: str) -> dict[str, Any]:
    processes: list[dict[str, Any]] = laptop.json("ps")["processes"]
    return next(each for each in processes if each["name"] == name)


def refused_to_start(laptop: Laptop, name: str) -> str | None:
    said = str(process(laptop, name)["ended"] or "")
    return said if said.startswith("could not be started") else None


def until(laptop: Laptop, ask: Callable[[], _T | None], patience_s: float = PATIENCE_S) -> _T:
    """Ask until there is an answer."""
    deadline = time.monotonic() + patience_s
    while (answer := ask()) is None:
        assert time.monotonic() < deadline, laptop.log_tails()
        time.sleep(0.3)
    return answer


def told(laptop: Laptop, job: str, place: Place) -> str | None:
    """What a person reads of the full place: in `status` of a service that waits, in `ps` of one that ended."""
    if place.ends:
        # whoever writes first: once the gateway or the governor has ended, the others may have nothing to write
        ends = [str(each["ended"] or "") for each in laptop.json("ps")["processes"]]
        return next((said for said in ends if place.words in said and str(place.folder) in said), None)
    waiting = laptop.json("status", job)["waiting"]
    return next((str(each["reason"]) for each in waiting if place.words in each["reason"]), None)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.folder)
def test_a_full_disk_is_named_waited_out_and_nothing_is_lost(
    laptop: Laptop, disks: dict[str, Disk], provider: Simulator, place: Place
) -> None:
    """E1, E2, E11, M4, O1: in the middle of a job, until space is freed; nobody restarts or resumes anything."""
    provider.reset()
    answer_in(provider, _SLOW_MS)
    disk = disks[place.folder]
    suffering = process(laptop, place.service)
    limited = [] if disk.mounted else [suffering["pid"]]
    job = laptop.submit(laptop.pipeline(f"full-{place.folder}"), laptop.documents(ITEMS))
    laptop.wait(job, settled(1))
    disk.fill(limited)
    answer_in(provider, 20)
    try:
        # the ledger's engine writes past a limit on its process: only a real disk stops it
        if place.ends and not disk.mounted:
            # it may not write to its log either: `ps` knows the exit code alone
            until(laptop, lambda: (process(laptop, place.service)["ended"] or "")[:11] == "exit code 1" or None)
        elif disk.mounted or place.folder != "ledger":
            said = until(laptop, lambda: told(laptop, job, place))
            assert any(sign in said for sign in FULL)
            assert str(disk.folder) in said
        if disk.mounted:
            expect_named(laptop, disk.folder)
    finally:
        disk.free(limited)
    status = laptop.wait(job, is_published)
    assert status["counts"]["accepted"] == ITEMS
    rows = laptop.results(f"full-{place.folder}")
    assert Counter(row["_source_id"] for row in rows) == Counter(f"d{i}" for i in range(ITEMS))
    lives = process(laptop, place.service)["restarts"] - suffering["restarts"]
    assert lives <= (12 if place.ends else 0)
    # a gateway that waits loses no answer; where its tables are full too, it ends, and with it the calls in flight
    assert provider.ledger()["billed"]["calls"] <= ITEMS + (SLOTS if place.ends else 0)
    # a call in flight when the gateway ended is an attempt of unknown outcome, and its item has another one
    attempts = int(status["spent"]["attempts"])
    assert attempts >= provider.ledger()["billed"]["calls"]
    assert place.ends or attempts == ITEMS
    expect_recorded(laptop, job, attempts)


def expect_named(laptop: Laptop, folder: Path) -> None:
    """`doctor` and `ps` name the disk and the remedy, whatever has noticed it so far."""
    checks = {check["name"]: check for check in laptop.json("doctor")["checks"]}
    full = checks[f"disk of {folder.name}"]
    assert full["fatal"]
    assert str(folder) in full["detail"]
    assert "free 64 MiB there" in full["remedy"]
    assert laptop.cli("doctor").returncode == 2
    assert any(str(folder) in line and "free space there" in line for line in laptop.json("ps")["short_of_space"])
    assert f"no space: {folder}" in laptop.cli("ps").stdout


def expect_recorded(laptop: Laptop, job: str, count: int) -> None:
    """The ledger has each call, once."""
    question = f"SELECT count() AS n, uniqExact(attempt_id) AS ids FROM attempts WHERE job_id = '{job}'"
    deadline = time.monotonic() + PATIENCE_S
    while True:
        asked = laptop.cli("sql", question, "--json")
        if f"[[{count},{count}]]" in "".join(asked.stdout.replace('"', "").split()):
            return
        assert time.monotonic() < deadline, f"not {count}: {asked.stdout}{asked.stderr}{laptop.log_tails(30)}"
        time.sleep(0.3)


def expect_billed(laptop: Laptop, job: str, provider: Simulator) -> None:
    """What the ledger knows was billed, and what was billed is known or, where a gateway ended, counted as unknown."""
    counts = "countIf(state = 'answered') AS a, countIf(state = 'unknown') AS u"
    question = f"SELECT {counts} FROM attempts WHERE job_id = '{job}'"
    answered, unknown = (int(value) for value in laptop.json("sql", question)["rows"][0])
    billed = provider.ledger()["billed"]["calls"]
    assert answered == ITEMS
    assert answered <= billed <= answered + unknown


def test_a_home_whose_one_disk_is_full_comes_back_whole(
    provider: Simulator, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E1, E2, E11, O1: broker, tables, staging, ledger and logs on one full disk, in the middle of a job.

    The supervisor lives on and says so, does not start a broker that would lose its topics, and once there is space the
    job goes on to its end without a person, transactions that the broker left open included.
    """
    provider.reset()
    answer_in(provider, _SLOW_MS)
    monkeypatch.setattr("kit.laptop.bootstrap", lambda: "local")
    with small_disk(folder / "one" / "home", _HOME_MEBIBYTES) as disk:
        laptop = Laptop(folder / "one", provider.base_url, slots=SLOTS)
        laptop.up()
        try:
            job = laptop.submit(laptop.pipeline("everything"), laptop.documents(ITEMS))
            laptop.wait(job, settled(1))
            supervisor = laptop.json("ps")
            broker = next(each for each in supervisor["processes"] if each["name"] == "broker")
            limited = [] if disk.mounted else [each["pid"] for each in supervisor["processes"]]
            disk.fill(limited)
            answer_in(provider, 20)
            try:
                if disk.mounted:
                    until(laptop, lambda: not is_alive(broker["pid"], broker["birth"]) or None)
                    # enough to tell of it, too little for a broker: started now, it would lose its topics
                    disk.spare(_TO_TELL)
                    ended = until(laptop, lambda: refused_to_start(laptop, "broker"))
                    assert str(disk.folder) in ended
                    assert "MiB free: free space there" in ended
                    assert any("free space there" in line for line in laptop.json("ps")["short_of_space"])
                    assert laptop.cli("doctor").returncode == 2
                else:
                    until(laptop, lambda: process(laptop, "broker")["ended"])
            finally:
                disk.free(limited)
            until(laptop, lambda: process(laptop, "broker")["ready"] or None)
            assert create_topics(laptop.json("ps")["kafka"], laptop.namespace, partitions=2) == 0, "topics are gone"
            status = laptop.wait(job, is_published)
            assert status["counts"]["accepted"] == ITEMS
            rows = laptop.results("everything")
            assert Counter(row["_source_id"] for row in rows) == Counter(f"d{i}" for i in range(ITEMS))
            expect_recorded(laptop, job, int(status["spent"]["attempts"]))
            expect_billed(laptop, job, provider)
        finally:
            laptop.down()
