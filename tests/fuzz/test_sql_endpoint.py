"""The read-only SQL endpoint against people who want more: files, addresses, writes, settings, other tables, or all the
machine's time.

A secret lies in a file beside the ledger and a listener waits on loopback. Whatever is asked, by a list of known tricks
or by what a grammar makes of them: the secret is never told, nobody calls, nothing is written, no answer is a crash.
"""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.bytes_of import CLEAN_TEXTS, VALUES, mutated, searched
from fuzz.sql_tricks import ATTACKS, FRAMES, GREEDY, SOURCES, disguised, tricks
from kit import clickhouse as kit
from kit.ledger_events import sealed

SECRET = "canary-7f3a9c"


class Target:
    """The endpoint, and what must stay as it is."""

    def __init__(self, ledger: kit.LedgerProcess, folder: Path, listener: socket.socket) -> None:
        self.ledger, self.folder = ledger, folder
        self.listener = listener
        self.address = f"127.0.0.1:{listener.getsockname()[1]}"
        (folder / "secret.csv").write_text(f"{SECRET}\n", encoding="utf-8")

    def ask(self, sql: str, **more: Any) -> tuple[int, str]:
        """Status and text of an answer, after looking at what must not have happened."""
        text = sql.replace("FILE", str(self.folder / "secret.csv")).replace("OUT", str(self.folder / "out"))
        body = {"sql": text.replace("ADDRESS", self.address), "max_seconds": 1, "max_rows": 50, **more}
        status, answer = self.ledger.post("/query", body)
        said = json.dumps(answer)
        assert status in (200, 400, 403), said
        assert status == 200 or (
            answer["error"]["kind"] in ("refused", "invalid", "limit") and answer["error"]["message"]
        )
        assert SECRET not in said
        assert [path.name for path in self.folder.iterdir()] == ["secret.csv"]
        with pytest.raises(BlockingIOError):
            self.listener.accept()
        return status, said

    def untouched(self) -> None:
        """The ledger still answers, with what was in it."""
        assert self.ledger.rows("SELECT count(), any(planned) FROM batches") == [[1, 10]]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    home, folder = tmp_path_factory.mktemp("ledger"), tmp_path_factory.mktemp("beside")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        with kit.ledger(home / "home", kit.namespace(), kit.server_url()) as ledger:
            assert ledger.deliver([sealed()]) == "flushed"
            yield Target(ledger, folder, listener)


@pytest.mark.parametrize("source", SOURCES)
def test_no_source_outside_the_ledger_is_read(target: Target, source: str) -> None:
    """DESIGN 10: read-only SQL is refused file and url access, other databases and system tables."""
    for frame in FRAMES[:3]:
        assert target.ask(frame.format(source))[0] != 200


@pytest.mark.parametrize("sql", ATTACKS, ids=[sql[:60].encode("ascii", "replace").decode() for sql in ATTACKS])
def test_a_trick_is_refused_or_harmless(target: Target, sql: str) -> None:
    """DESIGN 10, O1: every refusal says why, and nothing but the ledger's own rows is ever told."""
    target.ask(sql)
    target.untouched()


@pytest.mark.parametrize("sql", GREEDY)
def test_a_greedy_question_meets_a_limit(target: Target, sql: str) -> None:
    """Rows, seconds and memory are bounded by settings that the query can not change."""
    status, said = target.ask(sql)
    if status == 200:
        assert len(json.loads(said)["rows"]) <= 50
        assert len(said) < 33 << 20
    target.untouched()


@given(sql=tricks())
@searched(60)
def test_what_a_grammar_makes_of_the_tricks_is_refused_or_harmless(target: Target, sql: str) -> None:
    target.ask(sql)


@given(sql=st.sampled_from(ATTACKS).flatmap(disguised) | CLEAN_TEXTS)
@searched(40)
def test_what_is_no_sql_at_all_is_said_to_be_none(target: Target, sql: str) -> None:
    target.ask(sql)


BODY = {"sql": "SELECT planned FROM batches WHERE planned > {n:UInt8}", "parameters": {"n": 1}, "max_rows": 5}


@given(
    path=st.sampled_from(["/query", "/named/job_cost_by_stage", "/named/../query", "/named/", "/"]), body=mutated(BODY)
)
@searched(60)
def test_any_body_is_answered_or_refused(target: Target, path: str, body: Any) -> None:
    status, answer = target.ledger.post(path, body)
    assert status in (200, 400, 403, 404, 413), answer
    assert status == 200 or answer["error"]["message"]


@given(
    path=st.sampled_from(["/query", "/named/job_cost_by_stage"]),
    body=st.binary(max_size=40) | VALUES.map(repr).map(str.encode),
)
@searched(40)
def test_bytes_that_are_no_body_are_refused(target: Target, path: str, body: bytes) -> None:
    status, answer = target.ledger.post(path, body)
    assert status in (400, 413), answer
    assert answer["error"]["message"]
