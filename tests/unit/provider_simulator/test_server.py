"""The simulator as a process, over real sockets: answers, refusals, account limits, scenarios and its own start."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import openai
import pytest

from kit.simulator import Simulator
from unit.provider_simulator.http import calls, fault, get, only_row, payload, post


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
    simulator: Simulator, body: bytes, headers: dict[str, str], status: int, code: str | None
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


def test_content_rule_and_form(simulator: Simulator) -> None:
    simulator.set_scenario({"answers": [{"match": "MIT", "content": {"l": "MIT"}, "form": "fenced"}]})
    content = json.loads(post(simulator)[2])["choices"][0]["message"]["content"]
    assert content == '```json\n{"l":"MIT"}\n```'


def test_bad_scenario_is_refused_and_the_old_one_stays(simulator: Simulator) -> None:
    fault(simulator, "server_error")
    with pytest.raises(RuntimeError, match=r"400.*faults\[0\]\.rate: 2: "):
        fault(simulator, "hang", rate=2)
    assert post(simulator)[0] == 500


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
