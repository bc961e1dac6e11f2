"""The ledger over both forms of its store: exact under redelivery and kills, and readable without a way out.

Every test talks to a ledger process through its endpoint. The server form runs on a server where one is configured or
a Docker engine answers, and else on the embedded engine behind the smallest HTTP face (kit/clickhouse_front.py).
"""

import random
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from decimal import Decimal
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from kit import clickhouse as kit
from kit import ledger_events as events
from kit.messages import BATCH, JOB, key_of
from nightmill.kernel.domain.failures import Billed, FailureClass
from nightmill.kernel.domain.lifecycle import BatchState, ItemOutcome, VerdictKind
from nightmill.kernel.wire.messages import AttemptJudged, Usage, Verdict
from nightmill.ledger.run import EXIT_LOCKED

FORMS = ["embedded", "server"]
Open = Callable[..., kit.LedgerProcess]


@pytest.fixture(params=FORMS)
def open_ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens a ledger process of the form under test; `name` chooses its home and database."""
    with ExitStack() as stack:
        url = stack.enter_context(kit.server(tmp_path / "server")) if request.param == "server" else None
        names: dict[str, str] = {}

        def open_(name: str = "one") -> kit.LedgerProcess:
            process = kit.LedgerProcess(tmp_path / name, names.setdefault(name, kit.namespace()), url)
            stack.callback(process.stop)
            return process

        yield open_


@pytest.fixture(scope="module", params=FORMS)
def reader(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[kit.LedgerProcess]:
    """One ledger with a little in it, for the tests that only read."""
    folder = tmp_path_factory.mktemp("reader")
    with ExitStack() as stack:
        url = stack.enter_context(kit.server(folder / "server")) if request.param == "server" else None
        process = stack.enter_context(kit.ledger(folder / "home", kit.namespace(), url))
        assert process.deliver([events.judged("a"), events.settled("a", 0), events.sealed()]) == "flushed"
        yield process


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


@pytest.mark.parametrize("order", list(permutations(["unknown", "answered", "late"])), ids="-".join)
def test_the_latest_word_on_a_call_wins_in_any_order(order: tuple[str, ...], reader: kit.LedgerProcess) -> None:
    """O1: an unknown cost is counted as unknown until the answer is known, and a late correction replaces it."""
    source = "-".join(order)
    words = {
        "unknown": events.unknown(source, job_id=JOB),
        "answered": events.judged(source, cost_nano_usd=2_000),
        "late": events.judged(source, cost_nano_usd=3_000, late=True),
    }
    question = "SELECT count(), countIf(cost_usd IS NULL), sum(cost_usd) FROM attempts WHERE source_id = {s:String}"
    best = 0
    for word in order:
        assert reader.deliver([words[word]]) == "flushed"
        best = max(best, ["unknown", "answered", "late"].index(word))
        expected = [[1, 1, None], [1, 0, "0.000002"], [1, 0, "0.000003"]][best]
        assert reader.rows(question, s=source) == [expected]


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


# -- reading

REFUSED = [
    ("INSERT INTO attempts (tenant) VALUES ('x')", "read-only"),
    ("DROP TABLE attempts", "read-only"),
    ("/* SELECT */ DROP TABLE attempts", "read-only"),
    ("TRUNCATE TABLE items", "read-only"),
    ("ALTER TABLE attempts DELETE WHERE 1", "read-only"),
    ("CREATE TABLE t (a Int8) ENGINE = Memory", "read-only"),
    ("CREATE TEMPORARY TABLE t (a Int8)", "read-only"),
    ("CREATE FUNCTION f AS x -> x", "read-only"),
    ("OPTIMIZE TABLE attempts FINAL", "read-only"),
    ("RENAME TABLE attempts TO old", "read-only"),
    ("SYSTEM FLUSH LOGS", "read-only"),
    ("KILL QUERY WHERE 1", "read-only"),
    ("GRANT SELECT ON *.* TO default", "read-only"),
    ("BACKUP TABLE attempts TO File('x')", "read-only"),
    ("SET readonly = 0", "read-only"),
    ("USE system", "read-only"),
    ("ATTACH DATABASE d ENGINE = Memory", "read-only"),
    ("EXECUTE AS default SELECT 1", "read-only"),
    ("SHOW DATABASES", "read-only"),
    ("SHOW GRANTS", "read-only"),
    ("SHOW CREATE TABLE system.users", "read-only"),
    ("EXPLAIN SELECT * FROM system.users", "read-only"),
    ("SELECT 1; DROP TABLE attempts", "Multi-statements"),
    ("SELECT 1; SELECT 2", "Multi-statements"),
    ("SELECT 1 INTO OUTFILE 'OUT'", "INTO OUTFILE"),
    ("SELECT 1 INTO OUTFILE 'OUT' TRUNCATE FORMAT CSV", "INTO OUTFILE"),
    ("SELECT 1 FORMAT JSON", "FORMAT"),
    ("SELECT 1 SETTINGS readonly = 0", "SETTINGS"),
    ("SELECT * FROM (SELECT 1 SETTINGS max_execution_time = 0)", "SETTINGS"),
    ("SELECT * FROM file('/etc/passwd', 'LineAsString')", "table function file"),
    ("SELECT * FROM FILE ('/etc/passwd')", "table function"),
    ("SELECT * FROM `file`('/etc/passwd')", "table function"),
    ("WITH t AS (SELECT * FROM file('/etc/passwd')) SELECT * FROM t", "table function file"),
    ("SELECT (SELECT any(line) FROM file('/etc/passwd', 'LineAsString'))", "table function file"),
    ("SELECT 1 UNION ALL SELECT 2 FROM file('/etc/passwd')", "table function file"),
    ("SELECT 1 FROM numbers(1) AS a JOIN file('/etc/passwd') AS b ON 1 = 1", "table function file"),
    ("SELECT * FROM url('http://127.0.0.1:1/x', 'LineAsString')", "table function url"),
    ("SELECT * FROM s3('http://127.0.0.1:1/x')", "table function s3"),
    ("SELECT * FROM remote('127.0.0.1', 'system', 'one')", "table function remote"),
    ("SELECT * FROM remoteSecure('127.0.0.1', 'system', 'one')", "table function remoteSecure"),
    ("SELECT * FROM cluster('default', 'system', 'one')", "table function cluster"),
    ("SELECT * FROM executable('x.sh', 'TSV', 'a String')", "table function executable"),
    ("SELECT * FROM input('a String')", "table function input"),
    ("SELECT * FROM mysql('127.0.0.1:1', 'd', 't', 'u', 'p')", "table function mysql"),
    ("SELECT * FROM sqlite('/etc/x.db', 't')", "table function sqlite"),
    ("SELECT * FROM merge('system', '.*')", "table function merge"),
    ("SELECT * FROM loop(system.one)", "table function loop"),
    ("SELECT * FROM mergeTreeIndex('nightmill', 'attempts')", "table function mergeTreeIndex"),
    ("SELECT * FROM (EXPLAIN AST SELECT 1)", "table function viewExplain"),
    ("DESCRIBE TABLE file('/etc/passwd')", "table function file"),
    ("SELECT file('/etc/passwd')", "function file"),
    ("SELECT FiLe('/etc/passwd')", "function"),
    ("SELECT length(concat('', file('/etc/passwd')))", "function file"),
    ("SELECT arrayMap(x -> file(x), ['/etc/passwd'])", "function file"),
    ("SELECT * APPLY(file) FROM (SELECT '/etc/passwd' AS p)", "APPLY"),
    ("SELECT * REPLACE (file('/etc/passwd') AS p) FROM (SELECT '' AS p)", "function file"),
    ("SELECT count() FROM attempts WHERE file('/etc/passwd') LIKE '%root%'", "function file"),
    ("SELECT 1 ORDER BY file('/etc/passwd')", "function file"),
    ("SELECT 1 LIMIT (SELECT length(file('/etc/passwd')))", "function file"),
    ("SELECT dictGet('d', 'a', 1)", "function dictGet"),
    ("SELECT joinGet('system.x', 'a', 1)", "function joinGet"),
    ("SELECT catboostEvaluate('/etc/passwd', 1)", "function catboostEvaluate"),
    ("SELECT aiGenerate('x', 'y')", "function aiGenerate"),
    ("SELECT sleep(3)", "function sleep"),
    ("SELECT hostName()", "function hostName"),
    ("SELECT getServerSetting('max_connections')", "function getServerSetting"),
    ("SELECT * FROM system.users", "system.users is not the ledger's"),
    ("SELECT * FROM `system`.`query_log`", "not the ledger's"),
    ("SELECT * FROM /**/ system /**/ . /**/ tables", "not the ledger's"),
    ("SELECT * FROM information_schema.tables", "not the ledger's"),
    ("SELECT * FROM INFORMATION_SCHEMA.TABLES", "not the ledger's"),
    ('SELECT * FROM default."/etc/passwd"', "not the ledger's"),
    ("SELECT * FROM another_database.attempts", "not the ledger's"),
    ("SELECT count() FROM attempts WHERE tenant IN system.one", "not the ledger's"),
    ("SELECT count() FROM attempts WHERE tenant GLOBAL NOT IN another.secrets", "not the ledger's"),
    ("SELECT * FROM view(SELECT * FROM system.users)", "not the ledger's"),
    ("DESCRIBE TABLE system.users", "not the ledger's"),
    ("SELECT 1 AS `x\\n    TableIdentifier nightmill.y`", "escape or a line break"),
    ("SELECT * FROM {t:Identifier}", "type Identifier"),
    ("SELECT (", "Syntax error"),
    ("SELEC 1", "Syntax error: failed at position 7 (1): 1"),
    ("", "Empty query"),
]


@pytest.mark.parametrize(("sql", "reason"), REFUSED, ids=[sql for sql, _ in REFUSED])
def test_a_reader_has_no_way_out(sql: str, reason: str, reader: kit.LedgerProcess, tmp_path: Path) -> None:
    """DESIGN 10: read-only SQL is refused writes, files, addresses, other databases and system tables."""
    out = tmp_path / "out"
    body = {"sql": sql.replace("OUT'", f"{out}'"), "parameters": {"t": "system.users"} if "{t:" in sql else {}}
    status, answer = reader.post("/query", body)
    assert status in (400, 403)
    assert reason in answer["error"]["message"]
    assert not out.exists()
    assert reader.rows("SELECT count() FROM batches") == [[1]]


ANSWERED = [
    ("SELECT count() FROM batches", [[1]]),
    ("select planned from batches -- a comment\n;", [[10]]),
    ("WITH b AS (SELECT * FROM batches) SELECT b.planned FROM b", [[10]]),
    ("SELECT planned FROM batches WHERE batch_id IN (SELECT batch_id FROM items)", [[10]]),
    ("SELECT i.ordinal FROM items AS i JOIN batches AS b ON b.batch_id = i.batch_id", [[0]]),
    ("SELECT ';' AS a, 'it''s' AS b, 'FROM system.users' AS c", [[";", "it's", "FROM system.users"]]),
    ("SELECT sum(number) FROM numbers(5)", [[10]]),
    ("SELECT toDecimal64('0.1', 9) AS a, NULL AS b, [1, 2] AS c, 18446744073709551615 AS d", None),
    ("SELECT replaceRegexpOne('file', 'f', 'm') AS a", [["mile"]]),
    ("SELECT name FROM (SELECT 'x' AS name) WHERE name IN ('x', 'y')", [["x"]]),
]


@pytest.mark.parametrize(("sql", "rows"), ANSWERED, ids=[sql for sql, _ in ANSWERED])
def test_ordinary_questions_are_answered(sql: str, rows: Any, reader: kit.LedgerProcess) -> None:
    assert reader.rows(sql) == ([["0.1", None, [1, 2], 18446744073709551615]] if rows is None else rows)


def test_tables_and_columns_can_be_looked_up(reader: kit.LedgerProcess) -> None:
    assert ["attempts"] in reader.rows("SHOW TABLES")
    assert ["cost_usd", "Nullable(Decimal(18, 9))"] in [row[:2] for row in reader.rows("DESCRIBE TABLE attempts")]


def test_parameters_are_values_and_never_sql(reader: kit.LedgerProcess) -> None:
    nasty = "it's '); DROP TABLE attempts; -- \\ `x`\n\t{a:String}"
    question = "SELECT {text:String} AS text, {list:Array(String)} AS list, {n:UInt8} AS n"
    assert reader.rows(question, text=nasty, list=[nasty], n=3) == [[nasty, [nasty], 3]]


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({"sql": "SELECT sum(sipHash64(number)) FROM numbers(100000000000)", "max_seconds": 1}, 400, "longer than 1 s"),
        ({"sql": "SELECT groupArray(number) FROM numbers(1000000000)"}, 400, "MiB of memory"),
        ({"sql": "SELECT repeat('x', 1000000) AS a FROM numbers(100)"}, 400, "larger than 32 MiB"),
        ({"sql": "SELECT 1", "max_rows": 0}, 400, "max_rows = 0"),
        ({"sql": "SELECT 1", "max_rows": 10**9}, 400, "give 1 to 100000"),
        ({"sql": "SELECT 1", "max_seconds": 3_600}, 400, "give 1 to 60"),
        ({"sql": "SELECT 1", "max_seconds": True}, 400, "max_seconds: give a value of type int"),
        ({"sql": ["SELECT 1"]}, 400, "sql: give a value of type str"),
        ({"parameters": {}}, 400, "sql: give"),
        ({"sql": "SELECT {a:String}"}, 400, "parameter a is missing"),
        ({"sql": "SELECT 1", "parameters": {"b": 1}}, 400, "parameter b is not in the query"),
        ({"sql": "SELECT 1 -- " + "x" * 70_000}, 400, "longer than 65536 bytes"),
        ({"sql": "SELECT nothing FROM attempts"}, 400, "nothing"),
        ({"sql": "SELECT * FROM attempt"}, 400, "attempt"),
        (b"{", 400, "not JSON"),
        (b"[]", 400, "not a JSON object"),
        (b" " * 600_000, 413, "at most 524288 bytes"),
    ],
)
def test_limits_and_mistakes_are_explained(body: Any, status: int, reason: str, reader: kit.LedgerProcess) -> None:
    answered, answer = reader.post("/query", body)
    assert answered == status, answer
    assert reason in answer["error"]["message"]


def test_more_rows_than_asked_for_are_cut_and_said_so(reader: kit.LedgerProcess) -> None:
    _, cut_ = reader.post("/query", {"sql": "SELECT number FROM numbers(1000000)", "max_rows": 7})
    assert (len(cut_["rows"]), cut_["truncated"]) == (7, True)
    _, whole = reader.post("/query", {"sql": "SELECT number FROM numbers(7)", "max_rows": 7})
    assert (len(whole["rows"]), whole["truncated"], whole["types"]) == (7, False, ["UInt64"])


def test_the_endpoint_wants_the_installations_token(reader: kit.LedgerProcess) -> None:
    status, answer = reader.post("/query", {"sql": "SELECT 1"}, token="another")
    assert (status, answer["error"]["kind"]) == (401, "unauthorised")
    token = reader.home / "token"
    token.unlink()
    status, answer = reader.post("/query", {"sql": "SELECT 1"})
    token.write_text("test-token", encoding="utf-8")
    assert (status, answer["error"]["kind"]) == (503, "unavailable")
    with urllib.request.urlopen(f"http://127.0.0.1:{reader.port}/health") as health:
        assert health.status == 200


def test_many_readers_at_once_are_answered_or_told_to_wait(reader: kit.LedgerProcess) -> None:
    def ask(number: int) -> tuple[int, Any]:
        return reader.post("/query", {"sql": f"SELECT sum(number) + {number} AS n FROM numbers(30000000)"})

    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(ask, range(24)))
    right = [answer["rows"][0][0] == 449999985000000 + n for n, (status, answer) in enumerate(answers) if status == 200]
    assert right
    assert all(right)
    assert {answer["error"]["kind"] for status, answer in answers if status != 200} <= {"busy"}


def test_the_engine_refuses_what_the_guard_would_have_missed(tmp_path: Path) -> None:
    """The second barriers of the embedded engine: readonly mode, its classes of statements, and its grants."""
    script = f"""
import sys
from nightmill.kernel.store.clickhouse import QueryFailed, open_clickhouse
store = open_clickhouse("chdb://{tmp_path}/engine", "nightmill")
for sql in sys.argv[1:]:
    try:
        store.read(sql, parameters={{}}, settings={{"readonly": 1}})
        print("answered", sql)
    except QueryFailed as error:
        print("refused", error)
store.close()
"""
    tries = [
        "SELECT * FROM file('/etc/passwd', 'LineAsString')",
        "SELECT * FROM url('http://127.0.0.1:1/x', 'LineAsString')",
        "SELECT * FROM remote('127.0.0.1', 'system', 'one')",
        'SELECT * FROM default."/etc/passwd"',
        f"SELECT 1 INTO OUTFILE '{tmp_path}/out'",
        "INSERT INTO attempts (tenant) VALUES ('x')",
        "SET readonly = 0",
        "SELECT 1; SELECT 2",
        "SELECT 1 SETTINGS max_execution_time = 9",
        "SELECT * FROM system.users",
    ]
    done = subprocess.run([sys.executable, "-c", script, *tries], capture_output=True, text=True, check=True)
    assert [line for line in done.stdout.splitlines() if not line.startswith("refused ")] == []
    assert len(done.stdout.splitlines()) == len(tries)
    assert not (tmp_path / "out").exists()


# -- the product's questions


WRITTEN = Usage(input_tokens=100, cached_tokens=0, output_tokens=7, cache_write_tokens=30, cache_write_1h_tokens=40)


def test_what_a_job_cost_and_why(open_ledger: Open) -> None:
    """O1, O2: cost by stage, model and cause, with unknown costs counted beside the sum."""
    process = open_ledger()
    bad = Verdict(kind=VerdictKind.REPAIRABLE, rule="schema", field="label", value="z")
    calls = [
        events.judged("a", cost_nano_usd=1_000, usage=WRITTEN),  # first, accepted
        events.judged("b", cost_nano_usd=1_000, verdict=bad),  # first, repaired by:
        events.judged("b", 2, cost_nano_usd=4_000, is_repair=True),
        events.failed("c", 1, "rate_limit"),  # first, free
        events.judged("c", 2, cost_nano_usd=1_000, model="large"),  # retry
        events.unknown("d"),  # first, nobody knows
        events.judged("d", 2, cost_nano_usd=1_000),  # retry
        events.judged("z", job_id="acme.other.20261129-120000-bbbb"),  # somebody else's
    ]
    assert process.deliver([*calls, events.sealed(), events.completed()]) == "flushed"
    assert process.deliver(calls[::-1]) == "flushed"

    def view(query: str, *columns: str) -> list[tuple[Any, ...]]:
        return [tuple(row[column] for column in columns) for row in process.named(query, job_id=JOB)]

    assert view("job_cost_by_stage", "stage", "calls", "cost_usd", "unknown_calls") == [
        ("first", 4, "0.000002", 1),
        ("retry", 2, "0.000002", 0),
        ("repair", 1, "0.000004", 0),
    ]
    assert view("job_cost_by_stage", "input_tokens", "cached_tokens", "written_tokens", "output_tokens") == [
        (200, 20, 70, 14),
        (200, 40, 0, 14),
        (100, 20, 0, 7),
    ]
    assert view("job_cost_by_model", "model", "calls", "accepted", "cost_usd", "unknown_calls", "reserved_usd") == [
        ("tiny", 6, 3, "0.000007", 1, "0.000009"),
        ("large", 1, 1, "0.000001", 0, "0"),
    ]
    assert view("job_cost_by_cause", "cause", "detail", "calls", "cost_usd") == [
        ("accepted", "", 4, "0.000007"),
        ("repairable", "schema", 1, "0.000001"),
        ("capacity", "rate_limit", 1, "0"),
        ("transient", "lost", 1, None),
    ]
    assert view("job_totals", "batch_id", "planned", "state", "calls", "cost_usd", "unknown_calls", "accepted") == [
        (BATCH, 10, "published", 7, "0.000008", 1, 10)
    ]


def test_a_held_job_is_told_as_what_became_of_it(open_ledger: Open) -> None:
    process = open_ledger()
    held = events.completed(state=BatchState.HELD, reason="completion gate", version=None, location=None, gold=None)
    question = "SELECT state, reason, version, gold_right FROM jobs"
    assert process.deliver([held]) == "flushed"
    assert process.rows(question) == [["held", "completion gate", None, None]]
    assert process.deliver([events.completed(completed_at_ms=held.completed_at_ms - 1)]) == "flushed"
    assert process.deliver([held]) == "flushed"
    assert process.rows(question) == [["published", "", 3, 4]]


def test_an_item_is_explained_by_source_id_and_by_key(open_ledger: Open) -> None:
    """O1: every call of an item, with its cause and its raw answer."""
    process = open_ledger()
    rule = Verdict(kind=VerdictKind.REPAIRABLE, rule="enum", field="label", value="z")
    cut_ = events.failure(FailureClass.OUTPUT_INVALID, "finish_length", Billed.YES)
    calls = [
        events.judged("doc 1", 1, verdict=rule, output='{"label": "z"}'),
        events.judged("doc 1", 2, is_repair=True, verdict=None, failure=cut_, output='{"lab'),
        events.judged("doc 1", 3, is_repair=True),
        events.judged("doc 2", 1),
    ]
    assert process.deliver([*calls, events.settled("doc 1", 0)]) == "flushed"
    for id_ in ("doc 1", key_of("doc 1")):
        told = process.named("item_attempts", id=id_, tenant="acme")
        assert [(row["attempt_id"], row["rule"], row["failure_signal"], row["output"]) for row in told] == [
            (f"{key_of('doc 1')}-1", "enum", "", '{"label": "z"}'),
            (f"{key_of('doc 1')}-2", "", "finish_length", '{"lab'),
            (f"{key_of('doc 1')}-3", "", "", '{"label": "a"}'),
        ]
        assert [row["outcome"] for row in process.named("item_history", id=id_, tenant="")] == ["accepted"]
    assert process.named("item_attempts", id="doc 1", tenant="somebody-else") == []


def test_a_wrong_named_query_is_explained(reader: kit.LedgerProcess) -> None:
    assert "there are job_totals" in reader.post("/named/nothing", {})[1]["error"]["message"]
    assert "job_id is missing" in reader.post("/named/job_totals", {"parameters": {}})[1]["error"]["message"]
    assert reader.post("/other", {})[0] == 404
