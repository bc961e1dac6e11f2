"""Who is let in, which paths there are, and what may be uploaded."""

import httpx
import pytest

from kit.api_server import ServedApi
from nightmill.api.limits import MAX_BODY_BYTES
from unit.api.asking import error, upload


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
