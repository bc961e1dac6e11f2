"""With a home the simulator goes on after a restart: books, files, batches, webhooks and its clock."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import openai
import pytest

from conformance.sdk.lines import end_of, jsonl, line, rows, start, until
from kit.simulator import Simulator
from unit.provider_simulator.http import chat, exchange

DATA = jsonl(line(f"i-{n}") for n in range(400))


def client_of(simulator: Simulator) -> openai.OpenAI:
    return openai.OpenAI(base_url=simulator.base_url, api_key="k", max_retries=0)


def test_everything_goes_on(tmp_path: Path) -> None:
    """E12 O1: what was billed before the restart is in the books after it."""
    scenario: dict[str, Any] = {"seed": 4}
    with Simulator(scenario, home=tmp_path) as simulator, client_of(simulator) as client:
        exchange(simulator, "POST", "/v1/chat/completions", chat(), headers={"X-Client-Request-Id": "a-1"})
        done = end_of(client, start(client, DATA, metadata={"job": "j"}))
        found = rows(client, done.output_file_id)
        client.webhooks.create(name="w", url="http://127.0.0.1:9/", event_types=["batch.completed"])
        simulator.set_clock(advance_s=86_400)
        removed = end_of(client, start(client, DATA))
        rows(client, removed.output_file_id)
        client.files.delete(str(removed.output_file_id))
        before, attempts = simulator.ledger(), simulator.attempts()
        assert before["delivered"] == before["billed"], "what was handed out and removed then was handed out"
        clock = simulator.set_clock()
    with Simulator(scenario, home=tmp_path) as simulator, client_of(simulator) as client:
        assert simulator.ledger() == {**before, "max_concurrency": 0}
        assert simulator.attempts() == attempts
        assert simulator.set_clock()["ahead_ms"] >= clock["ahead_ms"] - 1000
        assert client.batches.retrieve(done.id) == done
        assert rows(client, done.output_file_id) == found
        assert [one.name for one in client.webhooks.list().data] == ["w"]


def test_a_call_whose_id_is_no_text_is_in_the_books_after_a_restart_too(tmp_path: Path) -> None:
    """E12 O1: it is refused, and the books of all others must still be read."""
    with Simulator({"dialect": "openai"}, home=tmp_path) as simulator:
        odd = {"X-Client-Request-Id": "\u00e9", "Authorization": "Bearer k"}
        assert exchange(simulator, "POST", "/v1/chat/completions", chat(), headers=odd)[0] == 400
        exchange(simulator, "POST", "/v1/chat/completions", chat(), headers={"Authorization": "Bearer k"})
        before = simulator.ledger()
    with Simulator({"dialect": "openai"}, home=tmp_path) as simulator:
        assert simulator.ledger() == {**before, "max_concurrency": 0}


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_batch_that_was_running_is_run_once(tmp_path: Path, how: signal.Signals) -> None:
    """E7: killed in the middle, its lines are billed once and its rows are whole."""
    story = {"seed": 4, "faults": [{"kind": "batch_stuck", "keep": 0.5}]}
    simulator = Simulator(story, home=tmp_path)
    with simulator, client_of(simulator) as client:
        batch = until(client, start(client, DATA), "in_progress")
        while simulator.ledger()["billed"]["calls"] < 200:
            time.sleep(0.01)
        os.kill(simulator.pid, how)
    with Simulator({"seed": 4}, home=tmp_path) as simulator, client_of(simulator) as client:
        assert client.batches.retrieve(batch.id).status == "in_progress"
        client.batches.cancel(batch.id)
        ended = end_of(client, batch)
        done = rows(client, ended.output_file_id)
        assert simulator.ledger()["billed"]["calls"] == len(done) == 200


def test_a_row_that_was_cut_by_a_crash_is_dropped(tmp_path: Path) -> None:
    with Simulator(home=tmp_path) as simulator:
        exchange(simulator, "POST", "/v1/chat/completions", chat())
        billed = simulator.ledger()["billed"]
    for name in ("journal.jsonl", "calls.jsonl"):
        with (tmp_path / name).open("ab") as file:
            file.write(b'{"kind": "file", "id"')
    with Simulator(home=tmp_path) as simulator:
        assert simulator.ledger()["billed"] == billed
        exchange(simulator, "POST", "/v1/chat/completions", chat())
    with Simulator(home=tmp_path) as simulator:
        assert simulator.ledger()["billed"]["calls"] == 2
        assert json.loads(exchange(simulator, "GET", "/v1/files")[2])["data"] == []


def test_clock_that_runs_fast() -> None:
    """A window of 24 hours is over in less than a second."""
    scenario = {"faults": [{"kind": "batch_stuck", "keep": 0.25}]}
    with Simulator(scenario, options=["--clock-speed", "200000"]) as simulator, client_of(simulator) as client:
        batch = end_of(client, start(client, DATA))
        assert (batch.status, len(rows(client, batch.output_file_id))) == ("expired", 100)


def test_relaxed_says_so(tmp_path: Path) -> None:
    with Simulator({"dialect": "openai"}, options=["--relaxed"]) as simulator:
        odd = chat(temperature="hot", nonsense=1)
        headers = {"Authorization": "Bearer k"}
        assert exchange(simulator, "POST", "/v1/chat/completions", odd, headers=headers)[0] == 200


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--clock-speed", "0"], "clock speed: 0.0: must be above 0"),
        (["--webhook-url", "http://127.0.0.1:9/"], "give both or none"),
        (["--webhook-url", "http://127.0.0.1:9/", "--webhook-secret", "abc"], "webhook: webhooks[0].secret: 'abc'"),
        (["--home", "/proc/none"], "cannot be used as home"),
    ],
)
def test_options_that_cannot_be(options: list[str], said: str) -> None:
    """O2"""
    with pytest.raises(RuntimeError) as refused, Simulator(options=options):
        pass
    assert said in str(refused.value)
    assert "Traceback" not in str(refused.value)
