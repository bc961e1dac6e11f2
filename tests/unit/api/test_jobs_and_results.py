"""What is told of a job, what it may be ordered, and what of its results can be read."""

import json

import httpx
import pytest

from kit.api_server import ServedApi
from kit.ledger_events import COUNTS
from kit.messages import BATCH, JOB
from nightmill.kernel.domain.lifecycle import BatchState, Command
from nightmill.kernel.wire.messages import JobCommanded
from nightmill.kernel.wire.values import replace
from unit.api.asking import PIPELINE, error

from .rows import dataset, plan, publication, submitted

OTHER_BATCH = "acme.tickets.20261130-000000-0000.b1"


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
