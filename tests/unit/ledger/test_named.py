"""The product's own queries: each is named, described, and says which parameters it takes."""

import pytest

from nightmill.ledger.named import NamedQuery, WrongParameters, check_parameters, load_queries, parse_queries

QUERIES = load_queries()


def test_the_products_questions_are_there() -> None:
    """O1, O2"""
    assert {name: set(query.parameters) for name, query in QUERIES.items()} == {
        "job_totals": {"job_id"},
        "job_cost_by_stage": {"job_id"},
        "job_cost_by_model": {"job_id"},
        "job_cost_by_cause": {"job_id"},
        "source_ids": {"start", "tenant"},
        "item_history": {"id", "tenant"},
        "item_attempts": {"id", "tenant"},
    }


@pytest.mark.parametrize("query", QUERIES.values(), ids=list(QUERIES))
def test_each_is_described_and_one_statement(query: NamedQuery) -> None:
    assert len(query.description) > 20
    assert query.sql.startswith("SELECT")
    assert ";" not in query.sql


def test_a_file_is_cut_at_its_heads() -> None:
    text = "-- preface\n\n-- one --\n-- First.\n-- Goes on.\nSELECT 1\n\n-- two --\n-- Second.\nSELECT {x:UInt8}\n"
    one, two = parse_queries(text).values()
    assert (one.name, one.description, one.sql) == ("one", "First. Goes on.", "SELECT 1")
    assert (two.name, set(two.parameters)) == ("two", {"x"})


@pytest.mark.parametrize(
    ("given", "text"),
    [({}, "job_id is missing"), ({"job_id": "x", "jbo": 1}, r"jbo is not in the query; write \{jbo:String\}")],
)
def test_wrong_parameters_are_named(given: dict[str, object], text: str) -> None:
    with pytest.raises(WrongParameters, match=text):
        check_parameters("SELECT {job_id:String}", given)
