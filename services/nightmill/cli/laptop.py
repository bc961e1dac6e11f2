"""Verbs of the laptop and of single processes: up, down, ps, logs, doctor, service, provider-simulator."""

import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Annotated

import typer

from nightmill.cli.examples import epilog
from nightmill.cli.options import ConfigFolder, Home, Json, config_folder
from nightmill.cli.printing import print_json
from nightmill.local.options import SERVICES

_NOT_RUNNING = 5
_BAD_INPUT = 2
_FOLLOW_S = 0.3

Kafka = Annotated[str, typer.Option("--kafka", help="local, docker, or HOST:PORT of a broker that runs.")]


def register(app: typer.Typer) -> None:
    for verb in (up, down, ps, logs, doctor, service):
        app.command(epilog=epilog(verb.__name__))(verb)
    app.command("provider-simulator", epilog=epilog("provider-simulator"))(provider_simulator)


def up(
    detach: Annotated[
        bool, typer.Option("--detach", help="Return when everything is ready; without it, Ctrl-C stops everything.")
    ] = False,
    kafka: Kafka = "local",
    home: Home = None,
    config: ConfigFolder = None,
) -> None:
    """Start everything and keep it running. That is Kafka, every service, and the local models that pools ask for."""
    from nightmill.local.options import UpOptions
    from nightmill.local.up import up

    folder = config_folder(config)
    options = UpOptions(
        create_topics=_create_topics,
        home=home,
        kafka=kafka,
        config=None if config is None else folder,
        detach=detach,
        environment={name: value for name, value in os.environ.items() if name.startswith("NIGHTMILL_")},
        local_model=_wants(folder, embeddings=False),
        local_embeddings=_wants(folder, embeddings=True),
        embedded_ledger="NIGHTMILL_CLICKHOUSE" not in os.environ,
        api_port=_api_port(),
    )
    raise typer.Exit(up(options))


def down(home: Home = None) -> None:
    """Stop everything in order. Nothing is lost: up goes on with unfinished jobs."""
    from nightmill.local.up import down

    raise typer.Exit(down(home))


def ps(json: Json = False, home: Home = None) -> None:
    """The processes and whether they are ready."""
    from nightmill.cli.program import typed
    from nightmill.cli.text import duration, table
    from nightmill.local.home import Home as HomeFolder
    from nightmill.local.home import default_root
    from nightmill.local.shortage import short_places
    from nightmill.local.status import ps, running_state

    folder = HomeFolder(root=(home or default_root()).expanduser().absolute())
    state, processes = running_state(folder), ps(folder)
    if json:
        print_json(
            {
                "running": state is not None,
                "phase": None if state is None else state.phase.value,
                "kafka": None if state is None else state.kafka,
                "api_port": None if state is None else state.api_port,
                "processes": [{**asdict(each), "alive": each.alive} for each in processes],
                "short_of_space": short_places(folder),
            }
        )
    elif state is None:
        print(f"nothing runs in {folder.root}; {typed('nightmill up --detach', folder.root)}")
    else:
        now_ms = time.time_ns() // 1_000_000
        rows = [
            (
                each.name,
                "ready" if each.ready else "starting" if each.alive else "down",
                each.pid,
                each.restarts,
                duration((now_ms - each.since_ms) / 1000),
                each.ended,
            )
            for each in processes
        ]
        print(table(("PROCESS", "STATE", "PID", "RESTARTS", "SINCE", "LAST END"), rows))
        print("".join(f"no space: {place}\n" for place in short_places(folder)), end="")
        print(f"{state.phase.value}: Kafka at {state.kafka}, api at http://127.0.0.1:{state.api_port}")
    if state is None:
        raise typer.Exit(_NOT_RUNNING)


def logs(
    service: Annotated[str, typer.Argument(metavar="SERVICE", help="A name that ps prints, or: supervisor")],
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="How many.")] = 100,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes.")] = False,
    home: Home = None,
) -> None:
    """The end of a process's log."""
    from nightmill.client.errors import BadInput
    from nightmill.local.home import Home as HomeFolder
    from nightmill.local.home import default_root, log_path

    folder = HomeFolder(root=(home or default_root()).expanduser().absolute())
    path = log_path(folder, service.replace("-", "_"))
    if "/" in service or not path.is_file():
        known = sorted(file.stem for file in folder.logs.glob("*.log")) + ["broker"] * folder.broker.is_dir()
        remedy = f"there are: {', '.join(known)}" if known else "nightmill up --detach"
        raise BadInput(f"{folder.root}: no log of {service!r}", remedy)
    with path.open(encoding="utf-8", errors="replace") as file:
        print("".join(file.readlines()[-lines:]), end="", flush=True)
        if follow:
            _go_on(file)


def doctor(kafka: Kafka = "local", home: Home = None, config: ConfigFolder = None, json: Json = False) -> None:
    """Look at this machine and say what it lacks. Also what hangs in the broker, and what to do about it."""
    from nightmill.kernel.runtime.settings import load_config
    from nightmill.local.doctor import fatal_checks, run_doctor
    from nightmill.local.home import Home as HomeFolder
    from nightmill.local.home import default_root
    from nightmill.local.transactions import check_transactions, configured_broker

    folder = config_folder(config)
    checks = run_doctor(
        home,
        kafka=kafka,
        local_model=_wants(folder, embeddings=False),
        local_embeddings=_wants(folder, embeddings=True),
        embedded_ledger="NIGHTMILL_CLICKHOUSE" not in os.environ,
        pools=load_config(folder).pools,
        environment=os.environ,
    )
    root = HomeFolder(root=(home or default_root()).expanduser().absolute())
    if broker := configured_broker(root, kafka, os.environ):
        checks += check_transactions(broker[0], is_mended=broker[1])
    fatal = fatal_checks(checks)
    if json:
        print_json({"ok": not fatal, "checks": [asdict(check) for check in checks]})
    else:
        print("\n".join(check.line() for check in checks))
    if fatal:
        raise typer.Exit(_BAD_INPUT)


def service(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"One of: {', '.join(SERVICES)}")],
) -> None:
    """Run one service in the foreground. NIGHTMILL_* variables set it: for containers and systemd."""
    from importlib import import_module

    from nightmill.client.errors import BadInput
    from nightmill.kernel.runtime.observe import configure_logging
    from nightmill.kernel.runtime.settings import read_settings

    room = name.replace("-", "_")
    if room not in SERVICES:
        raise BadInput(f"no service {name!r}", f"there are: {', '.join(SERVICES)}")
    settings = read_settings(os.environ)
    configure_logging()
    if room == "api":
        from nightmill.api.run import run_api

        raise typer.Exit(run_api(settings))
    from nightmill.kernel.runtime.process import SURROUNDINGS, run_service, stopped_by

    try:
        built = import_module(f"nightmill.{room}.run").build(settings)
    except SURROUNDINGS as error:
        raise typer.Exit(stopped_by(error, settings.home)) from error
    raise typer.Exit(run_service(built, settings))


def provider_simulator(
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Where it listens, on loopback; 0: any free one.")
    ] = 8399,
    scenario: Annotated[
        Path | None, typer.Option("--scenario", help="YAML file with faults, answers, latency and limits.")
    ] = None,
    port_file: Annotated[
        Path | None, typer.Option("--port-file", help="File to write the port into, once it listens.")
    ] = None,
    home: Annotated[
        Path | None, typer.Option("--home", help="Folder that keeps its files, batches and books across restarts.")
    ] = None,
    clock_speed: Annotated[
        float, typer.Option("--clock-speed", help="Seconds of its clock per real one, for files and batches.")
    ] = 1.0,
    webhook_url: Annotated[
        str | None, typer.Option("--webhook-url", help="Address that is told when a batch ends.")
    ] = None,
    webhook_secret: Annotated[
        str | None, typer.Option("--webhook-secret", help="whsec_… to sign its notices with.")
    ] = None,
    relaxed: Annotated[bool, typer.Option("--relaxed", help="Do not check requests, for pure speed.")] = False,
) -> None:
    """A provider without keys or cost, to try things. OpenAI and Anthropic, deterministic, with faults and a bill."""
    from nightmill.client.errors import BadInput
    from nightmill.provider_simulator.run import CannotStart, Options, run_simulator

    options = Options(
        home=home,
        clock_speed=clock_speed,
        webhook_url=webhook_url,
        webhook_secret=webhook_secret,
        relaxed=relaxed,
    )
    try:
        run_simulator(host="127.0.0.1", port=port, scenario=scenario, port_file=port_file, options=options)
    except CannotStart as error:
        raise BadInput(str(error)) from error


def _create_topics(bootstrap: str, environment: Mapping[str, str]) -> None:
    from nightmill.kernel.runtime.kafka.admin import create_topics
    from nightmill.kernel.runtime.settings import SettingsError, read_settings

    settings = read_settings(environment)
    try:
        create_topics(bootstrap, settings.namespace, settings.partitions)
    except ValueError as error:
        raise SettingsError(str(error)) from error


def _wants(folder: Path, *, embeddings: bool) -> bool:
    """Whether a model of this machine serves a pool. Reads the config folder; raises `SettingsError`."""
    from nightmill.kernel.domain.settings import LOCAL_MODEL
    from nightmill.kernel.runtime.settings import load_config

    pools = load_config(folder).pools.values()
    return any(pool.base_url == LOCAL_MODEL and (pool.embeddings is not None) is embeddings for pool in pools)


def _api_port() -> int:
    """The port that was asked for, else the usual one when it is free, else any."""
    from nightmill.api.run import PREFERRED_PORT
    from nightmill.kernel.runtime.settings import SettingsError
    from nightmill.local.processes import port_is_free

    asked = os.environ.get("NIGHTMILL_API_PORT")
    if asked is None:
        return PREFERRED_PORT if port_is_free(PREFERRED_PORT) else 0
    if not asked.isdecimal():
        raise SettingsError(f"NIGHTMILL_API_PORT = {asked!r}: expected a port number")
    return int(asked)


def _go_on(file: IO[str]) -> None:
    """Print what is appended, until Ctrl-C."""
    while True:
        text = file.read()
        if text:
            print(text, end="", flush=True)
        else:
            time.sleep(_FOLLOW_S)
