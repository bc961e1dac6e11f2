"""The provider simulator as a subprocess, for tests and benchmarks that need a provider.

with Simulator({"faults": [{"kind": "server_error", "first": 1}]}) as provider:
    run(base_url=provider.base_url)
    assert provider.ledger()["billed"]["calls"] == 1
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 10.0


class Simulator:
    """A running simulator of its own process; started on entry, stopped by its pid on exit."""

    def __init__(
        self, scenario: dict[str, Any] | None = None, *, home: Path | None = None, options: Sequence[str] = ()
    ) -> None:
        """`home` keeps state across a restart; `options` are further words of its command line."""
        self._scenario = scenario or {}
        self._options = [*options, *(["--home", str(home)] if home is not None else [])]
        self._folder = tempfile.TemporaryDirectory(prefix="simulator-")
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process id; the simulator must be running."""
        assert self._process is not None, "the simulator is not running"
        return self._process.pid

    @property
    def root_url(self) -> str:
        """Where /health and /__sim live."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        """What a client of the provider is given; ends in /v1."""
        return f"{self.root_url}/v1"

    def start(self) -> None:
        """Start the process and return once /health answers."""
        folder = Path(self._folder.name)
        scenario_file, port_file, log_file = folder / "scenario.json", folder / "port", folder / "output"
        scenario_file.write_text(json.dumps(self._scenario))
        command = [sys.executable, "-m", "nightmill.provider_simulator", "--port", "0"]
        command += ["--port-file", str(port_file), "--scenario", str(scenario_file)]
        command += self._options
        with log_file.open("wb") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._healthy(port_file):
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = log_file.read_text(errors="replace")
                self.stop()
                raise RuntimeError(f"the simulator did not start: {said}")
            time.sleep(0.02)

    def stop(self) -> None:
        """End the process and remove its files; a second call does nothing."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        self._folder.cleanup()

    def set_scenario(self, scenario: dict[str, Any]) -> None:
        """Replace the scenario; windows, `first` and limits start anew, the ledger goes on."""
        self._call("PUT", "/__sim/scenario", json.dumps(scenario).encode())

    def ledger(self) -> dict[str, Any]:
        """Totals: received, accepted, billed, delivered, lost, refused, by_fault, in_flight, max_concurrency."""
        totals: dict[str, Any] = json.loads(self._call("GET", "/__sim/ledger"))
        return totals

    def attempts(self, *, refused: bool = False) -> list[dict[str, Any]]:
        """One row per accepted call in order of arrival; with `refused`, per call that arrived."""
        path = "/__sim/ledger/attempts" + ("?refused=1" if refused else "")
        return [json.loads(line) for line in self._call("GET", path).splitlines()]

    def set_clock(self, *, advance_s: float = 0, speed: float | None = None) -> dict[str, Any]:
        """Put the clock of files, batches and webhooks forward, or let it run at another speed."""
        wanted = {"advance_s": advance_s, **({} if speed is None else {"speed": speed})}
        clock: dict[str, Any] = json.loads(self._call("POST", "/__sim/clock", json.dumps(wanted).encode()))
        return clock

    def reset(self) -> None:
        """Empty the ledger and forget which bodies were seen; the scenario stays."""
        self._call("POST", "/__sim/reset", b"")

    def _healthy(self, port_file: Path) -> bool:
        if not port_file.exists():
            return False
        self.port = int(port_file.read_text())
        try:
            self._call("GET", "/health")
        except urllib.error.URLError:
            return False
        return True

    def _call(self, method: str, path: str, body: bytes | None = None) -> bytes:
        request = urllib.request.Request(f"{self.root_url}{path}", data=body, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                answer: bytes = response.read()
                return answer
        except urllib.error.HTTPError as exc:
            with exc:
                raise RuntimeError(f"{method} {path}: {exc.code}: {exc.read().decode(errors='replace')}") from exc
