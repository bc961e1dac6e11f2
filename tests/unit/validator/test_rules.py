"""Each rule of `checks`: what it accepts, what it finds, and how a bad entry is named."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.kernel.domain.lifecycle import VerdictKind
from nightmill.validator.answer import Finding
from nightmill.validator.rules import RULES, Rule, read_checks

SOURCE = {"body": "The  term of this\n\tAgreement is\u00a0five (5) years.", "title": "Lease", "number": 0, "none": None}


def rule(name: str, **parameters: Any) -> Rule:
    (one,) = read_checks([{name: parameters}])
    return one


def finding(one: Rule, answer: Any, row: Mapping[str, Any] | None = SOURCE) -> Finding | None:
    return one.check(answer, row)


@pytest.mark.parametrize("value", ["a", "b", 1, 1.0, 2.5, True, None])
def test_enum_takes_its_values(value: object) -> None:
    assert finding(rule("enum", field="x", values=["a", "b", 1, 2.5, True, None]), {"x": value}) is None


@pytest.mark.parametrize(
    ("values", "answer", "shown"),
    [
        (["a"], {"x": "A"}, "A"),
        (["a"], {"x": " a"}, " a"),
        (["1"], {"x": 1}, "1"),
        ([1], {"x": "1"}, "1"),
        ([1], {"x": True}, "true"),
        ([True], {"x": 1}, "1"),
        ([0], {"x": False}, "false"),
        (["a"], {}, "null"),
        (["a"], {"x": ["a"]}, '["a"]'),
        (["a"], ["a"], "null"),
    ],
)
def test_enum_finds_all_else(values: list[Any], answer: Any, shown: str) -> None:
    """Q1: equal as in JSON: 1 is neither "1" nor true."""
    expected = Finding(kind=VerdictKind.REPAIRABLE, rule="enum", field="x", value=shown)
    assert finding(rule("enum", field="x", values=values), answer) == expected


@pytest.mark.parametrize("value", [0.6, 1, 1.0, 0.75])
def test_range_includes_its_bounds(value: float) -> None:
    assert finding(rule("range", field="c", min=0.6, max=1), {"c": value}) is None


@pytest.mark.parametrize(
    ("bounds", "value", "shown"),
    [
        ({"min": 0.6}, 0.59999, "0.59999"),
        ({"max": 1}, 1.00001, "1.00001"),
        ({"min": 0}, -(10**400), "-1000"),
        ({"min": 0}, "0.9", "0.9"),
        ({"min": 0}, True, "true"),
        ({"min": 0}, None, "null"),
        ({"min": 0}, [1], "[1]"),
    ],
)
def test_range_finds_what_lies_outside_or_is_no_number(bounds: dict[str, float], value: object, shown: str) -> None:
    found = finding(rule("range", field="c", **bounds), {"c": value})
    assert found is not None
    assert (found.kind, found.rule, found.field) == (VerdictKind.REPAIRABLE, "range", "c")
    assert found.value is not None
    assert found.value.startswith(shown)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(-1, 2))
def test_range_holds_exactly_between_its_bounds(one: float, other: float, value: float) -> None:
    low, high = min(one, other), max(one, other)
    found = finding(rule("range", field="c", min=low, max=high), {"c": value})
    assert (found is None) == (low <= value <= high)


@pytest.mark.parametrize(
    "quote",
    [
        "five (5) years",
        "The term of this Agreement is five (5) years.",
        "this\nAgreement",
        "  term   of ",
        ["The term", "five (5) years"],
    ],
)
def test_evidence_is_found_whatever_the_white_space(quote: object) -> None:
    """Q1: white space is normalised on both sides."""
    assert finding(rule("evidence", quote="q", **{"in": ["title", "body"]}), {"q": quote}) is None


@pytest.mark.parametrize(
    ("quote", "shown"),
    [
        ("Five (5) years", "Five (5) years"),  # letters are not folded
        ("five years", "five years"),
        ("", ""),
        (" \n ", " \n "),
        (None, "null"),
        ([], "null"),
        (["The term", "six years"], "six years"),
        (["The term", ""], ""),
        (["The term", 5], "5"),
        ([["The term"]], '["The term"]'),
        ({"text": "The term"}, '{"text": "The term"}'),
        ("Lease The term", "Lease The term"),  # a quote does not run from one column into another
    ],
)
def test_evidence_that_was_improved_or_left_out_is_found(quote: object, shown: str) -> None:
    """Q1: an empty quote proves nothing, and a list holds only if each member does."""
    expected = Finding(kind=VerdictKind.REPAIRABLE, rule="evidence", field="q", value=shown)
    assert finding(rule("evidence", quote="q", **{"in": ["title", "body"]}), {"q": quote}) == expected


def test_evidence_looks_at_the_named_columns_only() -> None:
    assert finding(rule("evidence", quote="q", **{"in": ["title"]}), {"q": "term"}) is not None
    assert finding(rule("evidence", quote="q", **{"in": ["absent", "none"]}), {"q": "None"}) is not None
    assert finding(rule("evidence", quote="q", **{"in": ["number"]}), {"q": "0"}) is None
    assert finding(rule("evidence", quote="q", **{"in": ["body"]}), {"q": "term"}, None) is not None


WORDS = st.lists(st.text("abcdé", min_size=1, max_size=5), min_size=1, max_size=12)
GAPS = st.sampled_from([" ", "  ", "\n", "\t ", "\u00a0", "\r\n"])


@given(WORDS, st.data())
def test_any_run_of_the_sources_words_is_evidence(words: list[str], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(words) - 1))
    stop = data.draw(st.integers(start + 1, len(words)))
    source = "".join(word + data.draw(GAPS) for word in words)
    quote = "".join(word + data.draw(GAPS) for word in words[start:stop])
    one = rule("evidence", quote="q", **{"in": ["body"]})
    assert finding(one, {"q": quote}, {"body": source}) is None
    assert finding(one, {"q": quote + "x"}, {"body": source}) is not None or "x" in source


@pytest.mark.parametrize(
    ("otherwise", "kind"),
    [
        ("repair", VerdictKind.REPAIRABLE),
        ("review", VerdictKind.REVIEW),
        ("reject", VerdictKind.REJECTED),
    ],
)
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("enum", {"field": "x", "values": ["a"]}),
        ("range", {"field": "x", "min": 1}),
        ("evidence", {"quote": "x", "in": ["body"]}),
    ],
)
def test_else_decides_what_becomes_of_the_answer(
    name: str, parameters: dict[str, Any], otherwise: str, kind: VerdictKind
) -> None:
    """Q2."""
    found = finding(rule(name, **parameters, **{"else": otherwise}), {"x": None})
    assert found is not None
    assert found.kind is kind


@pytest.mark.parametrize(
    ("check", "message"),
    [
        ({"regex": {}}, "checks.1: no rule 'regex'; there are enum, evidence, range"),
        ({"enum": {"field": "x"}}, "checks.1.enum.values = {'field': 'x'}: Field required"),
        ({"enum": {"field": "x", "values": []}}, "checks.1.enum.values = []: Tuple should have at least 1 item"),
        ({"enum": {"field": "x", "values": ["a"], "else": "drop"}}, "checks.1.enum.else = 'drop': Input should be"),
        ({"enum": {"field": "x", "values": ["a"], "vlaues": 1}}, "checks.1.enum.vlaues = 1: Extra inputs"),
        ({"enum": "x"}, "checks.1.enum = 'x': Input should be a valid dictionary"),
        ({"range": {"field": "x"}}, "checks.1.range = {'field': 'x'}: Value error, give min, max or both"),
        ({"range": {"field": "x", "min": 2, "max": 1}}, "checks.1.range = {'field': 'x', 'min': 2, 'max': 1}"),
        ({"range": {"field": "x", "min": "low"}}, "checks.1.range.min = 'low': Input should be a valid number"),
        ({"range": {"field": "x", "min": float("nan")}}, "checks.1.range.min = nan: Input should be a finite number"),
        ({"evidence": {"quote": "q"}}, "checks.1.evidence.in = {'quote': 'q'}: Field required"),
        ({"evidence": {"quote": "q", "in": []}}, "checks.1.evidence.in = []"),
    ],
)
def test_a_bad_check_is_named_by_place_value_and_remedy(check: dict[str, Any], message: str) -> None:
    good = {"enum": {"field": "x", "values": ["a"]}}
    with pytest.raises(ValueError, match="checks") as caught:
        read_checks([good, check])
    assert str(caught.value).startswith(message)


def test_every_rule_says_whether_it_needs_the_source() -> None:
    assert {name: model.needs_row for name, model in RULES.items()} == {"enum": False, "evidence": True, "range": False}


def test_no_checks_are_no_rules() -> None:
    assert read_checks([]) == ()
    assert json.dumps(sorted(RULES)) == '["enum", "evidence", "range"]'
