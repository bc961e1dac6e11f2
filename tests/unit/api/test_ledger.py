"""What the api tells from the ledger: cost, explanations, SQL; the ledger is the real one, in a process of its own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kit.api_server import ServedApi
from kit.clickhouse import LedgerProcess, namespace, server_url
from kit.ledger_events import completed, judged, sealed, settled, unknown
from kit.messages import JOB
from nightmill.api.explaining import row_of
from nightmill.api.ledger import in_nano_usd
from nightmill.kernel.domain.lifecycle import BatchState, ItemOutcome, VerdictKind
from nightmill.kernel.store.blocks import write_block
from nightmill.kernel.wire.messages import RowRef, Verdict

from .rows import publication, submitted

PIPELINE = (
    b'{"name": "tickets", "input": {"id": "id", "fields": ["text"]}, "prompt": "user:\\nLabel {{ text }}",'
    b' "output": {}, "model": {"pools": ["sim"], "max_output_tokens": 5}}'
)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApi]:
    home: Path = tmp_path_factory.mktemp("api") / "home"
    ledger = LedgerProcess(home, namespace(), server_url())
    (home / "token").chmod(0o600)
    with ServedApi(home) as served:
        fill(served, ledger)
        yield served
    assert ledger.stop() == 0


def fill(api: ServedApi, ledger: LedgerProcess) -> None:
    """One accepted item, one that waits for review after two calls of which one has no known cost."""
    block = write_block(api.blobs, [{"id": "good", "text": "a fine one"}, {"id": "bad", "text": "a poor one"}])
    manifest = api.blobs.put_json({"blocks": [{"digest": block.digest, "rows": 2, "first_ordinal": 0}]})
    pipeline = api.blobs.put(PIPELINE)
    refused = Verdict(kind=VerdictKind.REVIEW, rule="range", field="confidence", value="0.1")
    parked = {"outcome": ItemOutcome.IN_REVIEW, "verdict": refused, "pipeline_digest": pipeline}
    said = ledger.deliver(
        [
            sealed(manifest_digest=manifest),
            judged("good"),
            unknown("bad", 1),
            judged("bad", 2, verdict=refused, output='{"label": "b"}', is_repair=True),
            settled("good", 0, pipeline_digest=pipeline),
            settled("bad", 1, **parked),
            settled("idna==3.10", 2, outcome=ItemOutcome.CANCELLED, pipeline_digest=pipeline),
            settled("idna-extra==1", 3, outcome=ItemOutcome.CANCELLED, pipeline_digest=pipeline),
            completed(),
        ]
    )
    assert said == "flushed"
    api.put(submitted(), publication(state=BatchState.HELD, sealed=sealed(manifest_digest=manifest)))


def get(api: ServedApi, path: str, **params: Any) -> Any:
    headers = {"Authorization": f"Bearer {api.token}"}
    answer = httpx.get(f"{api.url}{path}", params=params, headers=headers, timeout=60, trust_env=False)
    return answer.json()


def sql(api: ServedApi, query: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {api.token}"}
    return httpx.post(f"{api.url}/v1/sql", json={"sql": query}, headers=headers, timeout=60, trust_env=False)


def test_cost_by_stage(api: ServedApi) -> None:
    """P4: two known calls of 1,500 nano-USD; the third is unknown, with its reservation beside it, never 0."""
    answer = get(api, f"/v1/jobs/{JOB}/cost", by="stage")
    assert {row["stage"]: row["cost_nano_usd"] for row in answer["rows"]} == {"first": 1_500, "repair": 1_500}
    assert (answer["cost_nano_usd"], answer["unknown_calls"]) == (3_000, 1)
    assert [row["reserved_nano_usd"] for row in answer["rows"] if row["stage"] == "first"] == [9_000]


@pytest.mark.parametrize(("by", "key"), [("model", "pool"), ("cause", "cause")])
def test_cost_by_other_questions(api: ServedApi, by: str, key: str) -> None:
    answer = get(api, f"/v1/jobs/{JOB}/cost", by=by)
    assert sum(row["calls"] for row in answer["rows"]) == 3
    assert all(row[key] for row in answer["rows"])


def test_an_item_is_explained(api: ServedApi) -> None:
    """O2: prompt, raw answer, rule, calls with cost, and what to do next."""
    answer = get(api, "/v1/explain", source_id="bad")
    (item,) = answer["items"]
    assert (item["outcome"], item["rule"], item["field"], item["value"]) == ("in_review", "range", "confidence", "0.1")
    assert answer["prompt"] == [{"role": "user", "content": "Label a poor one"}]
    assert [attempt["cost_nano_usd"] for attempt in answer["attempts"]] == [None, 1_500]
    assert answer["attempts"][1]["output"] == '{"label": "b"}'
    assert answer["next_command"] == f"nightmill approve {JOB}"
    assert get(api, "/v1/explain", item=item["item_key"])["items"] == answer["items"]


def test_the_start_of_an_id_will_do(api: ServedApi) -> None:
    """O2: where only one id begins so, or one is of the distribution of that name."""
    assert get(api, "/v1/explain", source_id="ba")["id"] == "bad"
    assert get(api, "/v1/explain", source_id="idna")["id"] == "idna==3.10"
    problem = get(api, "/v1/explain", source_id="idn")["error"]
    assert (problem["code"], problem["remedy"]) == ("ambiguous_item", "name one of them: idna-extra==1, idna==3.10")


def test_an_item_that_nobody_knows(api: ServedApi) -> None:
    problem = get(api, "/v1/explain", source_id="nobody")["error"]
    assert (problem["code"], "name==version" in problem["remedy"]) == ("unknown_item", True)
    assert get(api, "/v1/explain")["error"]["code"] == "invalid"


def test_sql_is_read_only(api: ServedApi) -> None:
    answer = sql(api, "SELECT source_id, outcome FROM items WHERE outcome != 'cancelled' ORDER BY source_id").json()
    assert answer["rows"] == [["bad", "in_review"], ["good", "accepted"]]
    refused = sql(api, "SELECT * FROM file('/etc/passwd')")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "sql_refused")
    assert sql(api, "SELEC 1").json()["error"]["code"] == "sql_invalid"


def test_health_is_good(api: ServedApi) -> None:
    assert get(api, "/v1/health")["ok"] is True


def test_where_a_row_lies() -> None:
    manifest = {
        "blocks": [
            {"digest": "a", "rows": 2, "first_ordinal": 0},
            {"digest": "b", "rows": 3, "first_ordinal": 2},
        ]
    }
    found = [row_of(manifest, ordinal) for ordinal in range(6)]
    assert found == [*(RowRef(block="a", row=i) for i in range(2)), *(RowRef(block="b", row=i) for i in range(3)), None]


def test_decimals_become_integers_exactly() -> None:
    row = {"cost_usd": "0.000000001", "reserved_usd": None, "calls": 3}
    assert in_nano_usd(row) == {"cost_nano_usd": 1, "reserved_nano_usd": None, "calls": 3}
