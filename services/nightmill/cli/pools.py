"""Verbs of pools: pool add, pool list, pool check. No key is taken on the command line, and none is printed."""

import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nightmill.cli.examples import epilog
from nightmill.cli.options import ConfigFolder, Home, Json, config_folder
from nightmill.cli.printing import print_json

if TYPE_CHECKING:
    from nightmill.kernel.domain.settings import LocalServers

_SLOTS = 8
#: by the weight of the worst finding
_MEND_EXIT, _AWAY_EXIT = 2, 4

PoolName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the pool, as pipelines use it.")]
PerMinute = Annotated[int | None, typer.Option(help="What the provider allows; left out, nobody counts.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        name="pool", help="Provider accounts: add, list, check.", no_args_is_help=True, rich_markup_mode=None
    )
    for name, verb in (("add", add), ("list", list_), ("check", check)):
        group.command(name, epilog=epilog(f"pool {name}"))(verb)
    app.add_typer(group)


def add(
    name: PoolName,
    provider: Annotated[str, typer.Option("--provider", help="openai, anthropic or openai_compatible (all others).")],
    base_url: Annotated[str, typer.Option("--base-url", help="Where its API begins, or: local-model")],
    model: Annotated[str, typer.Option("--model", help="As the provider names it.")],
    context_tokens: Annotated[
        int, typer.Option("--context-tokens", help="How many tokens prompt and answer may have together.")
    ],
    key_env: Annotated[str | None, typer.Option("--key-env", help="Variable that holds the key.")] = None,
    key_file: Annotated[
        str | None, typer.Option("--key-file", help="File that holds the key and that nobody else can read: chmod 600.")
    ] = None,
    slots: Annotated[int, typer.Option("--slots", help="Calls at the same time.")] = _SLOTS,
    requests_per_minute: PerMinute = None,
    input_tokens_per_minute: PerMinute = None,
    output_tokens_per_minute: PerMinute = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            "--tokenizer", help="Counts exactly: o200k_base, o200k_harmony, cl100k_base, qwen3.5 or bert_uncased."
        ),
    ] = None,
    token_factor: Annotated[
        float | None, typer.Option("--token-factor", help="Without a tokenizer the estimate is taken times this.")
    ] = None,
    sensitivity: Annotated[
        str, typer.Option("--sensitivity", help="What it may see: public, internal, confidential or restricted.")
    ] = "internal",
    call_deadline: Annotated[
        str | None, typer.Option("--call-deadline", help="How long one call may take, such as 120s.")
    ] = None,
    structured_output: Annotated[
        bool,
        typer.Option(
            "--structured-output/--no-structured-output", help="Whether it takes a JSON Schema of the answer."
        ),
    ] = True,
    api: Annotated[str | None, typer.Option("--api", help="Of provider openai: chat or responses.")] = None,
    anthropic_version: Annotated[
        str | None, typer.Option("--anthropic-version", help="Of provider anthropic, if not the newest.")
    ] = None,
    embeddings: Annotated[bool, typer.Option("--embeddings", help="The model makes vectors, not answers.")] = False,
    refuses: Annotated[
        list[str] | None, typer.Option("--refuses", help="A parameter the model does not take; may be repeated.")
    ] = None,
    webhook_secret_env: Annotated[
        list[str] | None,
        typer.Option(
            help="Variable that holds a secret of the provider's webhooks; may be repeated while one is rotated."
        ),
    ] = None,
    webhook_secret_file: Annotated[
        list[str] | None, typer.Option(help="File that holds such a secret, of mode 600; may be repeated.")
    ] = None,
    json: Json = False,
    config: ConfigFolder = None,
) -> None:
    """Put a pool into pools.yaml. Comments and order of the file stay; the key is never written into it."""
    from nightmill.cli.text import printable
    from nightmill.kernel.runtime.settings import load_config
    from nightmill.local.pools.adding import add_pool
    from nightmill.local.pools.listing import tariff_of
    from nightmill.local.pools.sources import key_of, webhook_secrets_of

    limits = {
        "slots": slots,
        "requests_per_minute": requests_per_minute,
        "input_tokens_per_minute": input_tokens_per_minute,
        "output_tokens_per_minute": output_tokens_per_minute,
    }
    fields: dict[str, Any] = {
        "provider": provider,
        "base_url": base_url,
        "model": model,
        "key": key_of(key_env, key_file),
        "limits": _given(limits),
        "context_tokens": context_tokens,
        "tokenizer": tokenizer,
        "token_factor": token_factor,
        "sensitivity": sensitivity,
        "call_deadline": call_deadline,
        "structured_output": None if structured_output else False,
        "api": api,
        "anthropic_version": anthropic_version,
        "refuses": refuses or None,
        "embeddings": {} if embeddings else None,
        "webhook_secrets": webhook_secrets_of(webhook_secret_env or (), webhook_secret_file or ()) or None,
    }
    folder = config_folder(config)
    path = add_pool(folder, name, _given(fields))
    loaded = load_config(folder)
    priced = tariff_of(loaded.pools[name], loaded.prices, now_ms=_now_ms()) is not None
    if json:
        print_json({"pool": name, "file": str(path), "fields": _given(fields), "price_known": priced})
        return
    print(printable(f"added {name} to {path}"))
    if not priced:
        print(printable(f"{model} has no price in {folder / 'prices.yaml'}: add it, or jobs that need it are refused"))
    print(f"next:\n  {_typed(f'nightmill pool check {shlex.quote(name)}', config)}")


def list_(json: Json = False, config: ConfigFolder = None) -> None:
    """All pools. With limits, and where their keys come from."""
    from nightmill.cli.pool_text import key_text, limits_text, line_fields
    from nightmill.cli.text import printable, table
    from nightmill.kernel.runtime.settings import load_config
    from nightmill.local.pools.listing import pool_lines

    folder = config_folder(config)
    lines = pool_lines(load_config(folder), os.environ, now_ms=_now_ms())
    if json:
        print_json({"config": str(folder), "pools": [line_fields(each) for each in lines]})
        return
    rows = [
        (
            each.name,
            each.provider,
            each.model,
            limits_text(each.limits),
            each.context_tokens,
            each.sensitivity.value,
            key_text(each.key),
            "known" if each.price_known else "none",
        )
        for each in lines
    ]
    print(table(("POOL", "PROVIDER", "MODEL", "LIMITS", "CONTEXT", "SENSITIVITY", "KEY", "PRICE"), rows))
    for each in lines:
        if each.key is not None and each.key.problem is not None:
            print(printable(f"{each.name}: {each.key.problem} → {each.key.remedy}"))


def check(
    name: PoolName,
    call: Annotated[bool, typer.Option("--call", help="Ask the model for a token too, to see its limits.")] = False,
    json: Json = False,
    config: ConfigFolder = None,
    home: Home = None,
) -> None:
    """Ask the provider whether a pool works. One cheap call; 2: mend a setting; 4: it does not answer now."""
    from nightmill.cli.pool_text import report_fields, report_text
    from nightmill.kernel.runtime.settings import load_config
    from nightmill.local.pools.check import check_pool
    from nightmill.local.pools.verdict import Weight

    report = check_pool(
        name,
        load_config(config_folder(config)),
        environment=os.environ,
        local_servers=_local_servers(home),
        with_call=call,
        before_call=_say_cost,
    )
    if json:
        print_json(report_fields(report))
    else:
        print(report_text(report))
    match report.worst():
        case Weight.MEND:
            raise typer.Exit(_MEND_EXIT)
        case Weight.AWAY:
            raise typer.Exit(_AWAY_EXIT)


def _say_cost(at_most_nano_usd: int | None) -> None:
    from nightmill.cli.text import cost

    price = "a price that is not known" if at_most_nano_usd is None else f"about {cost(at_most_nano_usd, 0)}"
    print(f"asking the model for its shortest answer, at {price}", file=sys.stderr, flush=True)


def _local_servers(home: Path | None) -> "LocalServers":
    """Where the model servers of this installation listen, as far as they run."""
    from nightmill.kernel.domain.settings import LocalServers
    from nightmill.kernel.runtime.settings import read_settings
    from nightmill.local.home import Home as HomeFolder
    from nightmill.local.processes import LOOPBACK
    from nightmill.local.status import running_state

    def at(port: int | None) -> str | None:
        return None if port is None else f"http://{LOOPBACK}:{port}/v1"

    settings = read_settings(os.environ)
    named = settings.local_servers
    state = running_state(HomeFolder(root=(home or settings.home).expanduser().absolute()))
    if state is None:
        return named
    return LocalServers(
        model_url=named.model_url or at(state.model_port),
        embeddings_url=named.embeddings_url or at(state.embeddings_port),
    )


def _typed(command: str, config: Path | None) -> str:
    """The command as it can be typed here; the folder is added when it was named, whether by option or variable."""
    from nightmill.cli.program import typed
    from nightmill.kernel.runtime.settings import read_settings

    folder = "" if config is None else f" --config {shlex.quote(str(config))}"
    return typed(command + folder, read_settings(os.environ).home)


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
