"""The local model server as its own process: healthy, answers in the schema, ends at once, refuses a taken port."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from time import sleep

import httpx

from nightmill.local.children import model_server_child
from nightmill.local.doctor import check_local_model
from nightmill.local.home import open_home
from nightmill.local.model_server import is_healthy
from nightmill.local.processes import LOOPBACK, free_port


def test_the_model_answers_in_the_schema_and_ends_on_a_stop(tmp_path: Path) -> None:
    assert check_local_model().ok
    port = free_port()
    child = model_server_child(open_home(tmp_path), port)
    schema = {"type": "object", "properties": {"answer": {"enum": ["yes", "no"]}}, "required": ["answer"]}
    body = {
        "model": "smollm2-135m-instruct",
        "messages": [{"role": "user", "content": "Is snow white? Answer as JSON."}],
        "max_tokens": 24,
        "temperature": 0,
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}},
    }
    with child.start() as process:
        while not child.is_ready(process):
            assert process.poll() is None
            sleep(0.05)
        answer = httpx.post(f"http://{LOOPBACK}:{port}/v1/chat/completions", json=body, timeout=60).json()
        assert json.loads(answer["choices"][0]["message"]["content"])["answer"] in ("yes", "no")
        assert answer["usage"]["prompt_tokens"] > 0
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    assert not is_healthy(port)


def test_a_taken_port_is_named() -> None:
    port = free_port()
    command = [sys.executable, "-m", "nightmill.local.model_server", "--port", str(port)]
    with socket.create_server((LOOPBACK, port)):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"port {port} of the model server is taken" in done.stderr
