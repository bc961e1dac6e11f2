"""The simulator as a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import time
from pathlib import Path

import uvloop
import yaml
from aiohttp import web

from nightmill.provider_simulator.scenario import Scenario, ScenarioError, parse_scenario
from nightmill.provider_simulator.server import Simulator

log = logging.getLogger(__name__)

_SHUTDOWN_S = 1.0  # calls still held then are cut off
_BACKLOG = 2048


class CannotStart(Exception):
    """The simulator cannot serve as asked; the text says what is wrong and what to change."""


def run_simulator(*, host: str, port: int, scenario: Path | None, port_file: Path | None) -> None:
    """Serve until SIGINT or SIGTERM; must be called on the main thread.

    Port 0 takes any free port. Once it listens, the port is printed and written to `port_file`, whole or not at all.
    Raises `CannotStart` when the scenario is unusable or the port is taken.
    """
    try:
        wanted = load_scenario(scenario)
    except ScenarioError as exc:
        raise CannotStart(str(exc)) from exc
    uvloop.run(_serve(wanted, host=host, port=port, port_file=port_file))


def load_scenario(path: Path | None) -> Scenario:
    """The scenario of a YAML or JSON file; without a file, a provider that never fails."""
    if path is None:
        return Scenario()
    try:
        text = path.read_text(encoding="utf-8-sig")
        data = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except OSError as exc:
        raise ScenarioError(f"{path}: cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise ScenarioError(f"{path}: is not UTF-8 at byte {exc.start}") from exc
    except (ValueError, yaml.YAMLError) as exc:
        raise ScenarioError(f"{path}: is neither YAML nor JSON: {exc}") from exc
    return parse_scenario(data, where=str(path))


async def _serve(scenario: Scenario, *, host: str, port: int, port_file: Path | None) -> None:
    stop = asyncio.Event()
    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    app = Simulator(scenario, now_ms=_now_ms).app()
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, backlog=_BACKLOG)
        try:
            await site.start()
        except OSError as exc:
            raise CannotStart(
                f"cannot listen on {host}:{port}: {exc.strerror}; choose another port, or 0 for any free one"
            ) from exc
        _announce(host, int(runner.addresses[0][1]), port_file)
        gc.freeze()  # what is loaded now stays: the collector need not walk it again
        await stop.wait()
    finally:
        with contextlib.suppress(asyncio.CancelledError):
            await runner.cleanup()


def _announce(host: str, port: int, port_file: Path | None) -> None:
    log.info("simulator listening", extra={"action": "simulator_listening", "host": host, "port": port})
    print(f"provider simulator: http://{host}:{port}/v1", flush=True)
    if port_file is not None:
        draft = port_file.with_name(f"{port_file.name}.{os.getpid()}")
        draft.write_text(f"{port}\n", encoding="ascii")
        draft.replace(port_file)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
