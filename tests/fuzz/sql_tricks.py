"""What people ask of a read-only endpoint who want more, and a grammar that nests and disguises it.

FILE, OUT and ADDRESS stand for a file beside the ledger, one that could be written there, and a listener on loopback.
"""

from hypothesis import strategies as st

#: sources that read something outside the ledger
SOURCES = [
    "file('FILE', 'LineAsString')",
    "file('FILE', CSV, 'a String')",
    "fileCluster('default', 'FILE', 'LineAsString')",
    "url('http://ADDRESS/x', 'LineAsString')",
    "urlCluster('default', 'http://ADDRESS/x', 'LineAsString')",
    "url('file://FILE', 'LineAsString')",
    "s3('http://ADDRESS/b/x', 'LineAsString')",
    "gcs('http://ADDRESS/b/x', 'LineAsString')",
    "hdfs('hdfs://ADDRESS/x', 'LineAsString')",
    "azureBlobStorage('http://ADDRESS/x', 'c', 'b', 'LineAsString')",
    "iceberg('http://ADDRESS/x')",
    "icebergLocal('FILE')",
    "deltaLake('http://ADDRESS/x')",
    "deltaLakeLocal('FILE')",
    "hudi('http://ADDRESS/x')",
    "remote('ADDRESS', 'system', 'one')",
    "remoteSecure('ADDRESS', 'system', 'one')",
    "cluster('default', 'system', 'one')",
    "clusterAllReplicas('default', 'system', 'one')",
    "mysql('ADDRESS', 'd', 't', 'u', 'p')",
    "postgresql('ADDRESS', 'd', 't', 'u', 'p')",
    "mongodb('ADDRESS', 'd', 't', 'u', 'p', 'a String')",
    "redis('ADDRESS', 'k', 'k String, v String')",
    "odbc('DSN=x', 'd', 't')",
    "jdbc('x', 'd', 't')",
    "sqlite('FILE', 't')",
    "executable('cat', 'TSV', 'a String')",
    "dictionary('d')",
    "merge('system', '.*')",
    "merge('.*', 'one')",
    "input('a String')",
    "loop(system.one)",
    "mergeTreeIndex('system', 'x')",
    "mergeTreeProjection('nightmill', 'attempts', 'x')",
    "fuzzQuery('SELECT 1')",
    "generateRandom('a String')",
    "null('a String')",
    "format(CSV, 'a')",
    "timeSeriesData('system', 'x')",
    "view(SELECT * FROM system.users)",
    "viewIfPermitted(SELECT 1 AS a ELSE null('a UInt8'))",
    "system.one",
    "system.processes",
    "system.settings",
    "system.`query_log`",
    "information_schema.columns",
    "INFORMATION_SCHEMA.SCHEMATA",
    'default."FILE"',
    "`default`.`FILE`",
    "_temporary_and_external_tables.`x`",
]
#: what stands around a source so that it looks like something else
FRAMES = [
    "SELECT * FROM {}",
    "SELECT count() FROM {} LIMIT 1",
    "WITH t AS (SELECT * FROM {}) SELECT * FROM t",
    "WITH RECURSIVE t AS (SELECT * FROM {}) SELECT * FROM t",
    "SELECT (SELECT * FROM {} LIMIT 1)",
    "SELECT 1 WHERE 1 IN (SELECT * FROM {})",
    "SELECT 1 UNION ALL SELECT * FROM {}",
    "SELECT 1 EXCEPT SELECT * FROM {}",
    "SELECT * FROM batches AS a, {} AS b",
    "SELECT * FROM batches AS a LEFT JOIN {} AS b ON 1",
    "SELECT * FROM (SELECT * FROM (SELECT * FROM {}))",
    "SELECT * FROM view(SELECT * FROM {})",
    "SELECT exists((SELECT 1 FROM {}))",
    "SELECT 1 ORDER BY (SELECT 1 FROM {} LIMIT 1)",
    "SELECT 1 LIMIT (SELECT 1 FROM {} LIMIT 1)",
    "SELECT arrayMap(x -> (SELECT any(x) FROM {}), [1])",
    "SELECT sum(1) OVER (PARTITION BY (SELECT 1 FROM {} LIMIT 1))",
    "DESCRIBE TABLE {}",
    "DESC (SELECT * FROM {})",
    "EXPLAIN SELECT * FROM {}",
    "FROM {} SELECT *",
    "TABLE {}",
    "SELECT * FROM {} FORMAT Null",
]


#: statements and tricks, each of which must be refused or change nothing
ATTACKS = [
    "SELECT 1 INTO OUTFILE 'OUT'",
    "SELECT 1 INTO OUTFILE 'OUT' APPEND COMPRESSION 'gzip'",
    "SELECT 1 INTO DUMPFILE 'OUT'",
    "(SELECT 1) INTO OUTFILE 'OUT'",
    "SELECT 1 FORMAT CSV INTO OUTFILE 'OUT'",
    "INSERT INTO FUNCTION file('OUT', 'CSV', 'a UInt8') SELECT 1",
    "INSERT INTO TABLE FUNCTION url('http://ADDRESS/x', 'CSV', 'a UInt8') SELECT 1",
    "INSERT INTO batches SELECT * FROM batches",
    "INSERT INTO batches FORMAT Values (1)",
    "INSERT INTO batches FROM INFILE 'FILE' FORMAT CSV",
    "ALTER TABLE batches UPDATE planned = 0 WHERE 1",
    "ALTER TABLE batches MODIFY SETTING max_part_loading_threads = 1",
    "UPDATE batches SET planned = 0 WHERE 1",
    "DELETE FROM batches WHERE 1",
    "DROP DATABASE nightmill",
    "DROP TABLE batches SYNC",
    "UNDROP TABLE batches",
    "DETACH TABLE batches PERMANENTLY",
    "ATTACH TABLE x FROM 'FILE' (a String) ENGINE = File(CSV)",
    "CREATE TABLE x ENGINE = File(CSV, 'FILE') AS SELECT 1",
    "CREATE TABLE x (a String) ENGINE = URL('http://ADDRESS/x')",
    "CREATE VIEW x AS SELECT * FROM system.users",
    "CREATE MATERIALIZED VIEW x ENGINE = Memory AS SELECT 1",
    "CREATE DICTIONARY d (a String) PRIMARY KEY a SOURCE(FILE(path 'FILE' format 'CSV')) LAYOUT(FLAT()) LIFETIME(1)",
    "CREATE NAMED COLLECTION c AS url = 'http://ADDRESS/'",
    "CREATE USER u",
    "CREATE FUNCTION file2 AS x -> file(x)",
    "CREATE TEMPORARY TABLE x AS SELECT 1",
    "EXCHANGE TABLES batches AND items",
    "OPTIMIZE TABLE batches FINAL",
    "CHECK TABLE batches",
    "SYSTEM SHUTDOWN",
    "SYSTEM STOP MERGES",
    "SYSTEM RELOAD CONFIG",
    "SYSTEM START LISTEN HTTP",
    "SET readonly = 0",
    "SET max_execution_time = 0, readonly = 2",
    "SET PROFILE default",
    "USE system",
    "SHOW PROCESSLIST",
    "SHOW CREATE TABLE batches",
    "SHOW TABLES FROM system",
    "SHOW TABLES FORMAT JSON",
    "SHOW COLUMNS FROM users FROM system",
    "SHOW ACCESS",
    "SHOW SETTINGS LIKE '%'",
    "EXISTS TABLE system.users",
    "KILL QUERY WHERE 1",
    "BACKUP TABLE batches TO Disk('default', 'x')",
    "RESTORE TABLE batches FROM Disk('default', 'x')",
    "EXPLAIN ESTIMATE SELECT * FROM system.users",
    "EXPLAIN TABLE OVERRIDE mysql('ADDRESS', 'd', 't', 'u', 'p')",
    "SELECT * FROM (EXPLAIN SELECT * FROM system.users)",
    "BEGIN TRANSACTION",
    "PREPARE x",
    "EXECUTE AS default SELECT 1",
    "PARALLEL WITH SELECT 1",
    "GRANT ALL ON *.* TO default",
    "SELECT 1; SELECT 2",
    "SELECT 1;;; DROP TABLE batches",
    "SELECT 1 --\n; DROP TABLE batches",
    "SELECT 1 # x\n; DROP TABLE batches",
    "SELECT 1 /* ; */ ; /* */ DROP TABLE batches",
    "/*/* nested */ SELECT 1 */ DROP TABLE batches",
    "SELECT '\\'; DROP TABLE batches; --'",
    "SELECT $$x$$; DROP TABLE batches",
    "SELECT $a$ ' $a$, file('FILE')",
    "SELECT fi\u200ble('FILE')",
    "SELECT \uff46\uff49\uff4c\uff45('FILE')",
    "SELECT `fi\\x6ce`('FILE')",
    "SELECT \"file\"('FILE')",
    "SELECT file(concat('FI', 'LE'))",
    "SELECT file('FILE') AS x, x",
    "SELECT if(0, file('FILE'), '')",
    "SELECT file('FILE', 'default')",
    "SELECT arrayMap(file, ['FILE'])",
    "SELECT arrayFold((a, x) -> file(x), ['FILE'], '')",
    "SELECT arrayFilter(`file`, ['FILE'])",
    "SELECT arrayMap(dictGet, ['d'], ['a'], [1])",
    "SELECT arrayMap(hostName, [1]), arrayMap(sleep, [1])",
    "SELECT apply(file, 'FILE')",
    "SELECT COLUMNS('.*') APPLY(x -> file(x)) FROM (SELECT 'FILE' AS p)",
    "SELECT * REPLACE(file('FILE') AS p) FROM (SELECT '' AS p)",
    "SELECT 'FILE' AS p GROUP BY p HAVING file(p) != ''",
    "SELECT quantile(0.5)(length(file('FILE')))",
    "SELECT * FROM batches WHERE batch_id IN file('FILE')",
    "SELECT * FROM batches WHERE batch_id IN system.one",
    "SELECT * FROM batches WHERE batch_id IN (default.`FILE`)",
    "SELECT dictGetOrDefault('d', 'a', 1, 2), dictHas('d', 1), dictIsIn('d', 1, 2)",
    "SELECT joinGetOrNull('system.x', 'a', 1)",
    "SELECT hasColumnInTable('system', 'users', 'name')",
    "SELECT getSetting('readonly'), getSettingOrDefault('x', 1)",
    "SELECT getServerSetting('max_connections'), getMacro('x'), getOSKernelVersion(), version()",
    "SELECT currentUser(), currentDatabase(), currentProfiles(), currentRoles(), connectionId(), queryID()",
    "SELECT sleepEachRow(1) FROM numbers(100)",
    "SELECT fuzzBits('x', 0.5), throwIf(1, 'x')",
    "SELECT addressToLine(1), demangle('x'), trap('access violation')",
    "SELECT evalMLMethod(1), naiveBayesClassifier('x', 'y')",
    "SELECT filesystemCapacity(), filesystemAvailable()",
    "SELECT loadNamedCollection('x'), getMergeTreeSetting('x')",
    "SELECT initializeAggregation('file', 'FILE')",
    "SELECT JSONExtractString(file('FILE'), 'x')",
    "SELECT 1 SETTINGS readonly = 0",
    "SELECT * FROM (SELECT 1 SETTINGS max_memory_usage = 0)",
    "SELECT 1 UNION ALL SELECT 2 SETTINGS max_execution_time = 0",
    "SELECT 1 FORMAT JSON SETTINGS x = 1",
    "SELECT 1 FORMAT PrettyCompact",
    "SELECT 1 FORMAT Template SETTINGS format_template_row = 'FILE'",
    "SELECT {x:String}",
    "SELECT * FROM {x:Identifier}",
    "SELECT {x : Identifier}",
    "SELECT * FROM @@version",
    "SELECT ?",
    "SELECT 1 WITH TOTALS",
    "SELECT 1 LIMIT -1",
    "SELECT 1 LIMIT 18446744073709551615",
    "SELECT",
    ";",
    "\0",
    "SELECT '\0'",
    "SELECT 1 -- " + "x" * 60_000,
    "SELECT " + "(" * 5_000 + "1" + ")" * 5_000,
    "SELECT " + "-" * 20_001 + "1",
    "SELECT " + "[" * 2_000 + "]" * 2_000,
    "SELECT " + "NOT " * 10_000 + "1",
    "SELECT " + "1 + " * 15_000 + "1",
    "SELECT * FROM " + "(SELECT * FROM " * 2_000 + "batches" + ")" * 2_000,
    "WITH "
    + ", ".join(f"a{n} AS (SELECT * FROM a{n - 1}, a{n - 1} AS b)" for n in range(1, 30))
    + " SELECT 1 FROM a29",
    "WITH a0 AS (SELECT 1 AS x FROM batches), "
    + ", ".join(f"a{n} AS (SELECT 1 AS x FROM a{n - 1} AS p, a{n - 1} AS q)" for n in range(1, 40))
    + " SELECT 1 FROM a39",
    "WITH rand() AS a0, " + ", ".join(f"a{n - 1} + a{n - 1} AS a{n}" for n in range(1, 40)) + " SELECT a39",
    "SELECT * FROM batches" + ", batches" * 2_000,
]


#: queries that would take everything; each must end at a limit, or with few rows
GREEDY = [
    "SELECT sum(number) FROM numbers(1000000000000)",
    "SELECT count() FROM numbers(100000000) AS a, numbers(100000000) AS b",
    "SELECT number FROM numbers(1000000000000) ORDER BY number DESC",
    "SELECT uniqExact(number) FROM numbers(10000000000)",
    "SELECT groupArray(number) FROM numbers(1000000000)",
    "SELECT number, count() FROM numbers(1000000000) GROUP BY number",
    "SELECT repeat(repeat('x', 1000000), 1000000)",
    "SELECT repeat('x', 1000000) FROM numbers(100)",
    "SELECT range(1000000000)",
    "SELECT arrayMap(x -> arrayMap(y -> range(1000000), range(1000)), range(1000))",
    "SELECT arrayJoin(range(100000)), arrayJoin(range(100000)), arrayJoin(range(1000))",
    "SELECT space(100000000000), leftPad('x', 1000000000), toFixedString('x', 16000000)",
    "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT max(n) FROM t",
    "SELECT match(repeat('a', 100000), '(a*)*(a*)*(a*)*b') FROM numbers(100000)",
    "SELECT * FROM zeros(1000000000000)",
    "SELECT * FROM generate_series(0, 1000000000000)",
    "SELECT bitShiftLeft(toUInt256(1), 255) FROM numbers(100000) LIMIT 100000",
    "SELECT sum(a.number + b.number) FROM numbers(1000000) AS a JOIN numbers(1000000) AS b ON a.number < b.number",
]


@st.composite
def disguised(draw: st.DrawFn, sql: str) -> str:
    """The same query to the engine, or nearly: other case, white space, comments and quotes."""
    spaces = st.sampled_from([" ", "\t", "\n", "\u00a0", "/**/", "/* ' */", "-- ;\n", " # x\n", "\f", "\r\n", "\u2028"])
    return "".join(_other(draw, word) + draw(spaces) for word in sql.split(" "))


def _other(draw: st.DrawFn, word: str) -> str:
    match draw(st.integers(0, 7)):
        case 0:
            return word.swapcase()
        case 1 if word.isidentifier() and word.islower():
            return draw(st.sampled_from(["`{}`", '"{}"', "(({}))", "{}.{}", "{}\\"])).format(word, word)
        case 2 if word:
            at = draw(st.integers(0, len(word)))
            piece = draw(st.sampled_from(["/**/", "\0", "\\", "'", '"', "`", ";", "\u200b", "{", "$$"]))
            return word[:at] + piece + word[at:]
    return word


@st.composite
def tricks(draw: st.DrawFn) -> str:
    """Sources in frames in frames, disguised; or two tricks behind each other."""
    sql = draw(st.sampled_from(SOURCES))
    for _ in range(draw(st.integers(1, 2))):
        sql = draw(st.sampled_from(FRAMES)).format(sql if sql in SOURCES else f"({sql})")
    if draw(st.booleans()):
        sql = f"{sql} {draw(st.sampled_from(ATTACKS[:30]))}"
    return draw(disguised(sql))
