"""Jobs and estimates: what is written, what a repeat does, and what is refused before anything starts."""

import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from kit.api_server import CONFIG, ServedApi
from kit.messages import JOB
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.settings import KeySource
from nightmill.kernel.wire.messages import JobSubmitted
from unit.api.asking import PIPELINE, ROWS, error, request, upload

from .rows import publication


class TestSubmission:
    def test_a_job_is_written_with_its_frozen_pipeline(self, http: httpx.Client, api: ServedApi) -> None:
        """M1: what was submitted is what the planner gets, and it can be asked for at once."""
        body = request(http, budget_usd=0.1, deadline="6h", priority=3, tags={"team": "x"})
        answer = http.post("/v1/jobs", json=body)
        assert answer.status_code == 201, answer.text
        (job,) = api.sent(JobSubmitted)
        assert job.job_id == answer.json()["job_id"]
        assert job.dataset_id == "default.label"
        assert job.budget_nano_usd == 100_000_000
        assert job.deadline_at_ms == job.submitted_at_ms + 6 * 3_600_000
        assert (job.priority, dict(job.tags), job.input.blob) == (3, {"team": "x"}, body["input"]["blob"])
        assert api.blobs.get(job.pipeline_digest) == Pipeline.model_validate(PIPELINE).canonical()
        status = http.get(f"/v1/jobs/{job.job_id}").json()
        assert (status["state"], status["planned"], status["budget_left_nano_usd"]) == ("created", None, 100_000_000)

    def test_a_repeat_with_the_same_key_submits_once(self, http: httpx.Client, api: ServedApi) -> None:
        """E1: a lost answer is asked for again without a second job."""
        body = request(http, deadline="6h")
        answers = [http.post("/v1/jobs", json=body, headers={"Idempotency-Key": "k"}) for _ in range(3)]
        assert len({answer.json()["job_id"] for answer in answers}) == 1
        assert len(api.sent(JobSubmitted)) == 1
        assert http.post("/v1/jobs", json=body).json() != answers[0].json()

    def test_a_key_outlives_the_process(self, tmp_path: Path, api: ServedApi, http: httpx.Client) -> None:
        """E1: the key is found in the log, not in the memory of one process."""
        body = request(http)
        first = http.post("/v1/jobs", json=body, headers={"Idempotency-Key": "k"}).json()
        api.__exit__(None, None, None)
        api.__enter__()
        second = httpx.post(
            f"{api.url}/v1/jobs",
            json=body,
            headers={"Idempotency-Key": "k", "Authorization": f"Bearer {api.token}"},
            trust_env=False,
        )
        assert second.json() == first
        assert len(api.sent(JobSubmitted)) == 1

    def test_repeats_at_the_same_moment_submit_once(self, http: httpx.Client, api: ServedApi) -> None:
        body, seen = request(http), []

        def submit() -> None:
            seen.append(http.post("/v1/jobs", json=body, headers={"Idempotency-Key": "k"}).json()["job_id"])

        threads = [threading.Thread(target=submit) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(seen)) == 1
        assert len(api.sent(JobSubmitted)) == 1

    def test_a_key_for_something_else_is_a_conflict(self, http: httpx.Client) -> None:
        key = {"Idempotency-Key": "k"}
        assert http.post("/v1/jobs", json=request(http), headers=key).status_code == 201
        answer = http.post("/v1/jobs", json=request(http, priority=1), headers=key)
        assert (answer.status_code, error(answer)["code"]) == (409, "key_conflict")

    @pytest.mark.parametrize(
        ("changes", "code", "says"),
        [
            ({"pipeline": {"output": {"type": "strng"}}}, "bad_schema", "output.type"),
            ({"pipeline": {"output": {"$ref": "http://127.0.0.1:9/x"}}}, "bad_schema", "127.0.0.1:9/x"),
            ({"pipeline": {"prompt": "{{ txet }}"}}, "prompt", "'txet'"),
            ({"pipeline": {"prompt": "user:\n{% if %}"}}, "prompt", "line 2"),
            ({"pipeline": {"checks": [{"rnage": {}}]}}, "bad_check", "'rnage'"),
            ({"pipeline": {"checks": [{"range": {"field": "x", "mim": 1}}]}}, "bad_check", "checks.0.range"),
            ({"pipeline": {"model": {"pools": ["nowhere"], "max_output_tokens": 5}}}, "unknown_pool", "'nowhere'"),
            ({"pipeline": {"model": {"pools": ["unpriced"], "max_output_tokens": 5}}}, "no_price", "nobody-knows"),
            ({"pipeline": {"sensitivity": "restricted"}}, "sensitivity", "restricted"),
            ({"pipeline": {"lanes": 1}}, "invalid", "pipeline.lanes: unknown field"),
            ({"pipeline": {"name": "Not A Name"}}, "invalid", "'Not A Name'"),
            ({"tenant": "nobody"}, "unknown_tenant", "'nobody'"),
            ({"deadline": "soon"}, "invalid", "'soon'"),
            ({"deadline": 1}, "deadline", "1.0 s"),
            ({"budget_usd": -1}, "invalid", "budget_usd = -1"),
            ({"colour": "red"}, "invalid", "colour: unknown field"),
        ],
    )
    def test_what_can_not_run_is_refused_before_anything_starts(
        self, http: httpx.Client, api: ServedApi, changes: dict[str, Any], code: str, says: str
    ) -> None:
        """P4, P6: the answer names place and value, and nothing was written."""
        for path in ("/v1/jobs", "/v1/estimate"):
            answer = http.post(path, json=request(http, **changes))
            problem = error(answer)
            assert (answer.status_code, problem["code"]) == (422, code), problem
            assert says in problem["message"]
            assert problem["remedy"]
        assert api.sent(JobSubmitted) == []

    def test_a_job_without_a_key_is_refused(self, tmp_path: Path) -> None:
        """P6: it would stay queued; estimate says the same."""
        pool = CONFIG.pools["sim"].model_copy(update={"key": KeySource(env="NOBODYS_KEY")})
        with ServedApi(tmp_path / "other", CONFIG.model_copy(update={"pools": {"sim": pool}})) as api:
            headers = {"Authorization": f"Bearer {api.token}"}
            with httpx.Client(base_url=api.url, headers=headers, timeout=30, trust_env=False) as http:
                for path in ("/v1/jobs", "/v1/estimate"):
                    answer = http.post(path, json=request(http))
                    assert (answer.status_code, error(answer)["code"]) == (422, "pool_unusable")
                    assert "NOBODYS_KEY" in error(answer)["message"]
            assert api.sent(JobSubmitted) == []

    def test_an_input_that_was_not_uploaded_is_refused(self, http: httpx.Client) -> None:
        body = request(http)
        body["input"]["blob"] = "0" * 64
        assert error(http.post("/v1/jobs", json=body))["code"] == "unknown_blob"
        body["input"]["blob"] = "../../token"
        assert error(http.post("/v1/jobs", json=body))["code"] == "invalid"

    def test_a_body_that_is_no_json(self, http: httpx.Client) -> None:
        answer = http.post("/v1/jobs", content=b"{nonsense", headers={"Content-Type": "application/json"})
        assert (answer.status_code, error(answer)["code"]) == (422, "invalid")
        assert "no JSON" in error(answer)["message"]

    @pytest.mark.parametrize("path", ["/v1/jobs", "/v1/sql", f"/v1/jobs/{JOB}/cancel"])
    @pytest.mark.parametrize("header", [{}, {"Content-Type": "application/x-www-form-urlencoded"}])
    def test_a_body_that_is_not_declared_as_json(
        self, http: httpx.Client, api: ServedApi, path: str, header: dict[str, str]
    ) -> None:
        """P6: the remedy is named, and nothing of the body is said back."""
        api.put(publication())
        answer = http.post(path, content=b'{"reason": "confidential"}', headers=header)
        assert (answer.status_code, error(answer)["code"]) == (415, "content_type")
        assert error(answer)["remedy"] == "send Content-Type: application/json"
        assert "confidential" not in answer.text

    @pytest.mark.parametrize("body", [b"[" * 100_000, b'{"pipeline": "\xff"}', b"1" * 5_000])
    def test_a_body_that_the_parser_gives_up_on(self, http: httpx.Client, body: bytes) -> None:
        answer = http.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
        assert (answer.status_code, error(answer)["code"]) == (400, "invalid")
        assert error(answer)["message"] == "the JSON body is nested too deeply or is no JSON"

    @pytest.mark.parametrize("depth", [100, 400, 600, 800, 900, 940, 970])
    def test_a_wrong_value_may_be_nested_as_deeply_as_json_is_read(self, http: httpx.Client, depth: int) -> None:
        body = b"[" * depth + b"]" * depth
        answer = http.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
        assert error(answer)["code"] == "invalid"


class TestEstimate:
    def test_tokens_cost_and_time_without_a_job(self, http: httpx.Client, api: ServedApi) -> None:
        """P4: two items of at most 10 tokens at 2 USD a million: 40,000 nano-USD of output; input at 1 USD."""
        answer = http.post("/v1/estimate", json=request(http, budget_usd=1)).json()
        assert (answer["items"], answer["output_tokens"], answer["refusal"]) == (2, 20, None)
        assert answer["expected_cost_nano_usd"] == answer["input_tokens"] * 1_000 + 40_000
        assert answer["worst_cost_nano_usd"] > answer["expected_cost_nano_usd"]
        assert [pool["lane"] for pool in answer["pools"]] == ["realtime"]
        assert api.sent(JobSubmitted) == []

    def test_a_budget_below_the_worst_case_would_be_refused(self, http: httpx.Client) -> None:
        answer = http.post("/v1/estimate", json=request(http, budget_usd="0.000000001")).json()
        assert answer["refusal"]["rule"] == "budget"

    def test_a_column_that_no_row_has_is_told(self, http: httpx.Client) -> None:
        answer = http.post("/v1/estimate", json=request(http, pipeline={"publish": {"columns": ["colour"]}})).json()
        assert answer["warnings"] == ["no row has the column 'colour' that pipeline.yaml names"]

    def test_bad_rows_are_named(self, http: httpx.Client) -> None:
        body = {"pipeline": PIPELINE, "input": upload(http, ROWS + b"{broken\n")}
        answer = http.post("/v1/estimate", json=body).json()
        assert (answer["items"], answer["refused_rows"], answer["problems"][0]["place"]) == (2, 1, "line 3")
        assert answer["refusal"]["rule"] == "bad_rows"
        assert "; 1 row can not be used; " in answer["refusal"]["message"]
        body["input"]["skip_bad_rows"] = True
        assert http.post("/v1/estimate", json=body).json()["refusal"] is None
