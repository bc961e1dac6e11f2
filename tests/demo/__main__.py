"""Run a job over the Batch APIs of a simulated OpenAI and a simulated Anthropic, and lay its two books side by side.

    python tests/demo [--items 2000] [--seed 1] [--folder build/demo-bulk]

The provider fails as `deploy/demo-bulk/scenario.yaml` says, and its clock runs 1,440 times as fast: a day is a minute.
Everything is started, and stopped again; the folder keeps results, ledger and logs until the next run. Exit code: that
of the job, or 1 when bill and ledger do not agree.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # tests/, for `kit` and this package

from demo.books import render
from demo.tickets import tickets
from kit.bill import Booked, Charge, booked_of, charges_of, compare
from kit.program import end_on_sigterm, parser_of, positive
from kit.simulator import Simulator
from nightmill.client import Client
from nightmill.kernel.resources import resource

ITEMS = 2_000
CLOCK_SPEED = 1_440
_PIPELINE = "ticket-triage"
_WRITTEN_ADDRESS = "http://127.0.0.1:8399/v1"
_PATIENCE_S = 60.0
#: exit codes of `run`: refused, or the system is lost
_NOTHING_RAN = (2, 5)


def main(arguments: Sequence[str] | None = None) -> int:
    """Start, run, compare, stop."""
    options = _parser().parse_args(arguments)
    end_on_sigterm()
    folder: Path = options.folder.absolute()
    command = Command(folder / "home", folder / "config")
    command("down")  # what an interrupted run has left
    shutil.rmtree(folder, ignore_errors=True)
    scenario = resource("deploy", "demo-bulk", "scenario.yaml")
    with Simulator(options=["--scenario", str(scenario), "--clock-speed", str(CLOCK_SPEED)]) as simulator:
        print(f"a simulated provider listens at {simulator.base_url}; a day of its clock is a minute", flush=True)
        path = _prepare(folder, simulator.base_url, options.items, options.seed)
        try:
            code = command("up", "--detach", "--config", str(folder / "config"))
            if code:
                return code
            code = command("run", _PIPELINE, "--input", str(path), "--yes")
            if code in _NOTHING_RAN:
                return code
            with Client(folder / "home") as client:
                charges, booked = _books(client, simulator)
        finally:
            command("down")
        print(render(charges, booked, simulator.ledger()))
    print(again(options.folder))
    return code or (0 if compare(charges, booked).agrees else 1)


def again(folder: Path) -> str:
    """How to look at what the run left."""
    return (
        "\nall is stopped; to look at the job, its costs and results:\n"
        f"  export NIGHTMILL_HOME={folder / 'home'}\n"
        f"  nightmill up --detach --config {folder / 'config'}\n"
        "  nightmill cost last --by cause; nightmill explain T-00001; nightmill down"
    )


class Command:
    """`nightmill`, as it is typed."""

    def __init__(self, home: Path, config: Path) -> None:
        own = {"NIGHTMILL_HOME": str(home), "NIGHTMILL_CONFIG": str(config), "NIGHTMILL_DEMO_KEY": "any-text"}
        self._environment = os.environ | own

    def __call__(self, *words: str) -> int:
        """Run one command to its end; its exit code."""
        print(f"\n$ nightmill {' '.join(words)}", flush=True)
        program = [sys.executable, "-m", "nightmill.cli.main", *words]
        return subprocess.run(program, env=self._environment, check=False).returncode


def _prepare(folder: Path, base_url: str, items: int, seed: int) -> Path:
    """Settings that name this simulator, and the input."""
    config = folder / "config"
    config.mkdir(parents=True)
    for file in resource("deploy", "demo-bulk").glob("*.yaml"):
        text = file.read_text(encoding="utf-8").replace(_WRITTEN_ADDRESS, base_url)
        (config / file.name).write_text(text, encoding="utf-8")
    path = folder / "tickets.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in tickets(items, seed)), encoding="utf-8")
    return path


def _books(client: Client, simulator: Simulator) -> tuple[list[Charge], list[Booked]]:
    """Both, once the ledger has all that was billed; what it still lacks after a minute is a difference."""
    job_id = client.jobs().jobs[0].job_id
    charges = charges_of(simulator.attempts())
    deadline = time.monotonic() + _PATIENCE_S
    while not compare(charges, booked := booked_of(client, job_id)).agrees and time.monotonic() < deadline:
        time.sleep(0.5)
    return charges, booked


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("demo", "A job over two providers' Batch APIs, and its two books.")
    parser.add_argument("--items", type=positive, default=ITEMS, help=f"tickets (default {ITEMS:,})")
    parser.add_argument("--seed", type=int, default=1, help="decides the tickets (default 1)")
    parser.add_argument("--folder", type=Path, default=Path("build/demo-bulk"), help="emptied first, kept afterwards")
    return parser


if __name__ == "__main__":
    sys.exit(main())
