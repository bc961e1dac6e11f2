"""Verbs that start jobs and move them: run, estimate, status, cancel, resume, approve."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from nightmill.cli.examples import epilog
from nightmill.cli.options import (
    Budget,
    Deadline,
    Home,
    Input,
    JobId,
    Json,
    Limit,
    Pipeline,
    Reason,
    SkipBadRows,
    Tenant,
)

if TYPE_CHECKING:
    from nightmill.api.models import EstimateAnswer, JobStatus
    from nightmill.api.requests import JobRequest
    from nightmill.client import Client


def register(app: typer.Typer) -> None:
    for verb in (run, estimate, status, cancel, resume, approve):
        app.command(epilog=epilog(verb.__name__))(verb)


def run(
    pipeline: Pipeline,
    input: Input,
    limit: Limit = None,
    deadline: Deadline = None,
    budget_usd: Budget = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before money is spent.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Submit and return; status follows it.")] = False,
    skip_bad_rows: SkipBadRows = False,
    tenant: Tenant = "default",
    json: Json = False,
    home: Home = None,
) -> None:
    """Run a pipeline over an input and follow it to its end."""
    from nightmill.cli.follow import follow
    from nightmill.client import Client

    with Client(home) as client:
        request = client.request(
            pipeline,
            input,
            limit=limit,
            deadline=deadline,
            budget_usd=budget_usd,
            skip_bad_rows=skip_bad_rows,
            tenant=tenant,
        )
        if not yes and sys.stdin.isatty() and sys.stderr.isatty():
            _ask(client, request)
        job = client.submit(request)
        if detach:
            _show(job.status(), client.home, json=json, ended=False)
            return
        print(f"job {job.job_id}", file=sys.stderr, flush=True)
        _end(follow(job, client.home), client.home, json=json)


def estimate(
    pipeline: Pipeline,
    input: Input,
    limit: Limit = None,
    deadline: Deadline = None,
    budget_usd: Budget = None,
    skip_bad_rows: SkipBadRows = False,
    tenant: Tenant = "default",
    json: Json = False,
    home: Home = None,
) -> None:
    """Tokens, cost and time of a run, without running it."""
    from nightmill.client import Client

    with Client(home) as client:
        request = client.request(
            pipeline,
            input,
            limit=limit,
            deadline=deadline,
            budget_usd=budget_usd,
            skip_bad_rows=skip_bad_rows,
            tenant=tenant,
        )
        answer = client.estimate(request)
    print(answer.model_dump_json() if json else _estimate_text(answer))
    if answer.refusal is not None:
        raise typer.Exit(2)


def status(
    job: Annotated[
        str | None, typer.Argument(metavar="JOB", help="Id of a job, or: last. Without one, all jobs are listed.")
    ] = None,
    json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", help="Follow the job to its end.")] = False,
    home: Home = None,
) -> None:
    """Where jobs stand. Works while ClickHouse is down."""
    from nightmill.client import Client

    with Client(home) as client:
        if job is None:
            listed = client.jobs()
            print(listed.model_dump_json() if json else _list_text(listed.jobs, client.home))
            return
        if watch:
            from nightmill.cli.follow import follow

            _end(follow(client.job(job), client.home), client.home, json=json)
        _show(client.job(job).status(), client.home, json=json, ended=False)


def cancel(job: JobId, reason: Reason = None, json: Json = False, home: Home = None) -> None:
    """End a job. What was paid for is kept; resume goes on from there."""
    _command("cancel", job, reason, json=json, home=home)


def resume(job: JobId, reason: Reason = None, json: Json = False, home: Home = None) -> None:
    """Go on with a job that was held or cancelled. Also with one that was published in part."""
    _command("resume", job, reason, json=json, home=home)


def approve(job: JobId, reason: Reason = None, json: Json = False, home: Home = None) -> None:
    """Publish a held job although a gate objects. Without the items that are not accepted."""
    _command("approve", job, reason, json=json, home=home)


def _command(
    verb: Literal["cancel", "resume", "approve"], name: str, reason: str | None, *, json: bool, home: Path | None
) -> None:
    """Say at once what was accepted, then what the publisher made of it."""
    from nightmill.cli.program import typed
    from nightmill.client import Client
    from nightmill.kernel.domain.lifecycle import Command

    with Client(home) as client:
        job = client.job(name)
        before = job.order(Command(verb), reason)
        if not json:
            watch = typed(f"nightmill status {job.job_id} --watch", client.home)
            print(f"accepted: {verb} of {job.job_id}; follow with {watch}", flush=True)
        after = job.change_from(before)
        if json or after != before:
            _show(after, client.home, json=json, ended=False)


def _ask(client: "Client", request: "JobRequest") -> None:
    """On a terminal: say what it costs before it is spent, and ask when that is more than nothing."""
    answer = client.estimate(request)
    print(_estimate_text(answer), file=sys.stderr, flush=True)
    if answer.refusal is not None:
        raise typer.Exit(2)
    if answer.worst_cost_nano_usd == 0:
        return
    print("go on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        print("nothing was started", file=sys.stderr)
        raise typer.Exit(4)


def _end(status: "JobStatus", home: Path, *, json: bool) -> None:
    """Show how a job ended, and end the process with its exit code."""
    from nightmill.cli.text import EXIT_CODES

    _show(status, home, json=json, ended=True)
    raise typer.Exit(EXIT_CODES[status.state])


def _show(status: "JobStatus", home: Path, *, json: bool, ended: bool) -> None:
    from nightmill.cli import text
    from nightmill.cli.program import typed

    if json:
        print(status.model_dump_json())
        return
    print(text.summary(status, _now_ms()))
    commands = text.next_commands(status)
    if commands:
        print("next:" if ended else "you can:")
        print("\n".join(f"  {typed(command, home)}" for command in commands))


def _list_text(jobs: "list[JobStatus]", home: Path) -> str:
    from nightmill.cli.program import typed
    from nightmill.cli.text import job_list

    if not jobs:
        return f"no jobs yet; {typed('nightmill run licence-audit --input distributions', home)}"
    return job_list(jobs, _now_ms())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _estimate_text(answer: "EstimateAnswer") -> str:
    from nightmill.cli.text import cost, counted, duration, printable, table
    from nightmill.kernel.domain.lanes import ASSUMED_CALL_S

    bad = f", and {counted(answer.refused_rows, 'bad row', 'bad rows')}" if answer.refused_rows else ""
    lines = [
        f"lane      {answer.lane}: {answer.lane_reason}",
        f"items     {answer.items:,}" + bad,
        f"tokens    {answer.input_tokens:,} in, {answer.output_tokens:,} out",
        f"cost      about {cost(answer.expected_cost_nano_usd, 0)}, at most {cost(answer.worst_cost_nano_usd, 0)}"
        f" (prices of {answer.price_version})",
        f"time      about {duration(answer.duration_s)}",
    ]
    rows = [
        (
            pool.lane,
            pool.pool,
            pool.model,
            cost(pool.expected_cost_nano_usd, 0),
            cost(pool.worst_cost_nano_usd, 0),
            duration(pool.duration_s),
            f"slots, {ASSUMED_CALL_S:g} s a call assumed" if pool.limited_by == "slots" else pool.limited_by,
        )
        for pool in answer.pools
    ]
    lines.append(table(("LANE", "POOL", "MODEL", "EXPECTED", "AT MOST", "TIME", "LIMITED BY"), rows))
    lines += [f"bad row   {problem.place}: {problem.reason}" for problem in answer.problems]
    lines += [f"warning   {warning}" for warning in answer.warnings]
    if answer.refusal is not None:
        lines.append(f"it would be refused: {answer.refusal.message}")
    return printable("\n".join(lines))
