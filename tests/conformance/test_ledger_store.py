"""The ledger over both forms of its store: exact under redelivery, kills and outages.

Every test talks to a ledger process through its endpoint. The server form runs on a server where one is configured or
a Docker engine answers, and else on the embedded engine behind the smallest HTTP face (kit/clickhouse_front.py).
"""

import random
import urllib.request
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from kit import clickhouse as kit
from kit import ledger_events as events
from kit.clickhouse import Open
from kit.messages import key_of
from nightmill.kernel.domain.lifecycle import ItemOutcome
from nightmill.kernel.wire.messages import AttemptJudged
from nightmill.ledger.run import EXIT_LOCKED


def usd(nano: int) -> Decimal:
    return Decimal(nano).scaleb(-9)


def cut(list_: list[Any], size: int) -> list[list[Any]]:
    return [list_[start : start + size] for start in range(0, len(list_), size)]


def many(number: int) -> list[AttemptJudged]:
    """Judged calls of which every seventh has an unknown cost."""
    dice = random.Random(7)
    return [
        events.unknown(f"s{place}")
        if place % 7 == 0
        else events.judged(f"s{place}", cost_nano_usd=dice.randrange(10**9))
        for place in range(number)
    ]


def known(calls: list[AttemptJudged]) -> int:
    return sum(call.attempt.cost_nano_usd or 0 for call in calls)


SUMS = "SELECT count(), sum(cost_usd), countIf(cost_usd IS NULL), uniqExact(attempt_id) FROM attempts"


def sums(process: kit.LedgerProcess) -> tuple[int, Decimal, int]:
    count, cost, unknown, ids = process.rows(SUMS)[0]
    assert count == ids
    return count, Decimal(cost), unknown


# -- exactness


def test_each_event_is_one_row_of_its_table(open_ledger: Open) -> None:
    """O1"""
    process = open_ledger()
    whole = [
        events.judged("a"),
        events.settled("a", 0),
        events.sealed(),
        events.published(),
        events.completed(),
        events.lease(1, events.NOON_MS),
    ]
    assert process.deliver(whole) == "flushed"
    tables = ["attempts", "verdicts", "items", "batches", "publishes", "jobs", "lease_usage"]
    assert {table: process.rows(f"SELECT count() FROM {table}") for table in tables} == dict.fromkeys(tables, [[1]])
    assert process.rows("SELECT tenant, tags['team'], expected_cost_usd FROM batches") == [
        ["acme", "search", "0.00002"]
    ]
    assert process.rows("SELECT output, verdict FROM verdicts") == [['{"label": "a"}', "accepted"]]
    assert process.stop() == 0


def test_redelivery_is_exact_under_the_same_and_other_boundaries(open_ledger: Open) -> None:
    """O1: never counts twice although delivery is at least once."""
    process, calls = open_ledger(), many(700)
    for batch in (*cut(calls, 50), *cut(calls, 50), *cut(calls[13:], 37), *cut(calls[::-1], 101)):
        assert process.deliver(batch, partition=len(batch) % 2) == "flushed"
    # 700 calls, every seventh of them unknown
    assert sums(process) == (700, usd(known(calls)), 100)


def test_items_are_exact_under_redelivery(open_ledger: Open) -> None:
    """O1"""
    process = open_ledger()
    items = [events.settled(f"s{n}", n, totals=events.totals(attempts=1, cost_nano_usd=n)) for n in range(300)]
    for batch in (*cut(items, 70), *cut(items, 41)):
        assert process.deliver(batch) == "flushed"
    # 0 + 1 + … + 299 = 44,850 nano-USD
    assert process.rows("SELECT count(), sum(cost_usd) FROM items") == [[300, "0.00004485"]]


def test_a_killed_process_leaves_no_gap_and_no_double(open_ledger: Open) -> None:
    """O1, E12: kill -9 in the middle of inserts, then redelivery under other boundaries."""
    calls = many(1_200)
    for kill_after in (1, 9):
        process = open_ledger()
        for batch in cut(calls, 60):
            process.send(batch)
        acknowledged = sum(process._line() == "flushed" for _ in range(kill_after))
        process.kill()
        again = open_ledger()
        assert sums(again)[0] >= acknowledged * 60
        for batch in cut(calls, 83):
            assert again.deliver(batch) == "flushed"
        assert sums(again) == (1_200, usd(known(calls)), 172)  # ceil(1200 / 7) unknown
        again.kill()


def test_a_newer_generation_and_revision_replace_an_item(open_ledger: Open) -> None:
    """M2, O1"""
    process = open_ledger()
    parked = events.settled("a", 4, outcome=ItemOutcome.IN_REVIEW, verdict=None)
    decided = events.settled("a", 4, revision=2, outcome=ItemOutcome.REJECTED)
    rerun = events.settled("a", 4, generation=2, outcome=ItemOutcome.ACCEPTED, item_key=key_of("another prompt"))
    question = "SELECT outcome, generation, revision FROM items"
    assert process.deliver([parked]) == "flushed"
    assert process.deliver([decided]) == "flushed"
    assert process.deliver([parked]) == "flushed"
    assert process.rows(question) == [["rejected", 1, 2]]
    assert process.deliver([rerun]) == "flushed"
    assert process.deliver([decided]) == "flushed"
    assert process.rows(question) == [["accepted", 2, 1]]


def test_the_last_lease_report_of_a_minute_stays(open_ledger: Open) -> None:
    process = open_ledger()
    reports = [events.lease(seq, events.NOON_MS + seq * 20_000) for seq in range(1, 7)]
    for batch in ([reports[1]], reports, [reports[0]]):
        assert process.deliver(batch) == "flushed"
    # reports at 12:00:20, :40, 12:01:00, :20, :40, 12:02:00
    assert process.rows("SELECT seq, used_requests FROM lease_usage ORDER BY minute") == [[2, 2], [5, 5], [6, 6]]


# -- outages


def test_a_server_that_is_away_holds_the_rows_back(tmp_path: Path) -> None:
    """O1: nothing is lost, and the reader is told."""
    with kit.front(tmp_path / "engine") as url:
        port = int(url.rsplit(":", 1)[1])
    with kit.ledger(tmp_path / "home", "away", url) as process:
        assert process.deliver([events.judged("a")]).startswith("unavailable ClickHouse at")
        status, answer = process.post("/query", {"sql": "SELECT 1"})
        assert (status, answer["error"]["kind"]) == (503, "unavailable")
        assert f"127.0.0.1:{port}" in answer["error"]["message"]
        with kit.front(tmp_path / "engine", port):
            assert process.deliver([events.judged("b")]) == "flushed"
            assert process.rows("SELECT count(), sum(cost_usd) FROM attempts") == [[2, "0.000003"]]


def test_a_folder_in_use_ends_the_second_process_with_its_own_code(tmp_path: Path) -> None:
    with kit.ledger(tmp_path / "home", "locked", None) as first:
        with pytest.raises(ChildProcessError) as second:
            kit.LedgerProcess(tmp_path / "home", "locked", None)
        code, text = second.value.args
        assert code == EXIT_LOCKED
        assert f"pid {first.process.pid}" in text
    with kit.ledger(tmp_path / "home", "locked", None) as third:
        assert third.rows("SELECT 1 AS one") == [[1]]


def test_a_url_that_names_no_store_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ChildProcessError, match="NIGHTMILL_CLICKHOUSE: ClickHouse URL with scheme 'ftp': use chdb:"):
        kit.LedgerProcess(tmp_path / "home", "scheme", "ftp://127.0.0.1/x")


def test_a_migration_that_was_changed_is_refused(tmp_path: Path) -> None:
    with kit.front(tmp_path / "engine") as url:
        with kit.ledger(tmp_path / "home", "changed", url) as process:
            assert process.deliver([events.judged("a")]) == "flushed"
        forged = b"INSERT INTO migrations (name, digest) VALUES ('001_ledger.sql', 'another')"
        with urllib.request.urlopen(f"{url}/?database=changed", data=forged) as answer:
            assert answer.status == 200
        process = kit.LedgerProcess(tmp_path / "home", "changed", url)
        assert process.deliver([events.judged("b")]) == ""
        assert "001_ledger.sql was changed after it had been applied" in process.error()
        assert process.stop() == 1
