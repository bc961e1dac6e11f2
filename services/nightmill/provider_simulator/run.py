"""The simulator as a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import re
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import uvloop
import yaml
from aiohttp import web

from nightmill.provider_simulator.control import Control
from nightmill.provider_simulator.manage import Manager
from nightmill.provider_simulator.provider import Provider
from nightmill.provider_simulator.scenario import Scenario, ScenarioError, parse_scenario
from nightmill.provider_simulator.server import Server
from nightmill.provider_simulator.state import State

log = logging.getLogger(__name__)

_SHUTDOWN_S = 1.0  # calls still held then are cut off
_BACKLOG = 2048
_BOOL = "tag:yaml.org,2002:bool"
_GC = (20_000, 50, 100)  # calls make much that is dropped at once and little that is circular


class _Loader(yaml.SafeLoader):
    """YAML whose only truths are `true` and `false`: `on` is the name of a field."""


_Loader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if tag != _BOOL]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_BOOL, re.compile(r"^(?:true|false)$"), list("tf"))


class CannotStart(Exception):
    """The simulator cannot serve as asked; the text says what is wrong and what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a command line may ask for besides the scenario."""

    home: Path | None = None  # keep files, batches, webhooks, clock and books here across restarts
    clock_speed: float = 1.0  # of files, batches and webhooks; 1 is real time
    webhook_url: str | None = None  # one more receiver of notices, with `webhook_secret`
    webhook_secret: str | None = None
    relaxed: bool = False  # read bodies without checking them, for pure speed


def run_simulator(
    *, host: str, port: int, scenario: Path | None, port_file: Path | None, options: Options | None = None
) -> None:
    """Serve until SIGINT or SIGTERM; must be called on the main thread.

    Port 0 takes any free port. Once it listens, the port is printed and written to `port_file`, whole or not at all.
    Without a home, files and batches lie in a temporary folder that is removed at the end. Raises `CannotStart` when
    scenario or options are unusable, the home cannot be written or the port is taken.
    """
    options = options or Options()
    try:
        wanted = with_options(load_scenario(scenario), options)
    except ScenarioError as exc:
        raise CannotStart(str(exc)) from exc
    with contextlib.ExitStack() as stack:
        folder = options.home
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="provider-simulator-")))
        state = stack.enter_context(contextlib.closing(_state(wanted, folder, options)))
        uvloop.run(_serve(state, host=host, port=port, port_file=port_file))


def with_options(scenario: Scenario, options: Options) -> Scenario:
    """The scenario with what the command line asks for. Raises `ScenarioError`."""
    if options.clock_speed <= 0:
        raise ScenarioError(f"clock speed: {options.clock_speed}: must be above 0; 1 is real time")
    if (options.webhook_url is None) is not (options.webhook_secret is None):
        raise ScenarioError("webhook url and webhook secret: give both or none")
    changes: dict[str, object] = {"strict": False} if options.relaxed else {}
    if options.webhook_url is not None:
        target = {"url": options.webhook_url, "secret": options.webhook_secret}
        more = parse_scenario({"webhooks": [target]}, where="webhook")
        changes["webhooks"] = (*scenario.webhooks, *more.webhooks)
    return scenario.model_copy(update=changes)


def _state(scenario: Scenario, folder: Path, options: Options) -> State:
    keep = options.home is not None
    try:
        return State(scenario, folder=folder, keep=keep, real_now_ms=_now_ms, speed=options.clock_speed)
    except OSError as exc:
        raise CannotStart(f"{folder}: cannot be used as home: {exc.strerror}; choose a writable folder") from exc


def load_scenario(path: Path | None) -> Scenario:
    """The scenario of a YAML or JSON file; without a file, a provider that never fails."""
    if path is None:
        return Scenario()
    try:
        text = path.read_text(encoding="utf-8-sig")
        data = json.loads(text) if path.suffix == ".json" else yaml.load(text, Loader=_Loader)
    except OSError as exc:
        raise ScenarioError(f"{path}: cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise ScenarioError(f"{path}: is not UTF-8 at byte {exc.start}") from exc
    except (ValueError, yaml.YAMLError) as exc:
        raise ScenarioError(f"{path}: is neither YAML nor JSON: {exc}") from exc
    return parse_scenario(data, where=str(path))


async def _serve(state: State, *, host: str, port: int, port_file: Path | None) -> None:
    stop = asyncio.Event()
    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    manager = Manager(state)
    server = Server(state, Provider(state, manager), Control(state, manager.reset)).web_server()
    runner = web.ServerRunner(server, access_log=None, shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, backlog=_BACKLOG)
        try:
            await site.start()
        except OSError as exc:
            raise CannotStart(
                f"cannot listen on {host}:{port}: {exc.strerror}; choose another port, or 0 for any free one"
            ) from exc
        manager.start()
        _announce(host, int(runner.addresses[0][1]), port_file, strict=state.run.scenario.strict)
        gc.freeze()  # what is loaded now stays: the collector need not walk it again
        gc.set_threshold(*_GC)
        await stop.wait()
    finally:
        await manager.stop()
        with contextlib.suppress(asyncio.CancelledError):
            await runner.cleanup()


def _announce(host: str, port: int, port_file: Path | None, *, strict: bool) -> None:
    log.info("simulator listening", extra={"action": "simulator_listening", "host": host, "port": port})
    print(f"provider simulator: http://{host}:{port}/v1", flush=True)
    if not strict:
        print(
            "provider simulator: validation is relaxed: bodies are not checked, figures are of speed alone", flush=True
        )
    if port_file is not None:
        draft = port_file.with_name(f"{port_file.name}.{os.getpid()}")
        draft.write_text(f"{port}\n", encoding="ascii")
        draft.replace(port_file)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
