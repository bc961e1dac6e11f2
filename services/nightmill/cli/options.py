"""Options and arguments that several verbs share."""

import os
from pathlib import Path
from typing import Annotated

import typer

Home = Annotated[
    Path | None,
    typer.Option(
        "--home",
        envvar="NIGHTMILL_HOME",
        help="Folder of the installation; two folders are two of them. Else the user's data folder.",
    ),
]
ConfigFolder = Annotated[
    Path | None,
    typer.Option(
        "--config",
        envvar="NIGHTMILL_CONFIG",
        help="Folder with pools.yaml, prices.yaml, retry.yaml and tenants.yaml; else the one that ships.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object with stable keys, for programs.")]
Pipeline = Annotated[
    str, typer.Argument(metavar="PIPELINE", help="Folder with a pipeline.yaml, or a name that ships with nightmill.")
]
Input = Annotated[
    str, typer.Option("--input", help="JSONL, CSV or Parquet file, a folder of text files, or: distributions")
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Only the first N rows.")]
Deadline = Annotated[
    str | None,
    typer.Option("--deadline", help="When it should be done, from now: 90s, 15m, 6h or 2d; else limits.deadline."),
]
Budget = Annotated[
    str | None, typer.Option("--budget-usd", help="The most that may be spent, in USD; else limits.budget_usd.")
]
SkipBadRows = Annotated[
    bool, typer.Option("--skip-bad-rows", help="Record broken rows as rejected instead of refusing the job.")
]
Tenant = Annotated[str, typer.Option("--tenant", help="Whose job it is, as tenants.yaml names it.")]
JobId = Annotated[str, typer.Argument(metavar="JOB", help="Id of a job, as run and status print it; or: last")]
Reason = Annotated[str | None, typer.Option("--reason", help="Why, in your words; kept with the job.")]


def config_folder(given: Path | None) -> Path:
    """The config folder that was named, else the one of the environment, else the one that ships."""
    from nightmill.kernel.runtime.settings import read_settings

    return read_settings(os.environ).config_dir if given is None else given.expanduser().absolute()
