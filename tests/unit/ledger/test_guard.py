"""The guard's decisions on trees as ClickHouse prints them; whole queries meet the engine in the conformance suite."""

import pytest

from nightmill.ledger import guard

SELECT = ["SelectWithUnionQuery (children 1)", " ExpressionList (children 1)", "  SelectQuery (children 2)"]
LIST = "   ExpressionList (children 1)"
TABLES = [
    "   TablesInSelectQuery (children 1)",
    "    TablesInSelectQueryElement (children 1)",
    "     TableExpression (children 1)",
]


def refusal(*lines: str, canonical: str = "SELECT") -> str | None:
    return guard.tree_refusal(guard.parse(lines), canonical, "nightmill")


@pytest.mark.parametrize("table", ["attempts", "nightmill.items (alias i)", "nightmill.items (alias system.x)"])
def test_own_tables_are_read(table: str) -> None:
    assert refusal(*SELECT, LIST, "    Asterisk", *TABLES, f"      TableIdentifier {table}") is None


@pytest.mark.parametrize("table", ["system.users", "default./etc/hostname", "other.t (alias t)", "nightmill2.items"])
def test_other_tables_are_not(table: str) -> None:
    assert "not the ledger's" in str(refusal(*SELECT, LIST, *TABLES, f"      TableIdentifier {table}"))


def test_an_unheard_of_table_function_is_refused_because_only_known_ones_are_allowed() -> None:
    assert "reads outside" in str(refusal(*SELECT, LIST, *TABLES, "      Function newCloudLake (children 1)"))
    assert refusal(*SELECT, LIST, *TABLES, "      Function numbers (alias n) (children 1)") is None


def test_a_scalar_function_is_refused_by_name_in_any_case() -> None:
    assert "function FILE" in str(refusal(*SELECT, LIST, "    Function FILE (children 1)"))
    assert refusal(*SELECT, LIST, "    Function sum (children 1)") is None


@pytest.mark.parametrize("last", [" Literal '/tmp/x'", " Identifier JSON", " Set"])
def test_what_follows_a_select_is_the_endpoints(last: str) -> None:
    assert refusal(*SELECT, LIST, "    Asterisk", last) is not None


def test_the_right_side_of_in_is_a_table_even_when_it_looks_like_a_column() -> None:
    head = [*SELECT, LIST, "    Function in (children 1)", "     ExpressionList (children 2)"]
    assert refusal(*head, "      Identifier a.tenant", "      Literal Tuple_('x')") is None
    assert "not the ledger's" in str(refusal(*head, "      Identifier x", "      Identifier other.users"))
    assert refusal(*head, "      Identifier x", "      Identifier nightmill.items") is None


@pytest.mark.parametrize("root", ["InsertQuery", "DropQuery", "Explain EXPLAIN", "", "Set", "no node at all!"])
def test_every_other_statement_is_refused(root: str) -> None:
    assert refusal(root) is not None


def test_show_is_for_the_ledgers_own_tables() -> None:
    assert refusal("ShowTables", canonical="SHOW TABLES") is None
    assert refusal("ShowTables", canonical="SHOW DATABASES") is not None


@pytest.mark.parametrize(
    ("canonical", "refused"),
    [
        ("SELECT `a` FROM `b`", False),
        ("SELECT '\\n' FROM `b`", False),
        ("SELECT 1 AS `a\\n TableIdentifier x`", True),
        ("SELECT * FROM {t:Identifier}", True),
        ("SELECT {t : Identifier }", True),
        ("SELECT {t:String}", False),
        ("SELECT 1 FORMAT JSON", True),
        ("SELECT 'FORMAT JSON'", False),
    ],
)
def test_texts_that_could_forge_or_spoil_the_tree(canonical: str, refused: bool) -> None:
    assert (guard.text_refusal(canonical) is not None) is refused
