"""The baseline of the bulk lane: what a script does that submits a file, waits for it, and reads the results.

The official SDK, one batch after the other, no larger than the line's own submissions. It keeps nothing but the files,
and sends nothing again.
"""

import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import openai

from bench.clients import body_of
from bench.usage import load_now, snapshot
from bench.workload import BULK, Run, Workload, finished
from kit.simulator import Simulator

BATCH_SCRIPT = "openai SDK, batches"

_ENDPOINT: Literal["/v1/chat/completions"] = "/v1/chat/completions"
_POLL_S = 0.5
_LABELS = frozenset("abc")


class Ended(Exception):
    """A batch that did not end well; the text says how."""


def run_batch_script(work: Workload, *, folder: Path, simulator: Simulator) -> Run:
    """Send the whole workload through the simulator's Batch API. A batch that fails is the run's problem."""
    pids = {"client": os.getpid(), "simulator": simulator.pid}
    load_before = load_now()
    before, started_s = snapshot(pids), time.perf_counter()
    problem: str | None = None
    right = 0
    with (
        tempfile.TemporaryDirectory(dir=folder) as own,
        openai.OpenAI(base_url=simulator.base_url, api_key="none") as client,
    ):
        try:
            for start in range(0, len(work.texts), BULK["max_requests"]):
                texts = work.texts[start : start + BULK["max_requests"]]
                right += sum(label in _LABELS for label in _labels(client, Path(own), texts))
        except (Ended, openai.OpenAIError) as error:
            problem = f"{type(error).__name__}: {error}"
    elapsed_s = time.perf_counter() - started_s
    if problem is None and right != len(work.texts):
        problem = f"{right} of {len(work.texts)} answers are right"
    return finished(
        BATCH_SCRIPT,
        work,
        elapsed_s=elapsed_s,
        before=before,
        after=snapshot(pids),
        load_before=load_before,
        problem=problem,
    )


def _labels(client: openai.OpenAI, folder: Path, texts: Sequence[str]) -> Iterator[str]:
    """The answers of one batch, in the order of its result file."""
    path = folder / "input.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number, text in enumerate(texts):
            line = {"custom_id": f"d{number}", "method": "POST", "url": _ENDPOINT, "body": body_of(text)}
            file.write(json.dumps(line) + "\n")
    uploaded = client.files.create(file=path, purpose="batch")
    batch = client.batches.create(input_file_id=uploaded.id, endpoint=_ENDPOINT, completion_window="24h")
    while batch.status in ("validating", "in_progress", "finalizing"):
        time.sleep(_POLL_S)
        batch = client.batches.retrieve(batch.id)
    if batch.status != "completed" or batch.output_file_id is None:
        raise Ended(f"batch {batch.id} is {batch.status}: {batch.errors}")
    with client.files.with_streaming_response.content(batch.output_file_id) as response:
        for row in response.iter_lines():
            yield json.loads(json.loads(row)["response"]["body"]["choices"][0]["message"]["content"])["label"]
