"""Self-hosted servers: their error shapes, what they lack, and how they run out of room."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import openai
import pytest

from conformance.sdk.lines import end_of, jsonl, line, start
from kit.simulator import Simulator
from unit.provider_simulator.http import chat, exchange

MESSAGE = "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead."


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        ("vllm", {"error": {"message": MESSAGE, "type": "BadRequestError", "param": "messages", "code": 400}}),
        ("sglang", {"object": "error", "message": MESSAGE, "type": "400", "param": "messages", "code": 400}),
        ("llama_cpp", {"error": {"code": 400, "message": MESSAGE, "type": "invalid_request_error"}}),
        ("tgi", {"error": MESSAGE, "error_type": "validation"}),
        (
            "ollama",
            {
                "error": {
                    "message": MESSAGE,
                    "type": "invalid_request_error",
                    "param": "messages",
                    "code": "empty_array",
                }
            },
        ),
        (
            "aibrix",
            {
                "detail": {
                    "error": {
                        "message": MESSAGE,
                        "type": "invalid_request_error",
                        "param": "messages",
                        "code": "empty_array",
                    }
                }
            },
        ),
        ("llm_d", {"error": {"message": MESSAGE, "type": "BadRequestError", "param": "messages", "code": 400}}),
    ],
)
def test_error_shapes(simulator: Simulator, dialect: str, body: Any) -> None:
    simulator.set_scenario({"dialect": dialect})
    status, _, answer = exchange(simulator, "POST", "/v1/chat/completions", chat(messages=[]))
    assert (status, json.loads(answer)) == (400, body)


def test_vllm_wants_a_key_in_its_own_words(simulator: Simulator) -> None:
    simulator.set_scenario({"dialect": "vllm"})
    headers = {"Authorization": "Bearer sk-invalid"}
    assert exchange(simulator, "POST", "/v1/chat/completions", chat(), headers=headers)[::2] == (
        401,
        b'{"error":"Unauthorized"}',
    )


@pytest.mark.parametrize(
    ("dialect", "more", "status"),
    [
        ("vllm", {}, 404),
        ("vllm", {"batches": {"missing_status": 501}}, 501),
        ("sglang", {}, 404),
        ("tgi", {}, 405),
        ("aibrix", {}, 200),
        ("llm_d", {}, 200),
        ("self_hosted", {}, 200),
        ("self_hosted", {"batches": {"missing_status": 405}}, 405),
    ],
)
def test_batches_may_be_missing(simulator: Simulator, dialect: str, more: dict[str, Any], status: int) -> None:
    """E8: how a server without batches is found out."""
    simulator.set_scenario({"dialect": dialect, **more})
    assert exchange(simulator, "GET", "/v1/batches?limit=1")[0] == status
    assert exchange(simulator, "POST", "/v1/chat/completions", chat())[0] == 200


def test_aibrix_has_uuids_and_no_nulls(simulator: Simulator) -> None:
    simulator.set_scenario({"dialect": "aibrix", "faults": [{"kind": "file_pending"}]})
    with openai.OpenAI(base_url=simulator.base_url, api_key="k", max_retries=0) as client:
        made = start(client, jsonl([line("a")]))
        assert str(UUID(made.id)) == made.id
        assert client.files.retrieve(made.input_file_id).status == "uploaded"
        assert end_of(client, made).status == "completed"
    batch = json.loads(exchange(simulator, "GET", f"/v1/batches/{made.id}")[2])
    assert None not in batch.values()
    assert exchange(simulator, "GET", "/v1/batches/none")[2] == b'{"detail":"Not Found"}'


def test_unknown_fields_are_ignored_unless_strict(simulator: Simulator) -> None:
    odd = chat(guided_json={})
    assert exchange(simulator, "POST", "/v1/chat/completions", odd)[0] == 200
    simulator.set_scenario({"dialect": "openai"})
    headers = {"Authorization": "Bearer k"}
    assert exchange(simulator, "POST", "/v1/chat/completions", odd, headers=headers)[0] == 400
    simulator.set_scenario({"dialect": "openai", "strict": False})
    assert exchange(simulator, "POST", "/v1/chat/completions", odd, headers=headers)[0] == 200


def test_silent_truncation(simulator: Simulator) -> None:
    """The usage alone tells that most of the prompt was not read."""
    simulator.set_scenario({"dialect": "ollama", "truncate_tokens": 50, "context_tokens": 60})
    _, _, body = exchange(simulator, "POST", "/v1/chat/completions", chat("word " * 1000, max_tokens=20))
    assert json.loads(body)["usage"]["prompt_tokens"] == 50


def test_a_model_that_loads(simulator: Simulator) -> None:
    simulator.set_scenario({"dialect": "llama_cpp", "latency": {"warm_up_ms": 60_000}})
    status, _, body = exchange(simulator, "POST", "/v1/chat/completions", chat())
    assert (status, json.loads(body)["error"]["message"]) == (503, "Loading model")
    assert simulator.ledger()["accepted"]["calls"] == 0


def test_queue_and_then_503(simulator: Simulator) -> None:
    """Two at a time, two more wait, the others are refused."""
    simulator.set_scenario({"dialect": "ollama", "capacity": {"slots": 2, "queue": 2}, "latency": {"fixed_ms": 500}})
    with ThreadPoolExecutor(8) as pool:
        got = list(
            pool.map(
                lambda n: exchange(simulator, "POST", "/v1/chat/completions", chat(f"n {n}"))[0],
                range(8),
            )
        )
    assert (got.count(200), got.count(503)) == (4, 4)


@pytest.mark.parametrize(
    ("form", "status", "start"),
    [
        ("error", 200, b'{"error":'),
        ("empty", 200, b""),
        ("null", 200, b"null"),
        ("malformed", 200, b'{"id"'),
        ("bom", 200, b"\xef\xbb\xbf"),
        ("event_stream", 200, b"data: "),
    ],
)
def test_odd_bodies(simulator: Simulator, form: str, status: int, start: bytes) -> None:
    simulator.set_scenario({"faults": [{"kind": "odd_body", "form": form, "billed": True}]})
    got, _, body = exchange(simulator, "POST", "/v1/chat/completions", chat())
    assert got == status
    assert body.startswith(start)
    totals = simulator.ledger()
    assert (totals["billed"]["calls"], totals["delivered"]["calls"]) == (1, 0)


def test_bad_gzip_and_redirect(simulator: Simulator) -> None:
    simulator.set_scenario({"faults": [{"kind": "bad_gzip", "first": 1}, {"kind": "redirect"}]})
    _, headers, body = exchange(simulator, "POST", "/v1/chat/completions", chat())
    assert headers["content-encoding"] == "gzip"
    assert body.startswith(b"{")
    status, headers, _ = exchange(simulator, "POST", "/v1/chat/completions", chat())
    assert (status, headers["location"]) == (307, "http://elsewhere.invalid/")


def test_reset_before_the_body_is_read(simulator: Simulator) -> None:
    """Its share is its own: it neither doubles nor shadows the rules behind it."""
    simulator.set_scenario({"faults": [{"kind": "reset_early", "rate": 0.5}, {"kind": "redirect"}]})
    seen = []
    for n in range(40):
        try:
            seen.append(exchange(simulator, "POST", "/v1/chat/completions", chat(f"n {n}"))[0])
        except ConnectionError:
            seen.append(0)
    assert set(seen) == {0, 307}
    assert 10 <= seen.count(0) <= 30
    assert simulator.ledger()["received"]["calls"] == seen.count(307)


@pytest.mark.parametrize("form", ["absent", "zero", "project"])
def test_limit_headers(simulator: Simulator, form: str) -> None:
    limits = {"requests_per_min": 600, "tokens_per_min": 60_000}
    simulator.set_scenario({"rate_limit": limits, "faults": [{"kind": "limit_headers", "form": form}]})
    _, headers, _ = exchange(simulator, "POST", "/v1/chat/completions", chat())
    found = {name: value for name, value in headers.items() if name.startswith("x-ratelimit")}
    match form:
        case "absent":
            assert found == {}
        case "zero":
            assert found["x-ratelimit-remaining-requests"] == "0"
        case "project":
            assert found["x-ratelimit-limit-project-tokens"] == "60000"


def test_paths_and_methods_that_nobody_serves(simulator: Simulator) -> None:
    assert exchange(simulator, "PUT", "/v1/files")[0] == 405
    assert exchange(simulator, "GET", "/v1/messages/none")[0] == 404
    assert exchange(simulator, "GET", "/v1/batches/b/unknown")[0] == 404
    assert exchange(simulator, "DELETE", "/__sim/ledger")[0] == 404


def test_body_above_the_limit_is_a_page_of_a_proxy(simulator: Simulator) -> None:
    status, headers, _ = exchange(simulator, "POST", "/v1/messages", b" " * (65 * 2**20))
    assert (status, headers["content-type"].split(";")[0]) == (413, "text/html")
