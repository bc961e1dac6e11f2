"""The client against a real api: it finds it, submits once, follows, and says what is wrong."""

import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.api_server import ServedApi
from kit.ledger_events import COUNTS, sealed, totals
from nightmill.client import BadInput, Client, NotRunning, Progress, Refused
from nightmill.client.connection import lines_of
from nightmill.kernel.domain import ids
from nightmill.kernel.domain.lifecycle import BatchState
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.wire.messages import JobSubmitted, PublicationRow
from nightmill.kernel.wire.values import replace

PIPELINE = Pipeline.model_validate(
    {
        "name": "label",
        "input": {"id": "id", "fields": ["text"]},
        "prompt": "Label {{ text }}",
        "output": {"type": "object"},
        "model": {"pools": ["sim"], "max_output_tokens": 10},
    }
)
ROWS = [{"id": "a", "text": "one"}, {"id": "b", "text": "two"}]


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ServedApi]:
    with ServedApi(tmp_path / "home") as served:
        yield served


@pytest.fixture
def client(api: ServedApi) -> Iterator[Client]:
    with Client(api.home) as made:
        yield made


def row(api: ServedApi, job: str, state: BatchState, accepted: int = 0, generation: int = 1) -> PublicationRow:
    """The publisher's row of a job of the client."""
    now_ms = api.desk.now_ms()
    seal = sealed(job_id=job, batch_id=ids.batch_id(job), dataset_id="default.label", planned=2, refused_rows=0)
    return PublicationRow(
        batch_id=ids.batch_id(job),
        job_id=job,
        dataset_id="default.label",
        generation=generation,
        state=state,
        sealed=seal,
        counts=replace(COUNTS, accepted=accepted),
        totals=totals(attempts=2, cost_nano_usd=7),
        approved=False,
        commands=(),
        opened_at_ms=now_ms,
        updated_at_ms=now_ms,
    )


def test_a_job_is_followed_to_its_end(api: ServedApi, client: Client) -> None:
    """P2: submit, progress, end."""
    job = client.run(PIPELINE, ROWS, budget_usd="0.5", deadline="1h", wait=False)
    assert job.status().state is BatchState.CREATED
    seen: list[Progress] = []

    def move(progress: Progress) -> None:
        seen.append(progress)
        match progress.status.state:
            case BatchState.CREATED:
                api.put(row(api, job.job_id, BatchState.RUNNING, accepted=1))
            case BatchState.RUNNING:
                api.put(row(api, job.job_id, BatchState.PUBLISHED, accepted=2))

    ended = job.wait(move, poll_s=0)
    assert (ended.state, ended.counts.accepted) == (BatchState.PUBLISHED, 2)
    assert [each.status.settled for each in seen] == [0, 1, 2]
    assert [each.job_id for each in client.jobs().jobs] == [job.job_id]


def test_commands_return_what_the_publisher_decided(api: ServedApi, client: Client) -> None:
    """E11: the answer is the state after the decision, not before it."""
    job = client.run(PIPELINE, ROWS, wait=False)
    api.put(row(api, job.job_id, BatchState.HELD))
    timer = threading.Timer(0.3, lambda: api.put(row(api, job.job_id, BatchState.QUEUED, generation=2)))
    timer.start()
    after = job.resume("again")
    timer.join()
    assert (after.state, after.generation) == (BatchState.QUEUED, 2)
    with pytest.raises(Refused, match="only a held job can be approved") as caught:
        job.approve()
    assert (caught.value.code, caught.value.exit_code) == ("wrong_state", 2)


def test_an_estimate_starts_nothing(api: ServedApi, client: Client) -> None:
    """P4"""
    answer = client.estimate(client.request(PIPELINE, ROWS))
    assert (answer.items, answer.output_tokens) == (2, 20)
    assert api.sent(JobSubmitted) == []


class TestNobodyThere:
    def test_never_started(self, tmp_path: Path) -> None:
        with Client(tmp_path) as client, pytest.raises(NotRunning) as caught:
            client.jobs()
        assert caught.value.message == f"nightmill is not running in {tmp_path}"
        assert caught.value.remedy == f"nightmill up --detach --home {tmp_path}"
        assert caught.value.exit_code == 5

    def test_a_port_where_nobody_listens(self, tmp_path: Path) -> None:
        self.home(tmp_path, port=9)
        with Client(tmp_path) as client, pytest.raises(NotRunning, match="the api does not answer") as caught:
            client.run(PIPELINE, ROWS)
        assert f"nightmill ps --home {tmp_path}" in caught.value.remedy

    def test_a_port_where_another_program_answers(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.home(tmp_path, port=listener.getsockname()[1])

            def answer() -> None:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>")

            thread = threading.Thread(target=answer)
            thread.start()
            with Client(tmp_path) as client, pytest.raises(NotRunning, match="not as the api does"):
                client.jobs()
            thread.join()

    def home(self, folder: Path, port: int) -> None:
        (folder / "run").mkdir()
        (folder / "run" / "api.port").write_text(str(port))
        (folder / "token").write_text("t")


def test_a_wrong_token(api: ServedApi, client: Client) -> None:
    """P6: says which file it took the token from."""
    (api.home / "token").write_text("something else")
    with pytest.raises(Refused) as caught:
        client.jobs()
    assert (caught.value.code, caught.value.exit_code) == ("unauthorised", 2)
    assert str(api.home / "token") in caught.value.remedy


def test_an_api_that_comes_back_is_found_again(api: ServedApi, client: Client) -> None:
    """E1: the api is restarted on another port while a client follows a job."""
    job = client.run(PIPELINE, ROWS, wait=False)
    api.__exit__(None, None, None)
    timer = threading.Timer(0.7, api.__enter__)
    timer.start()
    assert job.status().state is BatchState.CREATED
    timer.join()


def test_what_is_wrong_is_said_before_anything_is_sent(api: ServedApi, client: Client, tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"input": tmp_path / "none.csv"}, "none.csv"),
        ({"deadline": "soon"}, "'soon'"),
        ({"budget_usd": "much"}, "budget_usd = 'much'"),
        ({"budget_usd": -1}, "budget_usd"),
        ({"limit": 0}, "limit = 0"),
        ({"tenant": "No Tenant"}, "'No Tenant'"),
    ]
    for bad, says in cases:
        fields: dict[str, Any] = {"pipeline": PIPELINE, "input": ROWS, **bad}
        with pytest.raises(BadInput) as caught:
            client.run(**fields)
        assert says in caught.value.message
    assert api.sent(JobSubmitted) == []


def test_a_folder_that_turns_out_bad_halfway_starts_nothing(api: ServedApi, client: Client, tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("fine")
    (folder / "b.txt").write_bytes(b"\xff")
    with pytest.raises(BadInput, match=r"b\.txt: not UTF-8"):
        client.run(PIPELINE, folder)
    assert api.sent(JobSubmitted) == []
    assert client.jobs().total == 0


def test_unknown_things(client: Client) -> None:
    for odd in ("acme.x.y?limit=1", "acme.x.y#z", "a b"):  # no other one is asked for
        with pytest.raises(Refused, match=f"no job '{re.escape(odd)}'"):
            client.job(odd).cancel()
        with pytest.raises(Refused, match=f"no dataset '{re.escape(odd)}'"):
            client.versions(odd)
    with pytest.raises(Refused, match="no job"):
        client.job("default.label.20260101-000000-aa").status()
    with pytest.raises(Refused, match="no dataset"):
        client.versions("default.label")
    with pytest.raises(Refused, match="no dataset"):
        list(client.results("default.label"))
    with pytest.raises(NotRunning, match="ledger"):
        client.sql("SELECT 1")
    assert client.health().kafka.ok


def test_lines_end_at_line_feeds_alone() -> None:
    """A text may hold U+2028, U+0085 or a carriage return; chunks are cut anywhere."""
    raw = '{"a": "x\u2028y\u0085z"}\n{"b": 1}\r\n{"c": 2}'.encode()
    for size in (1, 2, 7, 1000):
        chunks = [raw[at : at + size] for at in range(0, len(raw), size)]
        assert list(lines_of(chunks)) == ['{"a": "x\u2028y\u0085z"}', '{"b": 1}\r', '{"c": 2}']
