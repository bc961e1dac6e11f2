"""From an answer's text to a value: finish reasons, the fence, strict JSON."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.kernel.domain.lifecycle import VerdictKind
from nightmill.kernel.domain.pipeline import canonical_json
from nightmill.validator.answer import Finding, Parsed, lookup, read_answer, shown

REPAIRABLE, REVIEW = VerdictKind.REPAIRABLE, VerdictKind.REVIEW

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("length", REPAIRABLE),
        ("max_tokens", REPAIRABLE),
        ("model_context_window_exceeded", REPAIRABLE),
        ("pause_turn", REPAIRABLE),
        ("abort", REPAIRABLE),
        ("repetition", REPAIRABLE),
        ("tool_calls", REPAIRABLE),
        ("tool_use", REPAIRABLE),
        ("function_call", REPAIRABLE),
        ("content_filter", REVIEW),
        ("refusal", REVIEW),
    ],
)
def test_a_finish_reason_that_is_no_natural_end_decides_before_the_text(reason: str, kind: VerdictKind) -> None:
    """Q1: an answer that was cut short is refused although its text parses."""
    assert read_answer('{"label": "a"}', reason) == Finding(kind=kind, rule="finish_reason", value=reason)


@pytest.mark.parametrize("reason", ["stop", "end_turn", "stop_sequence", "eos", "", None])
def test_a_natural_end_or_an_unknown_word_leaves_the_decision_to_the_text(reason: str | None) -> None:
    assert read_answer('{"label": "a"}', reason) == Parsed({"label": "a"})


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}',
        ' \n{"a": 1}\n ',
        '```json\n{"a": 1}\n```',
        '```\n{"a": 1}\n```',
        '\n\n```JSON  \n{"a": 1}```\n\n',
        '```json\r\n{"a": 1}\r\n```\r\n',
        '{"a": 1e0}',
    ],
)
def test_plain_or_in_one_fence_the_value_is_the_same(text: str) -> None:
    """Q1, Q2: one outer code fence costs no repair."""
    assert read_answer(text, "stop") == Parsed({"a": 1})


def test_a_fence_inside_a_string_stays() -> None:
    assert read_answer('```json\n{"code": "```\\nx\\n```"}\n```', "stop") == Parsed({"code": "```\nx\n```"})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", ""),
        ("   ", "   "),
        ("Sure! Here it is.", "Sure! Here it is."),
        ('Sure: {"a": 1}', 'Sure: {"a": 1}'),
        ('{"a": 1} trailing', '{"a": 1} trailing'),
        ('{"a": 1', '{"a": 1'),
        ("{'a': 1}", "{'a': 1}"),
        ('{"a": 1,}', '{"a": 1,}'),
        ('```json\n```json\n{"a": 1}\n```\n```', '```json\n```json\n{"a": 1}\n```\n```'),
        ('```json\n{"a": 1}\n```\nDone.', '```json\n{"a": 1}\n```\nDone.'),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": Infinity}', "Infinity is not JSON"),
        ('{"a": [-Infinity]}', "-Infinity is not JSON"),
        ('{"a": 1e999}', "1e999 is beyond any number that can be kept"),
        ('{"a": -1E400}', "-1E400 is beyond any number that can be kept"),
        ('{"a": 1, "a": 2}', "a name stands twice in one object"),
        ('{"b": {"a": 1, "a": 1}}', "a name stands twice in one object"),
        ('{"a": "\\ud83d"}', "an escape stands for half a character"),
        ('{"\\uDC00": 1}', "an escape stands for half a character"),
        ("[" * 65 + "]" * 65, "nested deeper than 64 levels"),
        ('{"a":' * 65 + "1" + "}" * 65, "nested deeper than 64 levels"),
    ],
)
def test_what_is_not_strict_json_is_repairable_and_says_why(text: str, value: str) -> None:
    """Q1, Q2."""
    assert read_answer(text, "stop") == Finding(kind=REPAIRABLE, rule="json", value=value)


@pytest.mark.parametrize("depth", [5_000, 100_000])
def test_huge_nesting_is_refused_and_crashes_nothing(depth: int) -> None:
    """Whether Python's own parser gives up depends on its version; what is said does not."""
    text = "[" * depth + "]" * depth
    assert read_answer(text, "stop") == Finding(kind=REPAIRABLE, rule="json", value="nested deeper than 64 levels")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[" * 64 + "]" * 64, json.loads("[" * 64 + "]" * 64)),
        ("[" + ",".join(["[]"] * 200) + "]", [[]] * 200),
        ('"\\ud83d\\ude00"', "😀"),
        ('"\\\\ud83d"', "\\ud83d"),
        ("null", None),
    ],
)
def test_what_only_looks_dangerous_is_read(text: str, value: object) -> None:
    assert read_answer(text, "stop") == Parsed(value)


def test_a_number_of_too_many_digits_is_refused() -> None:
    assert isinstance(read_answer("9" * 5_000, "stop"), Finding)


@given(JSON_VALUES, st.sampled_from(["{}", "```json\n{}\n```", " {} "]))
def test_any_json_value_is_read_as_it_is(value: Any, frame: str) -> None:
    text = frame.replace("{}", json.dumps(value), 1)
    assert read_answer(text, "stop") == Parsed(value)


@given(st.text() | JSON_VALUES.map(json.dumps).flatmap(lambda t: st.integers(0, len(t)).map(lambda n: t[:n])))
def test_whatever_is_read_can_be_stored_and_whatever_is_refused_can_be_told(text: str) -> None:
    """No text that a model may write stops the service."""
    match read_answer(text, "stop"):
        case Parsed(value):
            assert json.loads(canonical_json(value)) == value
        case Finding() as finding:
            assert finding.rule == "json"
            assert finding.value is not None
            assert len(finding.value) <= 200


@pytest.mark.parametrize(
    ("field", "found"),
    [
        ("label", "x"),
        ("parts.1.name", "b"),
        ("parts.2.name", None),
        ("parts.-1.name", None),
        ("parts.name", None),
        ("label.x", None),
        ("absent", None),
    ],
)
def test_a_dotted_field_is_looked_up(field: str, found: object) -> None:
    assert lookup({"label": "x", "parts": [{"name": "a"}, {"name": "b"}]}, field) == found


def test_what_is_shown_is_cut() -> None:
    assert shown("x" * 200) == "x" * 200
    assert shown("x" * 201) == "x" * 199 + "…"
    assert shown({"ä": [1, None]}) == '{"ä": [1, null]}'
