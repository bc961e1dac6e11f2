"""One run: a job, its fault at its moment, and the evidence afterwards."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from chaos.installation import Installation
from chaos.oracle import Attempt, Call, Evidence, Findings, Item, judge
from chaos.plan import GATEWAY, Moment, Plan
from chaos.watch import Watch, now_ms
from chaos.workload import documents, pipeline, scenario
from kit.patience import PATIENCE_S
from kit.simulator import Simulator
from nightmill.api.models import JobStatus
from nightmill.client import Client, Job, NightmillError
from nightmill.client.progress import STOPPED

_POLL_S = 0.05
_MOST_ROWS = 100_000

_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How big a job is, how long a pause lasts, and when a job is given up."""

    items: int
    pause_s: float = 30.0
    patience_s: float = PATIENCE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A run that is over. `ready_ms`: from the fault until every process was ready; None: none was missing."""

    plan: Plan
    findings: Findings
    ready_ms: int | None
    job_s: float


class Stuck(Exception):
    """The run did not get to its end; the text says where it stood."""


def carry_out(plan: Plan, site: Installation, simulator: Simulator, limits: Limits) -> Result:
    """Do the run. Raises `Stuck`; then the installation is in a state that nobody knows."""
    name = f"run-{plan.number}"
    simulator.set_scenario(scenario(plan.number))
    simulator.reset()
    path, ids = documents(site.laptop, name, limits.items)
    with site.client() as client, Watch(site.home) as watch:
        started_s = time.monotonic()
        job = client.run(pipeline(site.laptop, name), path, wait=False)
        _await_moment(job, plan.moment, started_s, limits)
        fault_at_ms = now_ms()
        with site.befallen(plan.fault, watch, pause_s=limits.pause_s) as cut_at_ms:
            status = await_end(job, limits)
            job_s = time.monotonic() - started_s
            ready_ms = await_ready(watch, fault_at_ms)
            lost_calls_at_ms = sorted({*cut_at_ms, *watch.deaths(GATEWAY)})
            evidence = _collect(client, job, status, simulator, ids, fault_at_ms, lost_calls_at_ms)
    return Result(plan=plan, findings=judge(evidence), ready_ms=ready_ms, job_s=job_s)


def _await_moment(job: Job, moment: Moment, started_s: float, limits: Limits) -> None:
    if moment.share is None:
        time.sleep(max(0.0, started_s + moment.after_s - time.monotonic()))
        return
    await_settled(job, moment.share * limits.items, limits)


def await_settled(job: Job, items: float, limits: Limits) -> None:
    """Return when so many items have an outcome. Raises `Stuck`."""
    until(lambda: _status(job), lambda found: found is not None and found.settled >= items, limits.patience_s)


def await_end(job: Job, limits: Limits) -> JobStatus:
    """The status in which the job stopped. Raises `Stuck`."""
    ended = until(lambda: _status(job), lambda found: found is not None and found.state in STOPPED, limits.patience_s)
    assert ended is not None
    return ended


def await_ready(watch: Watch, fault_at_ms: int) -> int | None:
    """From the fault until all processes are ready; None when none was missing. Raises `Stuck`."""
    since_ms = until(watch.ready_since_ms, lambda found: found is not None, PATIENCE_S)
    return since_ms - fault_at_ms if since_ms else None


def _status(job: Job) -> JobStatus | None:
    try:
        return job.status()
    except NightmillError:
        return None


def until(look: Callable[[], _Found], is_it: Callable[[_Found], bool], patience_s: float) -> _Found:
    """Look again and again until it is there. Raises `Stuck`."""
    deadline = time.monotonic() + patience_s
    while not is_it(found := look()):
        if time.monotonic() >= deadline:
            raise Stuck(f"waited {patience_s:.0f} s in vain; last seen: {found!r}")
        time.sleep(_POLL_S)
    return found


def _collect(
    client: Client,
    job: Job,
    status: JobStatus,
    simulator: Simulator,
    ids: frozenset[str],
    fault_at_ms: int,
    lost_calls_at_ms: list[int],
) -> Evidence:
    """The books, once the ledger has caught up with the provider; what it still lacks then is for the judge to see."""
    calls = [_call(row) for row in simulator.attempts(refused=True)]
    called = {call.attempt_id for call in calls}
    deadline = time.monotonic() + PATIENCE_S
    while True:
        attempts, items = _attempts(client, job.job_id), items_of(client, job.job_id)
        caught_up = len(items) >= len(ids) and called <= {attempt.attempt_id for attempt in attempts}
        if caught_up or time.monotonic() >= deadline:
            break
        time.sleep(0.5)
    return Evidence(
        documents=ids,
        state=status.state.value,
        spent_tokens=status.spent.input_tokens + status.spent.output_tokens,
        published=[row["_source_id"] for row in job.results()] if status.version is not None else [],
        calls=calls,
        attempts=attempts,
        items=items,
        fault_at_ms=fault_at_ms,
        lost_calls_at_ms=lost_calls_at_ms,
    )


def _call(row: Mapping[str, Any]) -> Call:
    return Call(
        attempt_id=row["attempt_id"],
        billed=row["billed"],
        input_tokens=row["billed_prompt_tokens"],
        output_tokens=row["billed_completion_tokens"],
        fault=row["fault"],
        started_at_ms=row["started_at_ms"],
        ended_at_ms=row["ended_at_ms"],
    )


def _attempts(client: Client, job_id: str) -> list[Attempt]:
    columns = "attempt_id, state, billed, verdict, input_tokens, output_tokens, late"
    return [
        Attempt(
            attempt_id=attempt_id,
            state=state,
            billed=billed,
            verdict=verdict,
            input_tokens=None if input_tokens is None else int(input_tokens),
            output_tokens=None if output_tokens is None else int(output_tokens),
            late=bool(late),
        )
        for attempt_id, state, billed, verdict, input_tokens, output_tokens, late in _rows(
            client, f"SELECT {columns} FROM attempts FINAL WHERE job_id = '{job_id}'"
        )
    ]


def items_of(client: Client, job_id: str) -> list[Item]:
    """The ledger's items of a job; none while it is away."""
    columns = "source_id, outcome, attempt_id, toUnixTimestamp64Milli(settled_at)"
    return [
        Item(source_id=source_id, outcome=outcome, attempt_id=attempt_id, settled_at_ms=int(settled_at_ms))
        for source_id, outcome, attempt_id, settled_at_ms in _rows(
            client, f"SELECT {columns} FROM items FINAL WHERE job_id = '{job_id}'"
        )
    ]


def _rows(client: Client, query: str) -> list[list[Any]]:
    try:
        return client.sql(query, max_rows=_MOST_ROWS).rows
    except NightmillError:  # the ledger is on its way back: asked again by the caller
        return []
