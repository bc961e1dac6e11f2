"""Hands out a ClickHouse; the suites do not know which.

`server_url()`: `NIGHTMILL_TEST_CLICKHOUSE` if set, else a container where a Docker engine answers, else None, and then
the ledger's process embeds the engine. `LedgerProcess` is that process, over any of them: the test's own process never
opens the engine, so tests can kill it, and as many folders as they like can be open at once.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import pickle
import secrets
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from nightmill.local import docker

#: a process that embeds the engine, and one that asks a server
FORMS = ("embedded", "server")
_TESTS = Path(__file__).parents[1]
_KIT = Path(__file__).parent
_IMAGE = "clickhouse/clickhouse-server:26.9"
_HTTP_PORT = 8123
_TIMEOUT_S = 90
_ANSWER_TIMEOUT_S = 60
_TAIL_LETTERS = 2_000


@functools.cache
def server_url() -> str | None:
    """URL of a ClickHouse server for this test process, or None: embed the engine. May block while one starts."""
    if external := os.environ.get("NIGHTMILL_TEST_CLICKHOUSE"):
        return external
    return _start_container() if docker.engine_answers() else None


def namespace() -> str:
    """A database that no other test has."""
    return f"t{secrets.token_hex(5)}"


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """URL of a server, or where there is none of `front(folder)`."""
    if external := server_url():
        yield external
    else:
        with front(folder) as url:
            yield url


@contextmanager
def front(folder: Path, port: int = 0) -> Iterator[str]:
    """URL of the engine behind the smallest HTTP face (see clickhouse_front.py), over `folder`."""
    process = _start(_KIT / "clickhouse_front.py", str(folder), str(port))
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        _stop(process)


class LedgerProcess:
    """The ledger over `url`, or over the engine embedded in it. Kill it whenever you like."""

    def __init__(self, home: Path, namespace_: str, url: str | None) -> None:
        self.home = home
        home.mkdir(exist_ok=True)
        (home / "token").write_text("test-token", encoding="utf-8")
        # a file: a pipe that nobody reads is full after 64 KiB of log, and the process then waits for ever
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 — `stop` closes it
        script = _KIT / "ledger_process.py"
        self.process = _start(script, str(home), namespace_, *([url] if url else []), log=self._log)
        line = self._line()
        if line != "ready":
            said = self.error()
            raise ChildProcessError(self.stop(), said)
        self.port = int((home / "run" / "ledger.port").read_text(encoding="utf-8"))

    def deliver(self, events: Iterable[Any], *, partition: int = 0) -> str:
        """Hand over events as one transaction's worth and wait for its flush; returns what the process said."""
        self.send(events, partition=partition)
        return self._line()

    def send(self, events: Iterable[Any], *, partition: int = 0) -> None:
        """Hand over events without waiting for their flush."""
        assert self.process.stdin is not None
        self.process.stdin.write(pickle.dumps([(partition, event) for event in events]))
        self.process.stdin.flush()

    def post(self, path: str, body: Any, *, token: str = "test-token") -> tuple[int, Any]:
        """Status and JSON of one request to the endpoint. A process that does not answer is killed: one failure."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=raw)
        request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_TIMEOUT_S) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())
        except TimeoutError as error:
            self.process.kill()
            asked, said = raw[:_TAIL_LETTERS], self.error()[-_TAIL_LETTERS:]
            raise AssertionError(f"{path}: no answer to {asked!r} in {_ANSWER_TIMEOUT_S} s; log: {said}") from error

    def rows(self, sql: str, **parameters: Any) -> list[list[Any]]:
        """Rows of a query that must be answered."""
        status, answer = self.post("/query", {"sql": sql, "parameters": parameters, "max_rows": 100_000})
        assert status == 200, answer
        rows: list[list[Any]] = answer["rows"]
        return rows

    def named(self, query: str, **parameters: Any) -> list[dict[str, Any]]:
        """Rows of a named query, by column."""
        status, answer = self.post(f"/named/{query}", {"parameters": parameters})
        assert status == 200, answer
        return [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]

    def kill(self) -> None:
        """SIGKILL: nothing is finished, nothing is closed."""
        self.process.send_signal(signal.SIGKILL)
        self.stop()

    def stop(self) -> int:
        """Orderly end; returns the exit code."""
        code = _stop(self.process)
        self._log.close()
        return code

    def error(self) -> str:
        """The log of a process that is ending, whole."""
        self.process.wait(_TIMEOUT_S)
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()


#: opens a ledger process, by a name where a test has several
Open = Callable[..., LedgerProcess]


@contextmanager
def ledger(home: Path, namespace_: str, url: str | None) -> Iterator[LedgerProcess]:
    """A ledger process for one block."""
    process = LedgerProcess(home, namespace_, url)
    try:
        yield process
    finally:
        process.stop()


def _start(script: Path, *arguments: str, log: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
    """Run a script of the kit; without `log` its errors go where the tests' own do."""
    return subprocess.Popen(
        [sys.executable, str(script), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env=os.environ | {"PYTHONPATH": str(_TESTS)},
    )


def _stop(process: subprocess.Popen[bytes]) -> int:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None and not pipe.closed:
            try:
                pipe.close()
            except BrokenPipeError:
                continue  # it was killed with a frame half read
    return process.wait(_TIMEOUT_S)


def _start_container() -> str:
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.waiting_utils import wait_for_logs

    container = (
        DockerContainer(_IMAGE).with_env("CLICKHOUSE_SKIP_USER_SETUP", "1").with_exposed_ports(_HTTP_PORT).start()
    )
    atexit.register(container.stop)
    wait_for_logs(container, "Ready for connections", timeout=_TIMEOUT_S)
    return f"http://{container.get_container_host_ip()}:{container.get_exposed_port(_HTTP_PORT)}"
