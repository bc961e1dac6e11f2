"""Nightmill as a subject: an installation of its own, in a temporary home, driven by the public client."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from bench.usage import disk_bytes, load_now, peak_rss_mib, reset_peak_rss, snapshot
from bench.workload import BULK, IN_FLIGHT, MAX_OUTPUT_TOKENS, Run, Workload, finished
from kit.laptop import Laptop
from kit.simulator import Simulator
from nightmill.api.models import JobStatus
from nightmill.client import Client, Job
from nightmill.client.progress import STOPPED
from nightmill.kernel.domain.lifecycle import BatchState
from nightmill.kernel.runtime.kafka.admin import delete_topics
from nightmill.local.home import Home
from nightmill.local.status import running_state

LINE = "Nightmill, end to end"

_POLL_S = 0.1
#: without any progress a job is given up
_STALL_S = 120.0
_UP_TIMEOUT_S = 300.0
_BUDGET_USD = 1_000

_INSTANT_UP = Path(__file__).with_name("instant_up.py")
#: folders of a home that keep something of every item
_KEEPING = ("broker", "state", "outbox", "blobs", "ledger", "results", "logs")
#: what a topic's folder is called: namespace, topic, partition
_TOPIC_FOLDERS = "broker/data/{namespace}.*-*"


class Way(StrEnum):
    """How the line's calls are made."""

    REALTIME = "realtime"  #: each to the simulator
    BULK = "bulk"  #: through the simulator's Batch API
    INSTANT = "instant"  #: not at all: answers are made inside the gateway


class NotStarted(Exception):
    """`nightmill up` failed, or its end is near; the text is what it said."""


class Stalled(Exception):
    """A job made no progress; the text says where it stood."""


class Line:
    """One installation. Its broker is its own, unless `external` names one that runs.

    `way`: how its calls are made.
    """

    def __init__(self, folder: Path, simulator: Simulator, *, way: Way, external: str | None) -> None:
        pool = {"provider": "openai", "bulk": BULK} if way is Way.BULK else {}
        self._laptop = Laptop(folder, simulator.base_url, slots=IN_FLIGHT, pool=pool)
        self._simulator = simulator
        self._way = way
        self.external = external

    def up(self) -> float:
        """Start everything; seconds until it said that it is ready."""
        kafka, config = self.external or "local", str(self._laptop.config)
        command = [sys.executable, "-m", "nightmill.cli.main", "up", "--detach", "--kafka", kafka, "--config", config]
        if self._way is Way.INSTANT:
            command = [sys.executable, str(_INSTANT_UP), "--detach", kafka, config]
        started_s = time.perf_counter()
        done = subprocess.run(
            command,
            env=self._laptop.environment,
            capture_output=True,
            text=True,
            timeout=_UP_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise NotStarted(done.stdout + done.stderr + self._laptop.log_tails())
        return time.perf_counter() - started_s

    def down(self) -> None:
        """Stop everything in order; also what a failed `up` left."""
        self._laptop.cli("down")

    def forget(self) -> None:
        """Delete the topics of a broker that goes on."""
        if self.external is not None:
            delete_topics(self.external, self._laptop.namespace)

    def pids(self) -> dict[str, int]:
        """The processes that run now, the supervisor among them; a broker of somebody else is not."""
        state = running_state(Home(root=self._laptop.home))
        if state is None:
            raise NotStarted(f"no supervisor is known in {self._laptop.home} any more{self.log_tails()}")
        found = {each.name: each.pid for each in state.processes if each.pid is not None and each.alive}
        return found | {"supervisor": state.supervisor_pid}

    def log_tails(self) -> str:
        """The last lines of every process's log."""
        return self._laptop.log_tails()

    def run(self, work: Workload, *, subject: str = LINE) -> Run:
        """Submit the workload as one job; it has ended when its version is published and the ledger has all calls."""
        documents = self._write(work)
        limits = {"budget_usd": _BUDGET_USD}
        model = {"pools": ["sim"], "max_output_tokens": MAX_OUTPUT_TOKENS}
        lane = "bulk" if self._way is Way.BULK else "realtime"
        pipeline = self._laptop.pipeline(work.name, limits=limits, model=model, lane=lane)
        own = self.pids()
        for pid in own.values():
            reset_peak_rss(pid)
        load_before, disk_before = load_now(), self._disk_bytes()
        with Client(self._laptop.home) as client:
            before, started_s = snapshot(own | {"simulator": self._simulator.pid}), time.perf_counter()
            job = client.run(pipeline, documents, wait=False)
            try:
                problem = _follow(client, job, len(work.texts))
            except Stalled as error:
                problem = str(error)
            elapsed_s = time.perf_counter() - started_s
            after = snapshot(self.pids() | {"simulator": self._simulator.pid})
            peaks = {name: peak_rss_mib(pid) for name, pid in self.pids().items()}
            grown = {name: size - disk_before.get(name, 0) for name, size in self._disk_bytes().items()}
            problem = problem or _problem_of_results(client, job, work)
        run = finished(
            subject, work, elapsed_s=elapsed_s, before=before, after=after, load_before=load_before, problem=problem
        )
        return replace(run, peak_rss_mib=peaks, disk_bytes=grown)

    def _disk_bytes(self) -> dict[str, int]:
        """What the folders of the home hold, and the broker's topics apart."""
        home = self._laptop.home
        held = Counter({name: disk_bytes(home / name) for name in _KEEPING})
        for folder in home.glob(_TOPIC_FOLDERS.format(namespace=self._laptop.namespace)):
            topic = folder.name.rpartition("-")[0].partition(".")[2]
            held[f"broker: {topic}"] += disk_bytes(folder)
        return dict(held)

    def _write(self, work: Workload) -> Path:
        path = self._laptop.folder / f"{work.name}.jsonl"
        rows = ({"id": _source_id(number), "text": text} for number, text in enumerate(work.texts))
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path


@contextmanager
def installed(folder: Path, simulator: Simulator, *, way: Way) -> Iterator[Line]:
    """An installation that is down at first, and down and forgotten at the end, whatever happens between."""
    line = Line(folder, simulator, way=way, external=os.environ.get("NIGHTMILL_TEST_KAFKA"))
    try:
        yield line
    finally:
        line.down()
        line.forget()


def _source_id(number: int) -> str:
    return f"d{number}"


def _follow(client: Client, job: Job, items: int) -> str | None:
    """Wait for the job, then for the ledger; None, or what is wrong with its end."""
    status = _wait_stopped(job)
    if status.state is not BatchState.PUBLISHED or status.counts.accepted != items:
        return f"{status.state.value}, {status.counts.accepted} of {items} accepted: {status.reason}"
    _wait_ledger(client, job.job_id, status.spent.attempts)
    return None


def _wait_stopped(job: Job) -> JobStatus:
    patience = _Patience()
    while (status := job.status()).state not in STOPPED:
        patience.look((status.state, status.read_rows, status.settled), f"the job stands still: {status!r}")
        time.sleep(_POLL_S)
    return status


def _wait_ledger(client: Client, job_id: str, attempts: int) -> None:
    patience = _Patience()
    query = f"SELECT count() FROM attempts WHERE job_id = '{job_id}'"
    while (found := int(client.sql(query).rows[0][0])) < attempts:
        patience.look(found, f"the ledger has {found} of {attempts} attempts")
        time.sleep(_POLL_S)


def _problem_of_results(client: Client, job: Job, work: Workload) -> str | None:
    """Every document must be published exactly once."""
    published = Counter(row["_source_id"] for row in job.results())
    wanted = Counter(_source_id(number) for number in range(len(work.texts)))
    if published == wanted:
        return None
    missing, more = (wanted - published).total(), (published - wanted).total()
    return f"published: {missing} of {wanted.total()} items are missing, {more} too many"


class _Patience:
    """Raises `Stalled` when nothing changed for too long."""

    def __init__(self) -> None:
        self._seen: object = None
        self._since_s = time.monotonic()

    def look(self, progress: object, complaint: str) -> None:
        now_s = time.monotonic()
        if progress != self._seen:
            self._seen, self._since_s = progress, now_s
        elif now_s - self._since_s > _STALL_S:
            raise Stalled(complaint)
