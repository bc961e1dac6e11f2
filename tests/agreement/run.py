"""One run: rounds of jobs through the whole line, under faults, until the ledger has so many attempts.

Every service on the memory log, real HTTP between the gateway and two simulators, and the ledger's own rows in a
ClickHouse. Nothing is killed here: what a kill costs, `tests/chaos` finds out.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from agreement import befallings, world
from agreement.world import IMPATIENT, KINDS, LONG, STOPPING, Kind
from kit import clickhouse
from kit.bill import COLUMNS, Agreement, Booked, Charge, booked, charges_of, compare
from kit.line import Line
from kit.patience import PATIENCE_S
from kit.simulator import Simulator
from nightmill.api.ledger import Ledger, in_nano_usd
from nightmill.api.requests import SqlRequest
from nightmill.api.token import ensure_token
from nightmill.kernel.domain.lifecycle import ENDED_BATCH, BatchState
from nightmill.kernel.wire.messages import Totals

#: documents of one round, which has every act once; of ten calls, eight are an item's first
ROUND = 4_000
_FIRST_CALLS = 0.8
_OWN = {"dialect": "llm_d", "prices": {"served": world.SERVED}}
_HOSTED = {"dialect": "openai"}
_FEW = 6
#: a job of which nothing was answered is held; its costs are as final as any
_STOPPED = ENDED_BATCH | {BatchState.HELD}
_STEPS = 20

Say = Callable[[str], None]


@dataclass(slots=True, kw_only=True)
class JobBooks:
    """A job by three books: what the publisher counted, what the ledger answers to `cost`, and its rows."""

    job_id: str
    totals: Totals
    costs: list[dict[str, Any]] | None  #: not asked for every job
    attempts: list[Booked]


@dataclass(slots=True, kw_only=True)
class Outcome:
    """All that a run left behind."""

    charges: list[Charge]  #: by the providers
    jobs: list[JobBooks]
    faults: Mapping[str, int]  #: calls and lines that each kind befell
    agreement: Agreement = field(init=False)

    def __post_init__(self) -> None:
        self.agreement = compare(self.charges, [attempt for job in self.jobs for attempt in job.attempts])

    @property
    def untold(self) -> list[Charge]:
        """Calls that the providers billed without their usage being delivered."""
        return [charge for charge in self.charges if charge.billed and not charge.told]


def run(folder: Path, attempts: int, *, seed: int = 1, say: Say = lambda text: None) -> Outcome:
    """Run until the ledger has at least so many attempts."""
    with _site(folder) as site:
        made = 0
        for number in range(1_000_000):
            site.round(number, seed + number, min(ROUND, int((attempts - made) * _FIRST_CALLS)))
            if number == 0:
                site.stopped(seed)
            made = site.attempts_so_far()
            say(f"round {number + 1}: {made:,} attempts")
            if made >= attempts:
                break
        return site.outcome()


@contextmanager
def _site(folder: Path) -> Iterator["Site"]:
    with ExitStack() as stack:
        hosted = stack.enter_context(Simulator(_HOSTED))
        own = stack.enter_context(Simulator(_OWN))
        url = stack.enter_context(clickhouse.server(folder / "clickhouse"))
        config = world.config(folder, hosted=hosted.base_url, own=own.base_url)
        token = ensure_token(folder / "token")
        line = Line(folder, config, bulk_timing=world.TIMING, clickhouse_url=url)
        stack.callback(line.close)
        ledger = Ledger(folder / "run" / "ledger.port", token)
        stack.callback(ledger.close)
        yield Site(line=line, hosted=hosted, own=own, ledger=ledger)


@dataclass(slots=True, kw_only=True)
class Site:
    """The line, its providers and its ledger."""

    line: Line
    hosted: Simulator
    own: Simulator
    ledger: Ledger
    jobs: list[str] = field(default_factory=list)

    def round(self, number: int, seed: int, documents: int) -> None:
        """Every act once, each begun when the batches of the one before are created; until all jobs have ended."""
        each = max(1, documents // (len(befallings.ACTS) * len(KINDS)))
        for place, act in enumerate(befallings.ACTS):
            self._set(seed, act)
            created = self._created()
            for kind in KINDS:
                self._submit(kind, each, f"r{number}-{place}")
            if number == place == 0:
                for kind in (*LONG, IMPATIENT):
                    self._submit(kind, _FEW, "once")
            bulk = sum(kind.bulk for kind in KINDS)
            self._until(partial(self._has_created, created + bulk))
        self._until(self._all_ended)

    def stopped(self, seed: int) -> None:
        """Pools that their provider refuses: nothing of them is billed, and when it serves them again they go on."""
        for kind in STOPPING:
            self._submit(kind, _FEW, "stopped")
        self._until(lambda: len({stall.subject for stall in self.line.gateway.stalls()}) >= len(STOPPING))
        for simulator, fields in ((self.hosted, _HOSTED), (self.own, _OWN)):
            simulator.set_scenario({"seed": seed, **fields})
        self.line.loops.pop("provider_gateway").close()  # pauses are in memory: a person starts it again
        self.line.start("provider_gateway")
        self._until(self._all_ended)

    def attempts_so_far(self) -> int:
        self._until(self._ledger_is_there)
        ((count,),) = self._sql("SELECT count() FROM attempts FINAL")
        return int(count)

    def outcome(self) -> Outcome:
        charges = charges_of(row for each in (self.hosted, self.own) for row in each.attempts(refused=True))
        faults = Counter[str]()
        for simulator in (self.hosted, self.own):
            faults.update(simulator.ledger()["by_fault"])
        return Outcome(charges=charges, jobs=list(self._jobs()), faults=faults)

    def _jobs(self) -> Iterator[JobBooks]:
        """The books of every job; what `cost` answers is asked of the last one of each pipeline."""
        rows = self.line.publications()
        attempts: defaultdict[str, list[Booked]] = defaultdict(list)
        for pipeline in sorted({job.split(".")[1] for job in self.jobs}):
            query = f"SELECT job_id, {COLUMNS} FROM attempts FINAL WHERE pipeline = '{pipeline}'"
            for job_id, *found in self._sql(query):
                attempts[job_id].append(booked(found))
        last = {job.split(".")[1]: job for job in self.jobs}
        for job in self.jobs:
            totals, costs = rows[job].totals, None
            if job in last.values():
                costs = [in_nano_usd(each) for each in self.ledger.named("job_cost_by_model", {"job_id": job})]
            yield JobBooks(job_id=job, totals=totals, costs=costs, attempts=attempts.pop(job, []))
        assert not attempts, f"attempts of jobs that nobody submitted: {sorted(attempts)}"

    def _submit(self, kind: Kind, count: int, name: str) -> None:
        rows = world.documents(kind, count, f"{kind.pool}-{name}")
        self.jobs.append(self.line.submit(world.pipeline(kind), rows))

    def _set(self, seed: int, act: list[befallings.Rule]) -> None:
        self.hosted.set_scenario(befallings.scenario(seed, act, **_HOSTED))
        self.own.set_scenario(befallings.scenario(seed, act, **_OWN))

    def _created(self) -> int:
        return sum(int(each.ledger()["batches"]["created"]) for each in (self.hosted, self.own))

    def _has_created(self, batches: int) -> bool:
        return self._created() >= batches

    def _all_ended(self) -> bool:
        rows = self.line.publications()
        return all(job in rows and rows[job].state in _STOPPED for job in self.jobs)

    def _ledger_is_there(self) -> bool:
        log = self.line.log
        return all(log.lag("ledger", topic) == 0 for topic in ("attempt-judged", "item-settled"))

    def _until(self, done: Callable[[], bool]) -> None:
        """Step until so. Some of these questions are dear."""
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            for _ in range(_STEPS):
                self.line.step()
            assert time.monotonic() < deadline, f"waited in vain: {self._standstill()}"

    def _standstill(self) -> str:
        rows = self.line.publications()
        open_jobs = [job for job in self.jobs if job not in rows or rows[job].state not in _STOPPED]
        stalls = [f"{stall.subject}: {stall.reason}" for stall in self.line.gateway.stalls()]
        return f"{len(open_jobs)} of {len(self.jobs)} jobs are open: {open_jobs[:20]}; stalls: {stalls}"

    def _sql(self, query: str) -> Sequence[Sequence[Any]]:
        answer = self.ledger.sql(SqlRequest(sql=query, max_rows=100_000, max_seconds=60))
        assert not answer.truncated
        return answer.rows
