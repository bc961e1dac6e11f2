"""The api over real HTTP, with the memory log behind it."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kit.api_server import CONFIG, ServedApi
from kit.ledger_events import COUNTS
from kit.messages import BATCH, JOB
from nightmill.api.limits import MAX_BODY_BYTES
from nightmill.kernel.domain.lifecycle import BatchState, Command
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.settings import KeySource
from nightmill.kernel.wire.messages import JobCommanded, JobSubmitted
from nightmill.kernel.wire.values import replace

from .rows import dataset, plan, publication, submitted

SCHEMA = {"type": "object", "properties": {"label": {"enum": ["a", "b"]}}, "required": ["label"]}
PIPELINE: dict[str, Any] = {
    "name": "label",
    "input": {"id": "id", "fields": ["text"]},
    "prompt": "system:\nLabel it.\nuser:\n{{ text }}",
    "output": SCHEMA,
    "model": {"pools": ["sim"], "max_output_tokens": 10},
}
OTHER_BATCH = "acme.tickets.20261130-000000-0000.b1"
ROWS = b'{"id": "a", "text": "one"}\n{"id": "b", "text": "two"}\n'


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ServedApi]:
    with ServedApi(tmp_path / "home") as served:
        yield served


@pytest.fixture
def http(api: ServedApi) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {api.token}"}
    with httpx.Client(base_url=api.url, headers=headers, timeout=30, trust_env=False) as client:
        yield client


def upload(http: httpx.Client, data: bytes = ROWS) -> dict[str, Any]:
    answer = http.post("/v1/inputs", params={"format": "jsonl", "name": "rows.jsonl"}, content=data)
    assert answer.status_code == 201, answer.text
    return {"format": "jsonl", "name": "rows.jsonl", **answer.json()}


def request(http: httpx.Client, **changes: Any) -> dict[str, Any]:
    pipeline = {**PIPELINE, **changes.pop("pipeline", {})}
    return {"pipeline": pipeline, "input": upload(http), **changes}


def error(answer: httpx.Response) -> dict[str, str]:
    problem: dict[str, str] = answer.json()["error"]
    assert problem.keys() == {"code", "message", "remedy"}
    return problem


class TestAccess:
    @pytest.mark.parametrize("header", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic eDp5"}])
    def test_a_wrong_token_is_refused(self, api: ServedApi, header: dict[str, str]) -> None:
        """P6: nothing is told without the token."""
        answer = httpx.get(f"{api.url}/v1/jobs", headers=header, trust_env=False)
        assert answer.status_code == 401
        assert error(answer)["code"] == "unauthorised"
        assert "token" in error(answer)["remedy"]

    def test_health_needs_no_token(self, api: ServedApi) -> None:
        assert httpx.get(f"{api.url}/health", trust_env=False).json() == {"ok": True}

    def test_an_unknown_path_is_an_error_of_the_same_form(self, http: httpx.Client) -> None:
        answer = http.get("/v1/nothing")
        assert (answer.status_code, error(answer)["code"]) == (404, "unknown_path")

    def test_every_route_is_described(self, http: httpx.Client) -> None:
        paths = http.get("/openapi.json").json()["paths"]
        assert set(paths) == {
            "/health", "/v1/inputs", "/v1/jobs", "/v1/estimate", "/v1/jobs/{job_id}", "/v1/jobs/{job_id}/cost",
            "/v1/jobs/{job_id}/cancel", "/v1/jobs/{job_id}/resume", "/v1/jobs/{job_id}/approve",
            "/v1/datasets/{dataset_id}/versions", "/v1/results", "/v1/explain",
            "/v1/sql", "/v1/health", "/v1/webhooks/{pool}",
        }  # fmt: skip

    @pytest.mark.parametrize("chunked", [True, False])
    def test_a_large_body_is_refused_where_it_is_held_in_memory(self, http: httpx.Client, chunked: bool) -> None:
        data = b"x" * (MAX_BODY_BYTES + 1)
        answer = http.post("/v1/sql", content=iter([data]) if chunked else data)
        assert (answer.status_code, error(answer)["code"]) == (413, "body_too_large")

    def test_uploads_have_no_such_cap(self, http: httpx.Client, api: ServedApi) -> None:
        data = b"y" * (MAX_BODY_BYTES + 1)
        blob = upload(http, data)
        assert (blob["bytes"], api.blobs.get(blob["blob"])) == (len(data), data)

    def test_put_uploads_too(self, http: httpx.Client) -> None:
        answer = http.put("/v1/inputs", params={"format": "csv", "name": "x.csv"}, content=b"id,text\n1,a\n")
        assert answer.json()["bytes"] == 12

    def test_an_empty_upload_is_refused(self, http: httpx.Client) -> None:
        answer = http.post("/v1/inputs", params={"format": "jsonl", "name": "x.jsonl"}, content=b"")
        assert (answer.status_code, error(answer)["code"]) == (422, "empty_input")
        assert "x.jsonl" in error(answer)["message"]

    def test_kafka_and_ledger_are_told_apart(self, http: httpx.Client) -> None:
        """O1: the ledger is away here; status goes on all the same."""
        health = http.get("/v1/health").json()
        assert (health["ok"], health["kafka"]["ok"], health["ledger"]["ok"]) == (False, True, False)
        assert http.get("/v1/jobs").json() == {"jobs": [], "total": 0}


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

    def test_bad_rows_are_named(self, http: httpx.Client) -> None:
        body = {"pipeline": PIPELINE, "input": upload(http, ROWS + b"{broken\n")}
        answer = http.post("/v1/estimate", json=body).json()
        assert (answer["items"], answer["refused_rows"], answer["problems"][0]["place"]) == (2, 1, "line 3")
        assert answer["refusal"]["rule"] == "bad_rows"
        assert "; 1 row can not be used; " in answer["refusal"]["message"]
        body["input"]["skip_bad_rows"] = True
        assert http.post("/v1/estimate", json=body).json()["refusal"] is None


class TestStatusAndCommands:
    def test_status_follows_the_views(self, http: httpx.Client, api: ServedApi) -> None:
        """O1: no ledger runs in this test."""
        api.put(submitted(), plan(), publication())
        status = http.get(f"/v1/jobs/{JOB}").json()
        assert (status["state"], status["planned"], status["settled"]) == ("running", 10, 5)
        assert status["counts"]["accepted"] == 4
        api.put(publication(state=BatchState.HELD, reason="budget", counts=replace(COUNTS, accepted=9)))
        status = http.get(f"/v1/jobs/{JOB}").json()
        assert (status["state"], status["reason"], status["counts"]["accepted"]) == ("held", "budget", 9)
        assert [job["job_id"] for job in http.get("/v1/jobs").json()["jobs"]] == [JOB]

    def test_an_unknown_job(self, http: httpx.Client) -> None:
        for method, path in (("GET", ""), ("POST", "/cancel"), ("GET", "/cost")):
            answer = http.request(method, f"/v1/jobs/acme.x.20260101-000000-aa{path}")
            assert (answer.status_code, error(answer)["code"]) == (404, "unknown_job")

    def test_a_command_is_written_once_per_key(self, http: httpx.Client, api: ServedApi) -> None:
        api.put(submitted(), publication())
        key = {"Idempotency-Key": "k"}
        first = http.post(f"/v1/jobs/{JOB}/cancel", json={"reason": "wrong file", "actor": "ann"}, headers=key)
        second = http.post(f"/v1/jobs/{JOB}/cancel", json={"reason": "wrong file", "actor": "ann"}, headers=key)
        assert first.status_code == 202
        assert first.json() == second.json()
        orders = api.sent(JobCommanded)
        assert {order.command_id for order in orders} == {first.json()["command_id"]}
        assert (orders[0].command, orders[0].batch_id, orders[0].dataset_id) == (Command.CANCEL, BATCH, "acme.tickets")
        assert (orders[0].actor, orders[0].reason) == ("ann", "wrong file")

    @pytest.mark.parametrize(
        ("state", "allowed"),
        [
            (BatchState.RUNNING, {"cancel"}),
            (BatchState.HELD, {"cancel", "resume", "approve"}),
            (BatchState.CANCELLED, {"resume"}),
            (BatchState.PARTIAL_FAILED, {"resume"}),
            (BatchState.PUBLISHED, set()),
            (BatchState.REFUSED, set()),
        ],
    )
    def test_commands_by_state(self, http: httpx.Client, api: ServedApi, state: BatchState, allowed: set[str]) -> None:
        """E11: what would change nothing is refused with the reason."""
        api.put(publication(state=state))
        answers = {name: http.post(f"/v1/jobs/{JOB}/{name}") for name in ("cancel", "resume", "approve")}
        assert {name for name, answer in answers.items() if answer.status_code == 202} == allowed
        assert {error(answers[name])["code"] for name in answers.keys() - allowed} <= {"wrong_state"}

    def test_an_unknown_command(self, http: httpx.Client, api: ServedApi) -> None:
        api.put(publication())
        answer = http.post(f"/v1/jobs/{JOB}/explode")
        assert (answer.status_code, error(answer)["code"]) == (404, "unknown_path")

    @pytest.mark.parametrize(
        ("method", "path", "allowed"),
        [
            ("POST", f"/v1/jobs/{JOB}/cost", "GET"),
            ("OPTIONS", "/v1/jobs", "GET, POST"),
            ("TRACE", "/v1/inputs", "POST, PUT"),
        ],
    )
    def test_a_method_that_is_not_taken_is_told_which_are(
        self, http: httpx.Client, method: str, path: str, allowed: str
    ) -> None:
        answer = http.request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


class TestDatasetsAndResults:
    def test_versions(self, http: httpx.Client, api: ServedApi) -> None:
        api.put(dataset(1, 2))
        answer = http.get("/v1/datasets/acme.tickets/versions").json()
        assert (answer["current"], [each["version"] for each in answer["versions"]]) == (2, [2, 1])
        assert error(http.get("/v1/datasets/acme.other/versions"))["code"] == "unknown_dataset"

    @pytest.mark.parametrize(
        ("params", "status", "code"),
        [
            ({}, 422, "invalid"),
            ({"job": JOB, "dataset": "acme.tickets"}, 422, "invalid"),
            ({"job": "acme.x.y"}, 404, "unknown_job"),
            ({"job": JOB}, 409, "not_published"),
            ({"dataset": "acme.nothing"}, 404, "unknown_dataset"),
            ({"dataset": "acme.tickets", "version": 7}, 404, "unknown_version"),
        ],
    )
    def test_results_that_do_not_exist(
        self, http: httpx.Client, api: ServedApi, params: dict[str, str], status: int, code: str
    ) -> None:
        api.put(publication(), dataset(1, 2, batch=OTHER_BATCH))
        answer = http.get("/v1/results", params=params)
        assert (answer.status_code, error(answer)["code"]) == (status, code)

    def test_a_resumed_job_gives_what_it_has_published(self, http: httpx.Client, api: ServedApi) -> None:
        """Q6: rows of version 2 while the next generation is held; `staged` asks for that one's rows."""
        root = api.results_dir / "acme.tickets"
        for version in (2, 3):
            folder = root / "versions" / str(version)
            folder.mkdir(parents=True)
            location = f"versions/{version}/manifest.json"
            column = {"name": "label", "origin": "output", "source": "label", "kind": "string"}
            file = {"name": "data.jsonl", "kind": "data"}
            manifest = {"location": location, "columns": [column], "files": [file], "format": "jsonl"}
            (folder / "manifest.json").write_text(json.dumps(manifest))
            (folder / "data.jsonl").write_text(json.dumps({"label": f"of {version}"}) + "\n")
            (root / f"pointer-{version:010d}.json").write_text(json.dumps({"manifest": location}))
        digest = api.blobs.put(json.dumps(PIPELINE).encode())
        resumed = publication(state=BatchState.HELD, generation=2)
        api.put(submitted(pipeline_digest=digest), resumed, dataset(1, 2))
        assert http.get(f"/v1/jobs/{JOB}").json()["version"] == 2
        assert http.get("/v1/results", params={"job": JOB}).json() == {"label": "of 2"}
        assert http.get("/v1/results", params={"job": JOB, "staged": True}).text == ""

    def test_nothing_staged_is_an_empty_answer(self, http: httpx.Client, api: ServedApi) -> None:
        digest = api.blobs.put(json.dumps(PIPELINE).encode())
        api.put(submitted(pipeline_digest=digest), publication())
        answer = http.get("/v1/results", params={"job": JOB, "staged": True})
        assert (answer.status_code, answer.text) == (200, "")

    def test_the_ledger_is_needed_for_costs_only(self, http: httpx.Client, api: ServedApi) -> None:
        api.put(publication())
        for answer in (
            http.get(f"/v1/jobs/{JOB}/cost"),
            http.get("/v1/explain", params={"source_id": "a"}),
            http.post("/v1/sql", json={"sql": "SELECT 1"}),
        ):
            assert (answer.status_code, error(answer)["code"]) == (503, "ledger_unavailable")
