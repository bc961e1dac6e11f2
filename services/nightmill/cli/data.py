"""Verbs that show what came of jobs: explain, results, cost, versions, sql."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from nightmill.cli.examples import epilog
from nightmill.cli.options import Home, JobId, Json

if TYPE_CHECKING:
    from nightmill.client import Client

_JOB_DOTS, _DATASET_DOTS = 2, 1


def register(app: typer.Typer) -> None:
    for verb in (explain, results, cost, versions, sql):
        app.command(epilog=epilog(verb.__name__))(verb)


def explain(
    item: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE_ID|ITEM_KEY",
            help="A row's id (name==version for distributions) or the start that only it has; or an item key.",
        ),
    ],
    json: Json = False,
    home: Home = None,
) -> None:
    """Why an item ended as it did. Prompt, raw answers, rule, calls with cost and cause."""
    from nightmill.cli.explanation import explanation
    from nightmill.cli.program import typed
    from nightmill.cli.text import printable
    from nightmill.client import Client

    with Client(home) as client:
        answer = client.explain(item)
        if json:
            print(answer.model_dump_json())
        else:
            following = printable(typed(answer.next_command, client.home))
            print(explanation(answer), "next:", f"  {following}", sep="\n")


def results(
    of: Annotated[
        str,
        typer.Argument(
            metavar="JOB|DATASET", help="A job (or: last), or a dataset: a pipeline's name, or tenant.pipeline."
        ),
    ],
    format: Annotated[
        Literal["jsonl", "csv", "parquet"], typer.Option("--format", help="How rows are written.")
    ] = "jsonl",
    staged: Annotated[bool, typer.Option("--staged", help="What an unfinished job has so far.")] = False,
    home: Home = None,
) -> None:
    """Write accepted rows to standard output. On a terminal, control characters are written out."""
    from nightmill.client import BadInput, Client
    from nightmill.client.tables import write_rows

    if format == "parquet" and sys.stdout.isatty():
        raise BadInput(
            "Parquet is no text for a terminal", f"nightmill results {of} --format parquet > results.parquet"
        )
    with Client(home) as client:
        rows = _rows(client, of, staged)
        write_rows(map(_shown, rows) if sys.stdout.isatty() else rows, sys.stdout.buffer, format)
        sys.stdout.flush()


def cost(
    job: JobId,
    by: Annotated[
        Literal["stage", "model", "cause"], typer.Option("--by", help="What calls are grouped by.")
    ] = "stage",
    json: Json = False,
    home: Home = None,
) -> None:
    """What a job's calls cost, from the ledger. What is not known is said to be unknown."""
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
            row.written_tokens,
            row.output_tokens,
            text.cost(row.cost_nano_usd, row.unknown_calls, row.reserved_nano_usd),
        )
        for row in answer.rows
    ]
    head = (*(name.upper() for name in names), "CALLS", "TOKENS IN", "CACHED", "WRITTEN", "OUT", "COST")
    print(text.table(head, rows))
    print(f"all: {text.cost(answer.cost_nano_usd, answer.unknown_calls, answer.reserved_nano_usd)}")


def versions(
    dataset: Annotated[
        str, typer.Argument(metavar="DATASET", help="tenant.pipeline, or a pipeline's name for the default tenant.")
    ],
    json: Json = False,
    home: Home = None,
) -> None:
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
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="One SELECT, SHOW TABLES or DESCRIBE TABLE, in quotes.")
    ],
    json: Json = False,
    max_rows: Annotated[int, typer.Option("--max-rows", min=1, max=100_000, help="The most rows to print.")] = 1_000,
    home: Home = None,
) -> None:
    """Ask the ledger, read-only. SHOW TABLES lists what is there."""
    from nightmill.cli.text import counted, table
    from nightmill.client import Client

    with Client(home) as client:
        answer = client.sql(query, max_rows=max_rows)
    if json:
        print(answer.model_dump_json())
        return
    print(table(answer.columns, answer.rows))
    if answer.truncated:
        print(f"only the first {counted(len(answer.rows), 'row', 'rows')}; --max-rows takes more", file=sys.stderr)


def _rows(client: "Client", of: str, staged: bool) -> Iterator[dict[str, Any]]:
    from nightmill.client.client import NEWEST

    if of == NEWEST or of.count(".") >= _JOB_DOTS:
        return client.job(of).results(staged=staged)
    return client.results(_dataset(of))


def _shown(value: Any) -> Any:
    """A row, or a value in it, as it may reach a terminal."""
    from nightmill.cli.text import printable

    match value:
        case str():
            return printable(value)
        case list():
            return [_shown(each) for each in value]
        case dict():
            return {printable(name): _shown(each) for name, each in value.items()}
        case _:
            return value


def _dataset(name: str) -> str:
    """A pipeline's name alone means the default tenant's dataset."""
    return name if name.count(".") >= _DATASET_DOTS else f"default.{name}"
