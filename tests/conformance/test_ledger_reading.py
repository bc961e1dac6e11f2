"""Those who read the ledger, over both forms of its store: the latest word on a call, no way out, limits explained."""

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from kit import clickhouse as kit
from kit import ledger_events as events
from kit.clickhouse import FORMS
from kit.messages import JOB


@pytest.fixture(scope="module", params=FORMS)
def reader(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[kit.LedgerProcess]:
    """One ledger with a little in it, for the tests that only read."""
    folder = tmp_path_factory.mktemp("reader")
    with ExitStack() as stack:
        url = stack.enter_context(kit.server(folder / "server")) if request.param == "server" else None
        process = stack.enter_context(kit.ledger(folder / "home", kit.namespace(), url))
        assert process.deliver([events.judged("a"), events.settled("a", 0), events.sealed()]) == "flushed"
        yield process


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


def test_a_wrong_named_query_is_explained(reader: kit.LedgerProcess) -> None:
    assert "there are job_totals" in reader.post("/named/nothing", {})[1]["error"]["message"]
    assert "job_id is missing" in reader.post("/named/job_totals", {"parameters": {}})[1]["error"]["message"]
    assert reader.post("/other", {})[0] == 404
