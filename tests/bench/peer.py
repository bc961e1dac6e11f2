"""The durable peer: flexllm, whose batch appends every answer to a checkpoint file and goes on from there.

It runs in an environment of its own (`tools.py`), at the version that is pinned there, and is judged by its file. Its
time is that of the batch alone: neither the start of the process nor imports count.
"""

import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.tools import PEER, environment_of
from bench.usage import load_now, snapshot
from bench.workload import IN_FLIGHT, MAX_OUTPUT_TOKENS, MODEL, SYSTEM_PROMPT, Run, Workload
from kit.laptop import SCHEMA
from kit.simulator import Simulator

PEER_SUBJECT = PEER.replace("==", " ")

_DRIVER = Path(__file__).with_name("peer_flexllm.py")
_TIMEOUT_S = 1_800.0
_LABELS = frozenset("abc")


def run_peer(work: Workload, *, folder: Path, simulator: Simulator) -> Run:
    """Send the whole workload through the peer. Raises `NotInstalled`."""
    python = environment_of(PEER) / "python"
    with tempfile.TemporaryDirectory(dir=folder) as own:
        request, checkpoint = Path(own, "request.json"), Path(own, "checkpoint.jsonl")
        request.write_text(json.dumps(_request(work.texts)), encoding="utf-8")
        load_before, before = load_now(), snapshot({"simulator": simulator.pid})
        done = subprocess.run(
            [str(python), str(_DRIVER), simulator.base_url, str(request), str(checkpoint)],
            capture_output=True,
            text=True,
            cwd=own,
            timeout=_TIMEOUT_S,
            check=False,
        )
        after = snapshot({"simulator": simulator.pid})
        told = _told(done)
        problem = told.get("problem") or _problem(checkpoint, len(work.texts), told["errors"])
    return Run(
        subject=PEER_SUBJECT,
        items=len(work.texts),
        elapsed_s=told.get("elapsed_s", 0.0),
        cpu_s={"client": told.get("cpu_s"), **after.since(before)},
        load_before=load_before,
        problem=problem,
    )


def _request(texts: Sequence[str]) -> dict[str, Any]:
    schema = {"name": "label", "schema": SCHEMA, "strict": True}
    system = {"role": "system", "content": SYSTEM_PROMPT}
    return {
        "model": MODEL,
        "in_flight": IN_FLIGHT,
        "max_output_tokens": MAX_OUTPUT_TOKENS,
        "response_format": {"type": "json_schema", "json_schema": schema},
        "conversations": [[system, {"role": "user", "content": text}] for text in texts],
    }


def _told(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    if done.returncode != 0:
        return {"problem": f"exit code {done.returncode}: {done.stderr.strip()[-500:]}"}
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def _problem(checkpoint: Path, items: int, errors: Sequence[str]) -> str | None:
    """What the file lacks: a right answer for each text."""
    right = {row["index"] for row in map(json.loads, checkpoint.read_text(encoding="utf-8").splitlines()) if _ok(row)}
    return None if len(right) == items else f"{len(right)} of {items} answers are right; {'; '.join(errors)}"


def _ok(row: dict[str, Any]) -> bool:
    return row["status"] == "success" and json.loads(row["output"])["label"] in _LABELS
