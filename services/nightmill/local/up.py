"""`nightmill up`, `down`: one supervisor process that owns the home, in the foreground or detached.

Detached is the same program in a session of its own: the caller follows run/state.json and returns when all is ready.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nightmill.local import docker, kafka
from nightmill.local.children import (
    broker_child,
    log_tail,
    model_server_child,
    rotate,
    service_child,
)
from nightmill.local.doctor import MINIMUM_DESCRIPTORS, fatal_checks, run_doctor
from nightmill.local.errors import LaptopError
from nightmill.local.home import Home, lock_home, open_home, read_pid_file, write_pid_file
from nightmill.local.jars import cached_jars, resolve_jars
from nightmill.local.java import find_java
from nightmill.local.ports import API_PORT, BROKER_PORT, CONTROLLER_PORT, MODEL_PORT, choose_ports
from nightmill.local.processes import LOOPBACK, birth_of, is_alive, raise_descriptor_limit, stop_all
from nightmill.local.status import LaptopState, read_state, running_state, write_state
from nightmill.local.supervision import Phase
from nightmill.local.supervisor import Outcome, Supervisor, stop_orphans

EXIT_OK = 0
EXIT_BAD_SETTINGS = 2
EXIT_NOT_RUNNING = 5
KAFKA_LOCAL = "local"
KAFKA_DOCKER = "docker"
SERVICES = (
    "planner",
    "dispatcher",
    "provider_gateway",
    "validator",
    "publisher",
    "rate_governor",
    "ledger",
    "api",
)
_SUPERVISOR = "supervisor"
#: A stop may take each wave's grace one after the other.
_DOWN_TIMEOUT_S = 90.0
_FOLLOW_POLL_S = 0.1


def service_command(name: str) -> Sequence[str]:
    """Return the command line that runs one service in the foreground."""
    return [sys.executable, "-m", "nightmill.cli.main", "service", name]


def foreground_command(options: UpOptions) -> Sequence[str]:
    """Return the command line that runs the same `up` in the foreground."""
    command = [sys.executable, "-m", "nightmill.cli.main", "up", "--kafka", options.kafka]
    command += ["--home", str(options.home)] if options.home else []
    return command + (["--config", str(options.config)] if options.config else [])


def say(line: str) -> None:
    """Print one progress line at once."""
    with contextlib.suppress(OSError):  # a log on a full disk
        print(line, flush=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """What `nightmill up` was asked for.

    `kafka` is `local`, `docker` or `HOST:PORT`. `create_topics(bootstrap, environment)` makes what is missing and must
    be repeatable; the environment is the one that the services get. Ports of 0 are chosen. `local_model` is set when
    a pool asks for the local model, `embedded_ledger` when no ClickHouse server is configured.
    """

    create_topics: Callable[[str, Mapping[str, str]], None]
    home: Path | None = None
    kafka: str = KAFKA_LOCAL
    config: Path | None = None
    detach: bool = False
    services: tuple[str, ...] = SERVICES
    command: Callable[[str], Sequence[str]] = service_command
    foreground: Callable[[UpOptions], Sequence[str]] = foreground_command
    environment: Mapping[str, str] = field(default_factory=dict)
    local_model: bool = False
    embedded_ledger: bool = True
    model_port: int = 0
    api_port: int = 0
    ready_timeout_s: float = 90.0
    say: Callable[[str], None] = say


def up(options: UpOptions) -> int:
    """Start the laptop; block until it is stopped, or with `detach` until it is ready. Returns an exit code.

    0 done · 2 nothing was started (settings, a missing part, a home in use) · 5 it did not get ready and was stopped.
    """
    try:
        home = open_home(options.home)
        return _detach(home, options) if options.detach else _foreground(home, options)
    except LaptopError as error:
        print(f"error: {error.message}\n  → {error.remedy}", file=sys.stderr, flush=True)
        return EXIT_BAD_SETTINGS


def down(root: Path | None = None, *, say: Callable[[str], None] = say) -> int:
    """Stop the laptop of a home in order and block until it is gone; also what a killed supervisor left. Returns 0."""
    home = open_home(root)
    holder = read_pid_file(home, _SUPERVISOR)
    supervised = holder is not None and is_alive(*holder)
    if holder is not None and supervised:
        killed = stop_all([holder], grace_s=_DOWN_TIMEOUT_S)
        say("stopped" if not killed else "the supervisor had to be killed")
    descriptor = lock_home(home)
    try:
        if orphans := stop_orphans(home):
            say(f"stopped what was left running: {', '.join(orphans)}")
        elif not supervised:
            say(f"nothing runs in {home.root}")
    finally:
        os.close(descriptor)
    return EXIT_OK


def _foreground(home: Home, options: UpOptions) -> int:
    lock = lock_home(home)
    try:
        # the usual soft limit of 1,024 is less than the broker and many slots need
        raise_descriptor_limit(MINIMUM_DESCRIPTORS)
        write_pid_file(home, _SUPERVISOR, os.getpid())
        if orphans := stop_orphans(home):
            options.say(f"stopped what an earlier supervisor left running: {', '.join(orphans)}")
        _refuse_if_unfit(home, options)
        return _Laptop(home, options).run()
    finally:
        home.pid_file(_SUPERVISOR).unlink(missing_ok=True)
        os.close(lock)


def _refuse_if_unfit(home: Home, options: UpOptions) -> None:
    checks = run_doctor(
        home.root, kafka=options.kafka, local_model=options.local_model, embedded_ledger=options.embedded_ledger
    )
    if fatal := fatal_checks(checks):
        problems = "; ".join(f"{check.name}: {check.detail}" for check in fatal)
        raise LaptopError(problems, remedy="; ".join(check.remedy for check in fatal))


def _detach(home: Home, options: UpOptions) -> int:
    if state := running_state(home):
        options.say(f"already running: {state.progress()}")
        return EXIT_OK if state.phase is Phase.READY else EXIT_NOT_RUNNING
    output_path = home.logs / f"{_SUPERVISOR}.log"
    rotate(output_path)
    started_at = output_path.stat().st_size if output_path.exists() else 0
    with output_path.open("ab") as output:
        process = subprocess.Popen(
            options.foreground(options),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | options.environment,
            start_new_session=True,
        )
    code = _follow(home, process, options.say)
    if code is not None:
        print(output_path.read_bytes()[started_at:].decode(errors="replace").strip(), file=sys.stderr, flush=True)
        return code or EXIT_NOT_RUNNING
    # It lives on without us: keep Popen from complaining that nobody waited for it.
    process.returncode = EXIT_OK
    return EXIT_OK


def _follow(home: Home, process: subprocess.Popen[bytes], say: Callable[[str], None]) -> int | None:
    """Say how far the start is; return None once all is ready, else the exit code of the supervisor."""
    said = ""
    while (code := process.poll()) is None:
        state = read_state(home)
        if state is not None and state.supervisor_pid == process.pid:
            if (line := state.progress()) != said:
                say(line)
                said = line
            if state.phase is Phase.READY:
                return None
        time.sleep(_FOLLOW_POLL_S)
    return code


class _Laptop:
    """One life of the laptop: from the first process to the last. The home's lock is held by the caller."""

    def __init__(self, home: Home, options: UpOptions) -> None:
        self._home = home
        self._options = options
        self._phase = Phase.STARTING
        self._supervisor = Supervisor(home, changed=self._write_state)
        wanted = {MODEL_PORT: options.model_port, API_PORT: options.api_port}
        names = [API_PORT, *([MODEL_PORT] if options.local_model else [])]
        names += [] if _is_external(options.kafka) else [BROKER_PORT, CONTROLLER_PORT]
        self._ports = choose_ports(home, names, wanted=wanted)
        external = _is_external(options.kafka)
        self._bootstrap = options.kafka if external else f"{LOOPBACK}:{self._ports[BROKER_PORT]}"

    def run(self) -> int:
        """Start everything, keep it alive until a signal, stop it in order; returns the exit code."""
        with self._supervisor.signals():
            try:
                outcome = self._start()
                if outcome is Outcome.READY:
                    self._phase = Phase.READY
                    self._supervisor.tell()
                    self._options.say(f"ready: Kafka at {self._bootstrap}, api at http://{LOOPBACK}:{self._api_port}")
                    self._supervisor.run_until_stopped()
                elif outcome is Outcome.FAILED:
                    self._report_failure()
            finally:
                self._stop()
        return EXIT_NOT_RUNNING if outcome is Outcome.FAILED else EXIT_OK

    @property
    def _api_port(self) -> int:
        return self._ports[API_PORT]

    def _start(self) -> Outcome:
        outcome = self._start_broker()
        if outcome is not Outcome.READY:
            return outcome
        environment = self._environment()
        self._options.create_topics(self._bootstrap, environment)
        if self._options.local_model:
            self._supervisor.add([model_server_child(self._home, self._ports[MODEL_PORT])])
        self._supervisor.add(
            service_child(self._home, name, self._options.command(name), environment) for name in self._options.services
        )
        return self._supervisor.wait_ready(timeout_s=self._options.ready_timeout_s)

    def _start_broker(self) -> Outcome:
        self._options.say(f"starting Kafka ({self._options.kafka})")
        match self._options.kafka:
            case "local":
                if not cached_jars():
                    self._options.say("copying Kafka's jars with Maven, once, about half a minute")
                java, jars = find_java(), resolve_jars()
                place = kafka.BrokerPlace(
                    folder=self._home.broker,
                    port=self._ports[BROKER_PORT],
                    controller_port=self._ports[CONTROLLER_PORT],
                )
                self._supervisor.add([broker_child(self._home, place, java=java, jars=jars)])
                return self._supervisor.wait_ready(timeout_s=self._options.ready_timeout_s)
            case "docker":
                docker.start_container(self._home.root, self._ports[BROKER_PORT])
                kafka.wait_ready(self._bootstrap, None)
            case _:
                kafka.wait_ready(self._bootstrap, None, timeout_s=10.0)
        return Outcome.STOPPED if self._supervisor.stopping else Outcome.READY

    def _environment(self) -> dict[str, str]:
        own = {
            "NIGHTMILL_HOME": str(self._home.root),
            "NIGHTMILL_KAFKA": self._bootstrap,
            "NIGHTMILL_API_PORT": str(self._api_port),
            "PYTHONUNBUFFERED": "1",
        }
        if self._options.config is not None:
            own["NIGHTMILL_CONFIG"] = str(self._options.config)
        if self._options.local_model:
            own["NIGHTMILL_MODEL_URL"] = f"http://{LOOPBACK}:{self._ports[MODEL_PORT]}/v1"
        return {**os.environ, **self._options.environment, **own}

    def _report_failure(self) -> None:
        for name in self._supervisor.not_ready():
            why = self._supervisor.why(name)
            head = f"{name} did not get ready" + (f" ({why})" if why else "")
            print(f"{head}; its log ends:\n{log_tail(self._home, name)}", file=sys.stderr, flush=True)

    def _stop(self) -> None:
        self._phase = Phase.STOPPING
        with contextlib.suppress(OSError):
            self._write_state()
        self._options.say("stopping")
        self._supervisor.stop()
        if self._options.kafka == KAFKA_DOCKER:
            docker.stop_container(self._home.root, self._ports[BROKER_PORT])
        self._options.say("stopped")

    def _write_state(self) -> None:
        pid = os.getpid()
        write_state(
            self._home,
            LaptopState(
                supervisor_pid=pid,
                supervisor_birth=birth_of(pid),
                phase=self._phase,
                kafka=self._bootstrap,
                api_port=self._api_port,
                model_port=self._ports.get(MODEL_PORT),
                processes=self._supervisor.states(),
            ),
        )


def _is_external(address: str) -> bool:
    if address in (KAFKA_LOCAL, KAFKA_DOCKER):
        return False
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise LaptopError(f"--kafka {address!r} is not local, docker or HOST:PORT", remedy="nightmill up --help")
    return True
