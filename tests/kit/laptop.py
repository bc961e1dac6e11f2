"""A whole installation as a user has one: `nightmill up` on a real broker, a home of its own, and the real command."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from kit.broker import bootstrap, namespace
from kit.patience import PATIENCE_S
from nightmill.kernel.resources import resource
from nightmill.kernel.runtime.kafka.admin import delete_topics

NOT_RUNNING = 5
SCHEMA = {"type": "object", "properties": {"label": {"enum": ["a", "b", "c"]}}, "required": ["label"]}


@dataclass
class Laptop:
    """`home` and `config` lie under `folder`; pools of the config point at a provider's address."""

    folder: Path
    base_url: str
    slots: int = 20
    namespace: str = field(default_factory=namespace)
    pool: Mapping[str, Any] = field(default_factory=dict)  #: settings of its pool in place of these, or beside them
    local_embeddings: bool = False  #: the pool of that model is there, too, as it ships

    def __post_init__(self) -> None:
        self.home = self.folder / "home"
        self.config = self.folder / "config"
        self.config.mkdir(parents=True, exist_ok=True)
        pool = {
            "provider": "openai_compatible",
            "base_url": self.base_url,
            "model": "simulated",
            "limits": {"slots": self.slots},
            "context_tokens": 4000,
            "sensitivity": "internal",
            "call_deadline": "5s",
            **self.pool,
        }
        price = {"input_usd_per_million": 0.15, "output_usd_per_million": 0.6, "batch_discount": 0.5}
        waits = {name: {"base": "0.1s", "cap": "1s"} for name in ("transient", "capacity", "account")}
        pools, prices = {"sim": pool}, {"simulated": price}
        if self.local_embeddings:
            local = yaml.safe_load(resource("deploy", "config", "pools.yaml").read_text())["pools"]["local-embeddings"]
            pools["local-embeddings"] = local
            prices[local["model"]] = {"input_usd_per_million": 0, "output_usd_per_million": 0}
        self.write_config("pools.yaml", {"pools": pools})
        self.write_config("prices.yaml", {"version": "1", "models": prices})
        self.write_config("retry.yaml", {"classes": waits})
        self.write_config("tenants.yaml", {"tenants": {"default": {"sensitivity": "restricted"}}})

    def write_config(self, name: str, value: Mapping[str, Any]) -> Path:
        path = self.config / name
        path.write_text(yaml.safe_dump(value))
        return path

    def pipeline(self, name: str = "label", **fields: Any) -> Path:
        """A pipeline folder; `fields` replace those of the small default one."""
        folder = self.folder / "pipelines" / name
        folder.mkdir(parents=True, exist_ok=True)
        base: dict[str, Any] = {
            "name": name,
            "input": {"id": "id", "fields": ["text"]},
            "prompt": "prompt.md",
            "output": SCHEMA,
            "model": {"pools": ["sim"], "max_output_tokens": 32},
            "limits": {"budget_usd": 5},
        }
        (folder / "prompt.md").write_text("system:\nLabel the text.\n\nuser:\n{{ text }}\n")
        (folder / "pipeline.yaml").write_text(yaml.safe_dump({**base, **fields}))
        return folder

    def documents(self, count: int) -> Path:
        path = self.folder / f"documents-{count}.jsonl"
        rows = ({"id": f"d{i}", "text": f"document number {i} end"} for i in range(count))
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "NIGHTMILL_HOME": str(self.home), "NIGHTMILL_NAMESPACE": self.namespace}

    def cli(self, *arguments: str | Path, timeout_s: float = PATIENCE_S) -> "subprocess.CompletedProcess[str]":
        """Run one command to its end."""
        return subprocess.run(
            [sys.executable, "-m", "nightmill.cli.main", *map(str, arguments)],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def up(self) -> None:
        done = self.cli("up", "--detach", "--kafka", bootstrap(), "--config", self.config)
        assert done.returncode == 0, f"up failed: {done.stdout}{done.stderr}{self.log_tails()}"

    def down(self) -> None:
        done = self.cli("down")
        assert done.returncode == 0, done.stdout + done.stderr

    def json(self, *arguments: str | Path) -> Any:
        """The one object that a command prints with `--json`."""
        done = self.cli(*arguments, "--json")
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    def submit(self, pipeline: Path, documents: Path, *arguments: str) -> str:
        """Start a job without following it; its id."""
        found = self.json("run", pipeline, "--input", documents, "--detach", *arguments)
        job_id: str = found["job_id"]
        return job_id

    def wait(
        self, job_id: str, done: Callable[[Mapping[str, Any]], bool], patience_s: float = PATIENCE_S
    ) -> Mapping[str, Any]:
        """Poll the status until `done` holds; the last status. An api that is being restarted is asked again."""
        deadline = time.monotonic() + patience_s
        while True:
            asked = self.cli("status", job_id, "--json")
            status: Mapping[str, Any] = {} if asked.returncode == NOT_RUNNING else json.loads(asked.stdout)
            if status and done(status):
                return status
            assert time.monotonic() < deadline, f"waited in vain: {status}{self.log_tails()}"
            time.sleep(0.2)

    def results(self, name: str) -> list[dict[str, Any]]:
        done = self.cli("results", name, "--format", "jsonl")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def pid_of(self, service: str) -> int:
        processes: list[dict[str, Any]] = self.json("ps")["processes"]
        return next(int(process["pid"]) for process in processes if process["name"] == service)

    def kill(self, service: str) -> None:
        """SIGKILL one service, by the pid its supervisor tells."""
        os.kill(self.pid_of(service), signal.SIGKILL)

    def log_tails(self, lines: int = 5) -> str:
        logs = sorted((self.home / "logs").glob("*.log")) if (self.home / "logs").exists() else []
        return "".join(f"\n--- {log.name}\n" + "\n".join(log.read_text().splitlines()[-lines:]) for log in logs)

    def close(self) -> None:
        self.down()
        delete_topics(bootstrap(), self.namespace)
