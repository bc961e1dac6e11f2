"""`nightmill run` to the end: the real command and api, every service, a real provider over HTTP."""

import csv
import io
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kit.api_server import ServedApi
from kit.line import Line
from kit.simulator import Simulator
from nightmill.cli import main as cli
from nightmill.kernel.domain.settings import Config

PIPELINE = {
    "name": "label",
    "input": {"id": "id", "fields": ["text"]},
    "prompt": "system:\nLabel the text.\nuser:\n{{ text }}",
    "output": {"type": "object", "properties": {"label": {"enum": ["a", "b"]}}, "required": ["label"]},
    "model": {"pools": ["sim"], "max_output_tokens": 32},
    "limits": {"budget_usd": 5},
}


class Running:
    """Every service but the ledger on the memory log, stepped by a thread, with the api in front."""

    def __init__(self, home: Path, simulator: Simulator) -> None:
        pool = {
            "provider": "openai_compatible",
            "base_url": simulator.base_url,
            "model": "simulated",
            "limits": {"slots": 20},
            "context_tokens": 2000,
            "call_deadline": "5s",
        }
        price = {"input_usd_per_million": 0.15, "output_usd_per_million": 0.6}
        waits = {name: {"base": "0.05s", "cap": "0.2s"} for name in ("transient", "capacity", "account")}
        config = Config.model_validate(
            {
                "pools": {"sim": pool},
                "prices": {"version": "1", "models": {"simulated": price}},
                "retry": {"classes": waits},
                "tenants": {"default": {}},
            }
        )
        self.home = home
        home.mkdir(parents=True)
        self.line = Line(home, config)
        self.api = ServedApi(home, config, self.line.log)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._step)

    def __enter__(self) -> "Running":
        self._thread.start()
        self.api.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.api.__exit__(None, None, None)
        self._stop.set()
        self._thread.join()
        self.line.close()

    def _step(self) -> None:
        while not self._stop.is_set():
            with self.api.lock:
                self.line.step()
            time.sleep(0.001)


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator() as started:
        yield started


@pytest.fixture
def running(tmp_path: Path, simulator: Simulator) -> Iterator[Running]:
    with Running(tmp_path / "home", simulator) as started:
        yield started


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(12):
        (folder / f"{number:02d}.txt").write_text(f"text number {number}")
    return folder


def pipeline(tmp_path: Path, **fields: object) -> str:
    folder = tmp_path / "label"
    folder.mkdir(exist_ok=True)
    (folder / "pipeline.yaml").write_text(json.dumps({**PIPELINE, **fields}))
    return str(folder)


def test_a_run_is_published_shown_and_reused(
    running: Running, simulator: Simulator, documents: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """P2, M3: a folder in, results out in each format; a second run calls nobody."""
    home = ("--home", str(running.home))
    assert cli.run(["run", pipeline(tmp_path), "--input", str(documents), *home]) == 0
    said = capsys.readouterr()
    assert "published as version 1 of default.label" in said.out
    assert "12 of 12 settled: 12 accepted" in said.out
    assert "of 5.00 USD" in said.out
    job = said.err.split()[1]
    assert f"nightmill results {job} --format csv" in said.out

    assert cli.run(["run", pipeline(tmp_path), "--input", str(documents), "--json", *home]) == 0
    second = json.loads(capsys.readouterr().out)
    assert (second["counts"]["reused"], second["spent"]["cost_nano_usd"], second["version"]) == (12, 0, 2)
    assert simulator.ledger()["billed"]["calls"] == 12

    for name in (job, "label", "default.label"):
        assert len(results(name, "jsonl", running.home).splitlines()) == 12
    rows = list(csv.DictReader(io.StringIO(results(job, "csv", running.home).decode())))
    assert {row["_source_id"] for row in rows} == {f"{number:02d}.txt" for number in range(12)}
    table = pq.read_table(io.BytesIO(results(job, "parquet", running.home)))
    assert set(table.column("label").to_pylist()) <= {"a", "b"}
    assert cli.run(["versions", "label", "--json", *home]) == 0
    assert [each["version"] for each in json.loads(capsys.readouterr().out)["versions"]] == [2, 1]


def test_a_held_run_is_approved(
    running: Running, documents: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Q4, E11: a gate that nothing can pass holds the job: exit code 3; approve publishes it."""
    home = ("--home", str(running.home))
    gated = pipeline(tmp_path, gates={"gold": {"field": "label", "column": "gold", "accuracy": 1}})
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"id": str(n), "text": f"t {n}", "gold": "other"}) + "\n" for n in range(3)))
    assert cli.run(["run", gated, "--input", str(rows), "--json", *home]) == 3
    held = json.loads(capsys.readouterr().out)
    assert (held["state"], held["gold"]) == ("held", {"compared": 3, "right": 0})
    assert cli.run(["results", held["job_id"], *home]) == 2
    assert len(results(held["job_id"], "jsonl", running.home, "--staged").splitlines()) == 3
    capsys.readouterr()
    assert cli.run(["approve", held["job_id"], *home]) == 0
    assert cli.run(["status", held["job_id"], "--watch", *home]) == 0
    assert "published as version 1" in capsys.readouterr().out


def test_a_broken_row_refuses_the_run(
    running: Running, simulator: Simulator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """E2, P7: exit code 2 with place and remedy, nothing called; --skip-bad-rows goes on without it."""
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(b'\xef\xbb\xbf{"id": "a", "text": "one"}\n{"id": "b", "text": "caf\xe9"}\n{broken\n')
    arguments = ["run", pipeline(tmp_path), "--input", str(rows), "--home", str(running.home)]
    assert cli.run(arguments) == 2
    said = capsys.readouterr().out
    assert "line 2" in said
    assert "--skip-bad-rows" in said
    assert simulator.ledger()["billed"]["calls"] == 0
    assert cli.run([*arguments, "--skip-bad-rows"]) == 0
    assert "2 refused at planning" in capsys.readouterr().out


def results(name: str, format_: str, home: Path, *more: str) -> bytes:
    """Standard output of `nightmill results`, as bytes, from a process of its own."""
    command = [sys.executable, "-m", "nightmill.cli.main", "results", name, "--format", format_, "--home", str(home)]
    return subprocess.run([*command, *more], capture_output=True, check=True).stdout
