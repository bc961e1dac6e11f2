"""The api as a process: token, port, views, HTTP, and a stop in order.

The port file is written once it listens, the ready file with it; both are gone after an orderly stop.
"""

import logging
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import uvicorn

from nightmill.api.app import create_app
from nightmill.api.desk import open_desk
from nightmill.api.ledger import Ledger
from nightmill.api.mirror import Mirror
from nightmill.api.token import ensure_token
from nightmill.kernel.domain.settings import Config
from nightmill.kernel.runtime.kafka import KafkaLog
from nightmill.kernel.runtime.log import LogUnavailable
from nightmill.kernel.runtime.observe import metrics
from nightmill.kernel.runtime.process import SURROUNDINGS, stopped_by
from nightmill.kernel.runtime.settings import Settings, SettingsError, load_config
from nightmill.kernel.store.blobs import BlobStore

log = logging.getLogger(__name__)

PREFERRED_PORT = 8321
_PORT_VARIABLE = "NIGHTMILL_API_PORT"
_LOOPBACK = "127.0.0.1"
_DRAIN_S = 3


def run_api(settings: Settings) -> int:
    """Serve until told to stop; needs the main thread. 0 after an orderly stop, 1 when it must be started again.

    Raises `SettingsError` for settings that can not be used.
    """
    config = load_config(settings.config_dir)
    try:
        return _serve(config, settings)
    except SURROUNDINGS as error:
        return stopped_by(error, settings.home)


def _serve(config: Config, settings: Settings) -> int:
    token = ensure_token(settings.token_file)
    if settings.metrics_port is not None:
        metrics.serve(settings.metrics_port)
    server: ApiServer | None = None
    died = False

    def mirror_died() -> None:
        nonlocal died
        died = True
        if server is not None:
            server.should_exit = True

    mirror = Mirror(
        KafkaLog(settings.bootstrap, settings.namespace, settings.partitions), time.monotonic, died=mirror_died
    )
    try:
        mirror.start()
    except TimeoutError as error:
        raise LogUnavailable("the views were not loaded in time") from error
    ledger = Ledger(settings.run_dir / "ledger.port", token)
    desk = open_desk(
        mirror=mirror,
        blobs=BlobStore(settings.blobs_url),
        config=config,
        results_dir=settings.results_dir,
        ledger=ledger,
        now_ms=lambda: time.time_ns() // 1_000_000,
        environment=settings.environment,
        local_servers=settings.local_servers,
    )
    # uvicorn raises the signal again when it is done; by then it has been obeyed
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    with listen(_wanted_port(settings)) as listener:
        server = ApiServer(create_app(desk, token), settings.run_dir)
        try:
            server.run(sockets=[listener])
        finally:
            mirror.close()
            ledger.close()
    log.info("service stopped", extra={"action": "service_stopped"})
    return 1 if died else 0


class ApiServer(uvicorn.Server):
    """Uvicorn that says in the run folder where it listens."""

    def __init__(self, app: Any, run_dir: Path) -> None:
        config = uvicorn.Config(
            app,
            loop="asyncio",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_DRAIN_S,
        )
        super().__init__(config)
        self._port_file = run_dir / "api.port"
        self._ready_file = run_dir / "api.ready"

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        assert sockets is not None
        port = int(sockets[0].getsockname()[1])
        _replace(self._port_file, str(port))
        _replace(self._ready_file, str(os.getpid()))
        log.info("service ready", extra={"action": "service_ready", "port": port})

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._ready_file.unlink(missing_ok=True)
        self._port_file.unlink(missing_ok=True)
        await super().shutdown(sockets)


def listen(wanted: int) -> socket.socket:
    """A listening loopback socket: on the wanted port, or on a free one when that is taken."""
    for port in (wanted, 0):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((_LOOPBACK, port))
            listener.listen(128)
            return listener
        except OSError as error:
            listener.close()
            log.warning("port taken", extra={"action": "port_taken", "port": port, "reason": str(error)})
    raise SettingsError(f"no free loopback port for the api; set {_PORT_VARIABLE} to one that is free")


def _wanted_port(settings: Settings) -> int:
    text = settings.environment.get(_PORT_VARIABLE, str(PREFERRED_PORT))
    if not text.isdecimal() or int(text) > 65535:
        raise SettingsError(f"{_PORT_VARIABLE} = {text!r}: expected a port number")
    return int(text)


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(text, encoding="ascii")
    scratch.replace(path)
