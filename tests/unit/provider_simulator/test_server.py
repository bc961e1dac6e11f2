"""The simulator as a process, over real sockets: every fault as a client sees it, and what the books say."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import openai
import pytest

from kit.simulator import Simulator


@pytest.fixture(scope="module")
def process() -> Iterator[Simulator]:
    with Simulator() as simulator:
        yield simulator


@pytest.fixture
def simulator(process: Simulator) -> Simulator:
    process.set_scenario({})
    process.reset()
    return process


Headers = dict[str, str]


def payload(text: str = "Granted under the MIT licence.", **changes: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": text}], **changes}).encode()


def post(
    simulator: Simulator, body: bytes | None = None, *, headers: Headers | None = None, timeout_s: float = 10
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", simulator.port, timeout=timeout_s)
    try:
        connection.request("POST", "/v1/chat/completions", body=body or payload(), headers=headers or {})
        response = connection.getresponse()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
    finally:
        connection.close()


def raw_request(body: bytes) -> bytes:
    return b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def get(simulator: Simulator, path: str, headers: Headers | None = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", simulator.port, timeout=10)
    try:
        connection.request("GET", path, headers=headers or {})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def fault(simulator: Simulator, kind: str, **options: Any) -> None:
    simulator.set_scenario({"faults": [{"kind": kind, **options}]})


def settled(simulator: Simulator) -> dict[str, Any]:
    """The totals once nothing is in flight: the last bytes reach a client before the books are closed."""
    deadline = time.monotonic() + 10
    while (totals := simulator.ledger())["in_flight"] and time.monotonic() < deadline:
        time.sleep(0.01)
    return totals


def calls(simulator: Simulator) -> tuple[int, int, int]:
    """Accepted, billed, delivered."""
    totals = settled(simulator)
    return totals["accepted"]["calls"], totals["billed"]["calls"], totals["delivered"]["calls"]


def only_row(simulator: Simulator) -> dict[str, Any]:
    settled(simulator)
    [row] = simulator.attempts(refused=True)
    return row


def test_answer_usage_and_row_agree(simulator: Simulator) -> None:
    """E12"""
    status, headers, body = post(simulator, headers={"X-Client-Request-Id": "item-1", "Authorization": "Bearer k"})
    answer = json.loads(body)
    assert status == 200
    assert headers["x-request-id"].startswith("req_")
    assert (answer["object"], answer["model"]) == ("chat.completion", "m")
    [choice] = answer["choices"]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["content"] in "Granted under the MIT licence."
    assert answer["usage"]["prompt_tokens"] == 8 + 4 + 3  # 30 bytes, one message, one reply
    row = only_row(simulator)
    assert row["attempt_id"] == "item-1"
    assert (row["accepted"], row["billed"], row["delivered"], row["status"]) == (True, True, True, 200)
    assert row["billed_prompt_tokens"] == answer["usage"]["prompt_tokens"]
    assert row["billed_completion_tokens"] == answer["usage"]["completion_tokens"]
    assert row["started_at_ms"] <= row["ended_at_ms"]
    assert simulator.ledger()["delivered"] == simulator.ledger()["billed"]


def test_same_body_same_answer_new_id(simulator: Simulator) -> None:
    one, two = (json.loads(post(simulator)[2]) for _ in range(2))
    assert one["choices"] == two["choices"]
    assert one["usage"] == two["usage"]
    assert one["id"] != two["id"]
    assert [row["occurrence"] for row in simulator.attempts()] == [1, 2]


def test_official_client_parses_answers_and_errors(simulator: Simulator) -> None:
    schema: dict[str, object] = {"type": "object", "properties": {"l": {"enum": ["MIT", "BSD"]}}, "required": ["l"]}
    with openai.OpenAI(base_url=simulator.base_url, api_key="k", max_retries=0) as client:
        completion = client.chat.completions.create(
            model="m",
            messages=[{"role": "user", "content": "Which?"}],
            response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
            extra_headers={"X-Client-Request-Id": "sdk-1"},
        )
        content = completion.choices[0].message.content
        assert content is not None
        assert json.loads(content)["l"] in ("MIT", "BSD")
        assert [model.id for model in client.models.list()] == ["simulated-model"]
        fault(simulator, "rate_limited")
        with pytest.raises(openai.RateLimitError) as limited:
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Which?"}])
        assert limited.value.code == "rate_limit_exceeded"
    with (
        openai.OpenAI(base_url=simulator.base_url, api_key="sk-invalid-1", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.models.list()
    assert simulator.attempts()[0]["attempt_id"] == "sdk-1"


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (b"{", {}, 400, None),
        (payload(messages=[]), {}, 400, "empty_array"),
        (payload(stream=True), {}, 400, "unsupported_value"),
        (payload(), {"Authorization": "Bearer sk-invalid"}, 401, "invalid_api_key"),
        (payload(), {"X-Client-Request-Id": "x" * 513}, 400, None),
    ],
)
def test_bad_requests_are_refused_unbilled(
    simulator: Simulator, body: bytes, headers: Headers, status: int, code: str | None
) -> None:
    got, _, answer = post(simulator, body, headers=headers)
    error = json.loads(answer)["error"]
    assert (got, error["code"]) == (status, code)
    assert set(error) == {"message", "type", "param", "code"}
    assert calls(simulator) == (0, 0, 0)
    assert only_row(simulator)["status"] == status
    assert simulator.attempts() == []
    assert simulator.ledger()["refused"]["calls"] == 1


def test_unknown_paths_and_models(simulator: Simulator) -> None:
    status, answer = get(simulator, "/v1/nothing")
    assert (status, answer["error"]["code"]) == (404, "unknown_url")
    assert get(simulator, "/health") == (200, {"status": "ok"})
    simulator.set_scenario({"models": ["a", "b"], "dialect": "openai"})
    assert get(simulator, "/v1/models")[0] == 401
    _, listed = get(simulator, "/v1/models", {"Authorization": "Bearer k"})
    assert [model["id"] for model in listed["data"]] == ["a", "b"]
    assert post(simulator, headers={"Authorization": "Bearer k"})[0] == 404
    assert post(simulator)[0] == 401


@pytest.mark.parametrize(
    ("options", "header"),
    [
        ({"retry_after_s": 3}, "3"),
        ({"retry_after": "garbage"}, "soon"),
        ({"retry_after": "missing"}, None),
    ],
)
def test_rate_limited(simulator: Simulator, options: dict[str, Any], header: str | None) -> None:
    """E9"""
    fault(simulator, "rate_limited", dimension="tokens", **options)
    status, headers, body = post(simulator)
    error = json.loads(body)["error"]
    assert (status, error["code"], error["type"]) == (429, "rate_limit_exceeded", "tokens")
    assert headers.get("retry-after") == header
    assert calls(simulator) == (0, 0, 0)


def test_rate_limited_with_a_date(simulator: Simulator) -> None:
    fault(simulator, "rate_limited", retry_after="http_date", retry_after_s=90)
    asked_at_s = time.time()
    _, headers, _ = post(simulator)
    assert 85 <= parsedate_to_datetime(headers["retry-after"]).timestamp() - asked_at_s <= 91


@pytest.mark.parametrize(
    ("kind", "options", "status", "code", "accepted"),
    [
        ("quota_exhausted", {}, 429, "insufficient_quota", 0),
        ("unauthorized", {}, 401, "invalid_api_key", 0),
        ("context_length_exceeded", {}, 400, "context_length_exceeded", 0),
        ("server_error", {}, 500, None, 1),
        ("server_error", {"status": 503}, 503, "server_is_overloaded", 1),
    ],
)
def test_error_bodies(
    simulator: Simulator, kind: str, options: dict[str, Any], status: int, code: str | None, accepted: int
) -> None:
    fault(simulator, kind, **options)
    got, headers, body = post(simulator)
    assert (got, json.loads(body)["error"]["code"]) == (status, code)
    assert "retry-after" not in headers
    assert calls(simulator) == (accepted, 0, 0)
    assert only_row(simulator)["fault"] == kind


@pytest.mark.parametrize(("status", "billed"), [(502, False), (200, False), (200, True)])
def test_html_page_is_no_delivery(simulator: Simulator, status: int, billed: bool) -> None:
    fault(simulator, "html", status=status, billed=billed)
    got, headers, body = post(simulator)
    assert got == status
    assert headers["content-type"].startswith("text/html")
    assert body.startswith(b"<!DOCTYPE html>")
    assert calls(simulator) == (1, int(billed), 0)
    assert simulator.ledger()["lost"]["calls"] == int(billed)


def test_billed_server_error(simulator: Simulator) -> None:
    fault(simulator, "server_error", billed=True, retry_after="seconds", retry_after_s=2)
    assert post(simulator)[1]["retry-after"] == "2"
    assert calls(simulator) == (1, 1, 0)


@pytest.mark.parametrize("framing", ["content_length", "chunked"])
def test_cut_body_that_can_be_seen(simulator: Simulator, framing: str) -> None:
    """E6: billed, and the usage is lost."""
    fault(simulator, "cut_json", framing=framing)
    with pytest.raises(http.client.IncompleteRead):
        post(simulator)
    assert calls(simulator) == (1, 1, 0)
    assert only_row(simulator)["status"] == 200


def test_cut_body_that_only_the_json_tells(simulator: Simulator) -> None:
    whole = post(simulator)[2]
    fault(simulator, "cut_json", framing="close", keep=0.25)
    status, headers, body = post(simulator)
    assert status == 200
    assert "content-length" not in headers
    assert len(body) == len(whole) // 4
    with pytest.raises(json.JSONDecodeError):
        json.loads(body)
    assert calls(simulator) == (2, 2, 1)


def test_reset_after_billing(simulator: Simulator) -> None:
    """E6"""
    fault(simulator, "reset_after_billing", occurrences=[1])
    with pytest.raises(ConnectionResetError):
        post(simulator, headers={"X-Client-Request-Id": "a-1"})
    assert calls(simulator) == (1, 1, 0)
    assert (only_row(simulator)["status"], only_row(simulator)["attempt_id"]) == (None, "a-1")
    assert post(simulator)[0] == 200  # the second time this body is seen
    assert calls(simulator) == (2, 2, 1)


def test_reset_before_billing(simulator: Simulator) -> None:
    fault(simulator, "reset_before_billing")
    with pytest.raises(ConnectionResetError):
        post(simulator)
    assert calls(simulator) == (1, 0, 0)


def test_slow_and_latency_are_waited_for(simulator: Simulator) -> None:
    simulator.set_scenario(
        {"latency": {"fixed_ms": 30, "jitter_ms": 10}, "faults": [{"kind": "slow", "delay_ms": 100}]}
    )
    assert post(simulator)[0] == 200
    row = only_row(simulator)
    assert row["ended_at_ms"] - row["started_at_ms"] >= 129  # both clocks are cut to milliseconds
    assert (row["fault"], row["delivered"]) == ("slow", True)


def test_client_that_gave_up_is_billed_and_not_delivered(simulator: Simulator) -> None:
    """E6: a timeout on our side does not stop the provider's work."""
    fault(simulator, "slow", delay_ms=300)
    with pytest.raises(TimeoutError):
        post(simulator, timeout_s=0.05)
    assert calls(simulator) == (1, 1, 0)


def test_drip_arrives_in_the_end(simulator: Simulator) -> None:
    whole = json.loads(post(simulator)[2])["choices"]
    fault(simulator, "drip", chunk_bytes=100, every_ms=5)
    assert json.loads(post(simulator)[2])["choices"] == whole
    assert calls(simulator) == (2, 2, 2)


def test_drip_to_a_client_that_leaves(simulator: Simulator) -> None:
    fault(simulator, "drip", chunk_bytes=10, every_ms=50)
    with socket.create_connection(("127.0.0.1", simulator.port)) as client:
        client.sendall(raw_request(payload()))
        assert client.recv(10)
    assert calls(simulator) == (1, 1, 0)


@pytest.mark.parametrize("reads", [True, False])
def test_large_answer_is_delivered_only_if_it_is_read(simulator: Simulator, reads: bool) -> None:
    """E6: bytes that never left the provider's buffer are not delivered."""
    simulator.set_scenario({"answers": [{"content": "x" * 20_000_000}]})
    with socket.create_connection(("127.0.0.1", simulator.port)) as client:
        client.sendall(raw_request(payload()))
        expected = 20_000_000 if reads else 1000  # the head and all but the end of the JSON
        while expected > 0:
            expected -= len(client.recv(min(expected, 2**20)))
        if reads:
            assert client.recv(2**20)  # the end of the JSON
    assert calls(simulator) == (1, 1, int(reads))


@pytest.mark.parametrize("billed", [False, True])
def test_hang(simulator: Simulator, billed: bool) -> None:
    fault(simulator, "hang", billed=billed)
    with pytest.raises(TimeoutError):
        post(simulator, timeout_s=0.1)
    assert calls(simulator) == (1, int(billed), 0)  # and nothing is left in flight


def test_hang_that_ends_closes_without_an_answer(simulator: Simulator) -> None:
    fault(simulator, "hang", for_ms=50)
    with pytest.raises(http.client.RemoteDisconnected):
        post(simulator)
    assert calls(simulator) == (1, 0, 0)


def test_rate_limit_of_the_account(simulator: Simulator) -> None:
    """E9"""
    simulator.set_scenario({"rate_limit": {"requests_per_min": 6, "burst_requests": 2}})
    answers = [post(simulator) for _ in range(3)]
    assert [status for status, _, _ in answers] == [200, 200, 429]
    assert [headers["x-ratelimit-remaining-requests"] for _, headers, _ in answers] == ["1", "0", "0"]
    assert 9 <= int(answers[2][1]["retry-after"]) <= 10
    assert json.loads(answers[2][2])["error"]["type"] == "requests"
    simulator.set_scenario({"rate_limit": {"tokens_per_min": 100, "burst_tokens": 50}})
    status, headers, body = post(simulator, payload(max_tokens=51))
    assert (status, headers.get("retry-after")) == (429, None)
    assert "Request too large" in json.loads(body)["error"]["message"]


def test_first_and_reset(simulator: Simulator) -> None:
    fault(simulator, "server_error", first=2)
    assert [post(simulator)[0] for _ in range(3)] == [500, 500, 200]
    simulator.reset()
    assert simulator.ledger()["received"]["calls"] == 0
    assert post(simulator)[0] == 500


def test_content_rule_and_form(simulator: Simulator) -> None:
    simulator.set_scenario({"answers": [{"match": "MIT", "content": {"l": "MIT"}, "form": "fenced"}]})
    content = json.loads(post(simulator)[2])["choices"][0]["message"]["content"]
    assert content == '```json\n{"l":"MIT"}\n```'


def test_bad_scenario_is_refused_and_the_old_one_stays(simulator: Simulator) -> None:
    fault(simulator, "server_error")
    with pytest.raises(RuntimeError, match=r"400.*faults\[0\]\.rate: 2: "):
        fault(simulator, "hang", rate=2)
    assert post(simulator)[0] == 500


def test_concurrent_calls_with_faults_add_up(simulator: Simulator) -> None:
    """E6 E12: what clients saw and what the books say agree, call by call."""
    simulator.set_scenario(
        {
            "seed": 5,
            "latency": {"fixed_ms": 5},
            "faults": [
                {"kind": "rate_limited", "rate": 0.1},
                {"kind": "reset_after_billing", "rate": 0.1},
                {"kind": "cut_json", "rate": 0.1},
                {"kind": "server_error", "rate": 0.1},
            ],
        }
    )

    def one(n: int) -> str:
        try:
            status, _, _ = post(simulator, payload(f"document {n}"), headers={"X-Client-Request-Id": str(n)})
        except ConnectionResetError:
            return "reset_after_billing"
        except http.client.IncompleteRead:
            return "cut_json"
        return {200: "none", 429: "rate_limited", 500: "server_error"}[status]

    with ThreadPoolExecutor(16) as pool:
        seen = dict(zip(map(str, range(300)), pool.map(one, range(300)), strict=True))
    settled(simulator)
    rows = simulator.attempts(refused=True)
    assert {row["attempt_id"]: row["fault"] or "none" for row in rows} == seen
    assert {row["attempt_id"] for row in rows if row["delivered"]} == {n for n, what in seen.items() if what == "none"}
    totals = simulator.ledger()
    assert totals["lost"]["calls"] == sum(what in ("reset_after_billing", "cut_json") for what in seen.values())
    assert 1 < totals["max_concurrency"] <= 16
    assert set(seen.values()) == {"none", "rate_limited", "reset_after_billing", "cut_json", "server_error"}


def test_two_processes_with_one_seed_fail_alike(simulator: Simulator) -> None:
    rules = {"seed": 9, "faults": [{"kind": "server_error", "rate": 0.5}]}
    simulator.set_scenario(rules)
    with Simulator(rules) as other:
        bodies = [payload(f"document {n}") for n in range(40)]
        ours = [post(simulator, body)[0] for body in bodies]
        theirs = [post(other, body)[0] for body in reversed(bodies)]
        assert ours == theirs[::-1]
        assert set(ours) == {200, 500}


@pytest.mark.parametrize(
    ("scenario", "said"), [("faults: [{kind: slow, delay_ms: -1}]", "faults[0].delay_ms: -1"), ("", "cannot listen on")]
)
def test_start_is_refused_with_a_reason(simulator: Simulator, tmp_path: Path, scenario: str, said: str) -> None:
    """O2: bad scenario, port taken."""
    file = tmp_path / "scenario.yaml"
    file.write_text(scenario)
    command = [sys.executable, "-m", "nightmill.provider_simulator", "--scenario", str(file)]
    run = subprocess.run([*command, "--port", str(simulator.port)], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert said in run.stderr
    assert "Traceback" not in run.stderr
