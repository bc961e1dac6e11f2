"""Which queries a reader may send: decided on ClickHouse's own syntax tree, not on the text (O1).

A query reads the ledger's own tables and nothing else: no file, address, other database or system table. The tree comes
from `EXPLAIN AST` of the query in its canonical form (`formatQuery`: one statement, no comments), so quoting, comments
and letter case hide nothing. The engine's readonly mode and, embedded, its grants stand behind this as second barriers.

One line of the tree is a node: its depth in spaces, its kind, its name, then `(alias …)` and `(children …)`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

#: table functions that read nothing outside the query
_TABLE_FUNCTIONS = frozenset({"numbers", "numbers_mt", "zeros", "generate_series", "generateseries", "values", "view"})

#: functions that read files, settings or other tables, describe the machine, or only burn time
_FUNCTIONS = frozenset(
    {
        *("file", "joinget", "joingetornull", "hascolumnintable", "catboostevaluate", "evalmlmethod"),
        *("naivebayesclassifier", "naivebayesclassifierwithprob", "naivebayesclassifierwithallprobs"),
        *("getmacro", "getserversetting", "getserverport", "getmergetreesetting", "getclienthttpheader"),
        *("getmaxtablenamelengthfordatabase", "mergetreepartinfo", "ismergetreepartcoveredby", "currentrequesturl"),
        *("hostname", "fullhostname", "fqdn", "displayname", "serveruuid", "buildid", "tcpport", "uptime"),
        *("getoskernelversion", "showcertificate", "zookeepersessionuptime", "demangle", "tid", "logtrace"),
        *("sleep", "sleepeachrow"),
    }
)
#: first letters of families: dictionaries, disks, debug symbols, calls to models
_FUNCTION_FAMILIES = ("dict", "filesystem", "addressto", "ai")
_FOREIGN = frozenset({"system", "information_schema", "default", "_temporary_and_external_tables"})
_IN = frozenset({"in", "notin", "globalin", "globalnotin", "nullin", "notnullin", "globalnullin", "globalnotnullin"})

#: tables of one query, as it stands and with common tables written out: the planning of many heeds no time limit
_MAX_TABLES = 64
_MAX_WRITTEN_OUT = 512

_FUNCTION_NAME = re.compile(r"(?:dict|filesystem|addressTo|ai)[A-Z]")
_NODE = re.compile(r"^( *)([\w:]+)(?: (.*))?$")
_SUFFIX = re.compile(r"(?: \(alias .*?\))?(?: \(children \d+\))?$")
_OURS = "INTO OUTFILE, FORMAT and SETTINGS are not a reader's: the endpoint sets them"
_ESCAPED_NAME = re.compile(r"`[^`]*\\[^`]*`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One line of the tree."""

    depth: int
    kind: str
    name: str


def text_refusal(canonical: str) -> str | None:
    """Why the canonical text must not even be turned into a tree; None when it may."""
    if _ESCAPED_NAME.search(canonical):
        return "a quoted name holds an escape or a line break; the ledger has no such name"
    if re.search(r":\s*Identifier\s*\}", canonical):
        return "a parameter of type Identifier would choose the table or column; write its name into the query"
    if canonical.startswith(("SELECT", "WITH")) and re.search(r"\bFORMAT \w+$", canonical):
        return _OURS  # it would be taken for the format of the tree
    return None


def parse(tree: Sequence[str]) -> list[Node]:
    """Nodes of a tree. A line that is no node becomes one of kind `?`."""
    nodes = []
    for line in tree:
        found = _NODE.match(line)
        if found is None:
            nodes.append(Node(depth=0, kind="?", name=line))
            continue
        spaces, kind, rest = found.groups()
        nodes.append(Node(depth=len(spaces), kind=kind, name=_SUFFIX.sub("", f" {rest or ''}").strip()))
    return nodes


def tree_refusal(nodes: Sequence[Node], canonical: str, database: str) -> str | None:
    """Why a reader may not run this query; None when it may."""
    match nodes[0].kind if nodes else "?":
        case "SelectWithUnionQuery":
            if any(node.depth == 1 for node in nodes[2:]):
                return _OURS
        case "DescribeQuery":
            pass
        case "ShowTables" if canonical == "SHOW TABLES":
            return None
        case _:
            return "only SELECT, DESCRIBE TABLE and SHOW TABLES are answered: the ledger is read-only"
    if sum(node.kind == "TableExpression" for node in nodes) > _MAX_TABLES or _written_out(nodes) > _MAX_WRITTEN_OUT:
        return f"the query reads more than {_MAX_TABLES} tables, or as many through WITH; ask for less at once"
    for place, node in enumerate(nodes):
        reason = _node_refusal(nodes, place, node, database)
        if reason is not None:
            return reason
    return None


def _node_refusal(nodes: Sequence[Node], place: int, node: Node, database: str) -> str | None:
    match node.kind:
        case "?":
            return "the query could not be read as one statement"
        case "Set":
            return _OURS
        case "TableIdentifier":
            return _foreign_table(node.name, database)
        case "Identifier":
            return _foreign_identifier(nodes, place, node.name, database)
        case "Function":
            return _function_refusal(node.name, as_table=nodes[place - 1].kind == "TableExpression")
    if "Apply" in node.kind:
        return "APPLY is refused: write the function for each column"
    return None


def _foreign_table(name: str, database: str) -> str | None:
    owner, dot, _ = name.partition(".")
    if dot and owner != database:
        return f"table {name} is not the ledger's: readers see the tables of database {database} alone"
    return None


def _foreign_identifier(nodes: Sequence[Node], place: int, name: str, database: str) -> str | None:
    """`x IN other.table` names a table although the tree calls it an identifier."""
    if name.lower() in _FUNCTIONS or _FUNCTION_NAME.match(name):
        return f"function {name} is refused, as an argument too: it reads outside the ledger's tables"
    owner, dot, _ = name.partition(".")
    if dot and (owner.lower() in _FOREIGN or (owner != database and _right_of_in(nodes, place))):
        return f"{name} is not the ledger's: readers see the tables of database {database} alone"
    return None


def _written_out(nodes: Sequence[Node]) -> int:
    """Tables that planning may meet: at worst each common table names the one before it wherever it names any."""
    named = [0]  # by the query as a whole, then by each common table
    inside: list[tuple[int, int]] = []  # depth and place of the common tables around a node
    for node in nodes:
        while inside and node.depth <= inside[-1][0]:
            inside.pop()
        if node.kind == "WithElement":
            inside.append((node.depth, len(named)))
            named.append(0)
        if node.kind == "TableIdentifier":
            named[inside[-1][1] if inside else 0] += 1
    return prod(max(1, tables) for tables in named)


def _right_of_in(nodes: Sequence[Node], place: int) -> bool:
    """Whether the node is a direct, not the first, operand of an IN."""
    depth = nodes[place].depth
    before = [node for node in nodes[:place] if node.depth < depth][-2:]
    if len(before) < 2 or before[0].kind != "Function" or before[0].name.lower() not in _IN:
        return False
    return nodes[place - 1] is not before[1]


def _function_refusal(name: str, *, as_table: bool) -> str | None:
    lower = name.lower()
    if as_table and lower not in _TABLE_FUNCTIONS:
        return f"table function {name} reads outside the ledger"
    if lower in _FUNCTIONS or lower.startswith(_FUNCTION_FAMILIES):
        return f"function {name} is refused: it reads outside the ledger's tables, or only waits"
    return None
