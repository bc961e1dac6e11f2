"""Verbs that show what came of jobs: explain, results, cost, versions, sql."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from nightmill.cli.options import Home, JobId, Json

if TYPE_CHECKING:
    from nightmill.api.findings import ExplainedAttempt, ExplainedItem, Explanation
    from nightmill.client import Client

_JOB_DOTS, _DATASET_DOTS = 2, 1


def register(app: typer.Typer) -> None:
    for verb in (explain, results, cost, versions, sql):
        app.command()(verb)


def explain(
    item: Annotated[str, typer.Argument(metavar="SOURCE_ID|ITEM_KEY")], json: Json = False, home: Home = None
) -> None:
    """Why an item ended as it did: prompt, raw answers, rule, calls with cost and cause."""
    from nightmill.client import Client

    with Client(home) as client:
        answer = client.explain(item)
    print(answer.model_dump_json() if json else _explanation_text(answer))


def results(
    of: Annotated[str, typer.Argument(metavar="JOB|DATASET", help="A job, or a dataset: tenant.pipeline")],
    format: Annotated[Literal["jsonl", "csv", "parquet"], typer.Option("--format")] = "jsonl",
    staged: Annotated[bool, typer.Option("--staged", help="What an unfinished job has so far.")] = False,
    home: Home = None,
) -> None:
    """Write accepted rows to standard output."""
    from nightmill.client import BadInput, Client
    from nightmill.client.tables import write_rows

    if format == "parquet" and sys.stdout.isatty():
        raise BadInput(
            "Parquet is no text for a terminal", f"nightmill results {of} --format parquet > results.parquet"
        )
    with Client(home) as client:
        write_rows(_rows(client, of, staged), sys.stdout.buffer, format)
        sys.stdout.flush()


def cost(
    job: JobId,
    by: Annotated[Literal["stage", "model", "cause"], typer.Option("--by")] = "stage",
    json: Json = False,
    home: Home = None,
) -> None:
    """What a job's calls cost, from the ledger."""
    from nightmill.cli import text
    from nightmill.client import Client

    with Client(home) as client:
        answer = client.job(job).cost(by)
    if json:
        print(answer.model_dump_json())
        return
    names = {"stage": ("stage",), "model": ("pool", "model", "price_version"), "cause": ("cause", "detail")}[by]
    rows = [
        (
            *(getattr(row, name) for name in names),
            row.calls,
            row.input_tokens,
            row.cached_tokens,
            row.output_tokens,
            text.cost(row.cost_nano_usd, row.unknown_calls),
        )
        for row in answer.rows
    ]
    head = (*(name.upper() for name in names), "CALLS", "TOKENS IN", "CACHED", "OUT", "COST")
    print(text.table(head, rows))
    print(f"all: {text.cost(answer.cost_nano_usd, answer.unknown_calls)}")


def versions(dataset: Annotated[str, typer.Argument(metavar="DATASET")], json: Json = False, home: Home = None) -> None:
    """Versions of a dataset, newest first."""
    from nightmill.cli.text import moment, table
    from nightmill.client import Client

    with Client(home) as client:
        answer = client.versions(_dataset(dataset))
    if json:
        print(answer.model_dump_json())
        return
    rows = [
        (
            each.version,
            "current" if each.version == answer.current else "",
            each.state.value,
            each.rows,
            moment(each.published_at_ms),
            each.job_id,
            each.location,
        )
        for each in answer.versions
    ]
    print(table(("VERSION", "", "STATE", "ROWS", "PUBLISHED", "JOB", "LOCATION"), rows))


def sql(
    query: Annotated[str, typer.Argument(metavar="SELECT …")],
    json: Json = False,
    max_rows: Annotated[int, typer.Option("--max-rows", min=1, max=100_000)] = 1_000,
    home: Home = None,
) -> None:
    """Ask the ledger, read-only. SHOW TABLES lists what is there."""
    from nightmill.cli.text import table
    from nightmill.client import Client

    with Client(home) as client:
        answer = client.sql(query, max_rows=max_rows)
    if json:
        print(answer.model_dump_json())
        return
    print(table(answer.columns, answer.rows))
    if answer.truncated:
        print(f"only the first {len(answer.rows):,} rows; --max-rows takes more", file=sys.stderr)


def _rows(client: "Client", of: str, staged: bool) -> Iterator[dict[str, Any]]:
    if of.count(".") >= _JOB_DOTS:
        return client.job(of).results(staged=staged)
    return client.results(_dataset(of))


def _dataset(name: str) -> str:
    """A pipeline's name alone means the default tenant's dataset."""
    return name if name.count(".") >= _DATASET_DOTS else f"default.{name}"


def _explanation_text(answer: "Explanation") -> str:
    lines: list[str] = []
    if answer.items:
        lines += _item_lines(answer.items[0])
        older = len(answer.items) - 1
        if older:
            lines.append(
                f"  also settled {older} time{'s' if older > 1 else ''} before, in other batches or generations"
            )
    if answer.prompt is not None:
        lines.append("prompt, as first sent:")
        for message in answer.prompt:
            lines += [f"  [{message.role}]", *(f"  {line}" for line in message.content.splitlines())]
    elif answer.prompt_note:
        lines.append(f"prompt: not shown, {answer.prompt_note}")
    for attempt in answer.attempts:
        lines += _attempt_lines(attempt)
    lines += ["next:", f"  {answer.next_command}"]
    return "\n".join(lines)


def _item_lines(item: "ExplainedItem") -> list[str]:
    from nightmill.cli.text import cost

    lines = [f"{item.source_id}: {item.outcome}" + (", reused from an earlier call" if item.reused else "")]
    lines.append(f"  job       {item.job_id}, generation {item.generation}, item key {item.item_key}")
    if item.rule:
        lines.append(f"  rule      {item.rule} {item.verdict} on {item.field or 'the answer'}: {item.value}")
    if item.failure_class:
        lines.append(f"  failure   {item.failure_class} ({item.failure_signal}): {item.failure_message}")
    lines.append(
        f"  calls     {item.attempts}, of these {item.retries} retries, {item.repairs} repairs; "
        f"cost {cost(item.cost_nano_usd, item.unknown_attempts)}"
    )
    return lines


def _attempt_lines(attempt: "ExplainedAttempt") -> list[str]:
    from nightmill.cli.text import cost

    kind = "repair" if attempt.is_repair else "call"
    money = cost(attempt.cost_nano_usd, 0 if attempt.cost_nano_usd is not None else 1)
    lines = [
        f"{kind} {attempt.ordinal}: {attempt.state}, {attempt.model} on {attempt.pool}, {attempt.minted_at}, "
        f"{attempt.input_tokens} tokens in, {attempt.output_tokens} out, cost {money}"
    ]
    if attempt.failure_class:
        lines.append(
            f"  failure   {attempt.failure_class} ({attempt.failure_signal}): {attempt.failure_message}"
            + (f", HTTP {attempt.http_status}" if attempt.http_status else "")
        )
    if attempt.verdict:
        rule = f" by {attempt.rule} on {attempt.field or 'the answer'}: {attempt.value}" if attempt.rule else ""
        lines.append(f"  verdict   {attempt.verdict}{rule}")
    if attempt.output:
        lines += ["  answer", *(f"    {line}" for line in attempt.output.splitlines())]
    return lines
