"""One life of the laptop: what starts, in which order, what is told meanwhile, and how it ends."""

from __future__ import annotations

import contextlib
import os
import sys

from nightmill.local import docker, kafka
from nightmill.local.children import broker_child, embeddings_server_child, log_tail, model_server_child, service_child
from nightmill.local.doctor import check_local_embeddings
from nightmill.local.embeddings_model import converted_file, prepare
from nightmill.local.errors import LaptopError
from nightmill.local.home import Home
from nightmill.local.jars import cached_jars, resolve_jars
from nightmill.local.java import find_java
from nightmill.local.options import KAFKA_DOCKER, UpOptions, is_external
from nightmill.local.ports import API_PORT, BROKER_PORT, CONTROLLER_PORT, EMBEDDINGS_PORT, MODEL_PORT, choose_ports
from nightmill.local.processes import LOOPBACK, birth_of
from nightmill.local.status import LaptopState, write_state
from nightmill.local.supervision import Phase
from nightmill.local.supervisor import Outcome, Supervisor


class Laptop:
    """From the first process to the last. The home's lock is held by the caller."""

    def __init__(self, home: Home, options: UpOptions) -> None:
        self._home = home
        self._options = options
        self._phase = Phase.STARTING
        self._supervisor = Supervisor(home, changed=self._write_state)
        wanted = {MODEL_PORT: options.model_port, API_PORT: options.api_port}
        self._embeds = options.local_embeddings and self._can_embed()
        names = [API_PORT, *([MODEL_PORT] if options.local_model else [])]
        names += [EMBEDDINGS_PORT] if self._embeds else []
        names += [] if is_external(options.kafka) else [BROKER_PORT, CONTROLLER_PORT]
        self._ports = choose_ports(home, names, wanted=wanted)
        external = is_external(options.kafka)
        self._bootstrap = options.kafka if external else f"{LOOPBACK}:{self._ports[BROKER_PORT]}"

    def run(self) -> Outcome:
        """Start everything, keep it alive until a signal, stop it in order; returns how the start went."""
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
        return outcome

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
        if self._embeds:
            self._supervisor.add([embeddings_server_child(self._home, self._ports[EMBEDDINGS_PORT])])
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
        if self._embeds:
            own["NIGHTMILL_EMBEDDINGS_URL"] = f"http://{LOOPBACK}:{self._ports[EMBEDDINGS_PORT]}/v1"
        return {**os.environ, **self._options.environment, **own}

    def _can_embed(self) -> bool:
        """Whether the embeddings model can be served: nothing else waits for it, so it is told where it can not."""
        check = check_local_embeddings()
        if not check.ok:
            self._options.say(check.line())
            return False
        try:
            if not converted_file().is_file():
                self._options.say("converting the embeddings model, once, a few seconds")
            prepare()
        except LaptopError as error:
            self._options.say(f"the embeddings model is left out: {error.message} → {error.remedy}")
            return False
        return True

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
                embeddings_port=self._ports.get(EMBEDDINGS_PORT),
                config=None if self._options.config is None else str(self._options.config),
                processes=self._supervisor.states(),
            ),
        )
