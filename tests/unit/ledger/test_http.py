"""The endpoint's answers come whatever becomes of the log beside them."""

import json
import logging
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from nightmill.kernel.store.clickhouse import open_clickhouse
from nightmill.ledger import http
from nightmill.ledger.query import Desk

CLIENT_TIMEOUT_S = 20


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """An endpoint whose store is away: what is refused before the store is asked needs none."""
    (tmp_path / "token").write_text("test-token", encoding="utf-8")
    store = open_clickhouse("http://127.0.0.1:9", "nowhere")
    server = http.QueryServer(Desk(store, {}), token_file=tmp_path / "token", port_file=tmp_path / "run" / "port")
    server.start()
    yield f"http://127.0.0.1:{server.port}"
    server.close()
    store.close()


@contextmanager
def stopped_log() -> Iterator[None]:
    """The endpoint's log is a full pipe, and nobody reads it until the block ends."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    for size in (4096, 1):
        with suppress(BlockingIOError):
            while True:
                os.write(writing, b"x" * size)
    os.set_blocking(writing, True)
    before, log = set(threading.enumerate()), logging.getLogger(http.__name__)
    level = log.level
    with os.fdopen(writing, "w", encoding="utf-8") as stream, os.fdopen(reading, "rb") as reader:
        handler = logging.StreamHandler(stream)
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        try:
            yield
        finally:
            log.removeHandler(handler)
            log.setLevel(level)
            reader.read1(1 << 20)
            for thread in set(threading.enumerate()) - before:
                thread.join(CLIENT_TIMEOUT_S)


def ask(url: str, sql: str) -> tuple[int, str]:
    request = urllib.request.Request(f"{url}/query", data=json.dumps({"sql": sql}).encode())
    request.add_header("Authorization", "Bearer test-token")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=CLIENT_TIMEOUT_S)
    with caught.value as answer:
        return answer.code, json.loads(answer.read())["error"]["kind"]


def test_a_log_that_nobody_reads_holds_up_no_answer(url: str) -> None:
    """O1: a refusal is told before it is logged, and gives its slot back, so the next questions are answered too."""
    with stopped_log():
        answers = [ask(url, "x" * 70_000) for _ in range(6)]
    assert answers == [(400, "limit")] * 6
