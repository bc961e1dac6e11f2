"""One run: a batch job, the gateway's death at its moment, and the evidence afterwards."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from chaos.bulk.oracle import Books, Evidence, Findings, judge
from chaos.bulk.plan import BulkPlan, Moment
from chaos.bulk.rows import history
from chaos.bulk.workload import documents, failing, pipeline
from chaos.installation import Installation
from chaos.plan import GATEWAY, Fault, Kind
from chaos.run import Limits, await_end, await_ready, await_settled, items_of, until
from chaos.watch import Watch, now_ms
from kit.bill import Booked, booked_of, charges_of, compare
from kit.patience import PATIENCE_S
from kit.simulator import Simulator
from nightmill.client import Client, Job, NightmillError
from nightmill.local.status import running_state

_KILL = Fault(kind=Kind.KILL, victims=(GATEWAY,))


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkResult:
    """A run that is over. `ledger_s`: from the job's end until the ledger had all of it."""

    plan: BulkPlan
    findings: Findings
    killed_after_s: tuple[float, ...]
    job_s: float
    ledger_s: float


def carry_out(
    plan: BulkPlan,
    site: Installation,
    simulator: Simulator,
    limits: Limits,
    *,
    scenario: Callable[[int], dict[str, Any]] = failing,
    job_s: float = 0.0,
) -> BulkResult:
    """Do the run; `job_s` is what the job takes when nobody dies. Raises `Stuck`."""
    name = f"bulk-{plan.number}"
    simulator.set_scenario(scenario(plan.number))
    simulator.reset()
    path, ids = documents(site.laptop, name, limits.items)
    with site.client() as client, Watch(site.home) as watch:
        started_s, since_ms = time.monotonic(), now_ms()
        job = client.run(pipeline(site.laptop, name), path, wait=False)
        killed_at_ms: list[int] = []
        for moment in plan.moments:
            _await_moment(moment, job, simulator, started_s + (moment.share or 0) * job_s, limits)
            # nobody dies twice of one kill: on a busy machine the next moment can be there before the gateway is
            until(lambda: GATEWAY in site.pids(), bool, limits.patience_s)
            with site.befallen(_KILL, watch, pause_s=0) as cut_at_ms:
                killed_at_ms += cut_at_ms
        status = await_end(job, limits)
        took_s = time.monotonic() - started_s
        ready_ms = await_ready(watch, killed_at_ms[-1]) if killed_at_ms else None
        ended_s = time.monotonic()
        books = _collect(client, job, simulator, site, since_ms, len(ids))
        ledger_s = time.monotonic() - ended_s
        published = [row["_source_id"] for row in job.results()] if status.version is not None else []
    evidence = Evidence(
        documents=ids,
        state=status.state.value,
        published=published,
        books=books,
        killed_at_ms=killed_at_ms,
        ready_at_ms=None if ready_ms is None else killed_at_ms[-1] + ready_ms,
    )
    killed_after_s = tuple((at_ms - since_ms) / 1000 for at_ms in killed_at_ms)
    return BulkResult(
        plan=plan, findings=judge(evidence), killed_after_s=killed_after_s, job_s=took_s, ledger_s=ledger_s
    )


def _await_moment(moment: Moment, job: Job, simulator: Simulator, at_s: float, limits: Limits) -> None:
    """`at_s`: when it is, of a moment that is a share of the time."""
    if moment.share is not None:
        time.sleep(max(0.0, at_s - time.monotonic()))
    elif moment.settled is not None:
        await_settled(job, moment.settled * limits.items, limits)
    else:
        until(lambda: _created(simulator), lambda created: created >= moment.create, limits.patience_s)
        time.sleep(moment.delay_s)


def _created(simulator: Simulator) -> int:
    created: int = simulator.ledger()["batches"]["created"]
    return created


def _collect(
    client: Client, job: Job, simulator: Simulator, site: Installation, since_ms: int, documents: int
) -> Books:
    """The books, once the ledger has caught up with the provider; what it still lacks then is for the judge to see."""
    state = running_state(site.home)
    assert state is not None, "nothing runs"
    charges = charges_of(simulator.attempts(refused=True))
    deadline = time.monotonic() + PATIENCE_S
    while True:
        booked, items = _booked(client, job), items_of(client, job.job_id)
        caught_up = len(items) >= documents and compare(charges, booked).agrees
        if caught_up or time.monotonic() >= deadline:
            break
        time.sleep(0.5)
    return Books(
        items=items,
        rows=history(state.kafka, site.laptop.namespace, since_ms=since_ms),
        created=_created(simulator),
        charges=charges,
        booked=booked,
    )


def _booked(client: Client, job: Job) -> list[Booked]:
    try:
        return booked_of(client, job.job_id)
    except NightmillError:  # the ledger is on its way back
        return []
