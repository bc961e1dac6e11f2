"""The gate as a whole: order of the checks, schema findings, compilation."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.kernel.domain.lifecycle import VerdictKind
from nightmill.kernel.wire.messages import Verdict
from nightmill.validator.gate import ACCEPTED, SchemaError, compile_gate
from unit.validator.makers import pipeline

EVIDENCE = {"evidence": {"quote": "quote", "in": ["body"]}}
ENUM = {"enum": {"field": "label", "values": ["a", "b"], "else": "reject"}}
RANGE = {"range": {"field": "confidence", "min": 0.5, "else": "review"}}


class Source:
    """A row that counts how often it is asked for."""

    def __init__(self, **columns: Any) -> None:
        self.columns = columns
        self.reads = 0

    def __call__(self) -> Mapping[str, Any]:
        self.reads += 1
        return self.columns


def judge(text: str, *checks: dict[str, Any], source: Source | None = None) -> tuple[Verdict, Any | None]:
    return compile_gate(pipeline(*checks)).judge(text, "stop", source or Source())


def test_a_good_answer_is_accepted_with_its_value() -> None:
    source = Source(body="so he said")
    text = '{"label": "a", "confidence": 0.5, "quote": "he said"}'
    verdict, value = judge(text, ENUM, RANGE, EVIDENCE, source=source)
    assert verdict == ACCEPTED
    assert value == {"label": "a", "confidence": 0.5, "quote": "he said"}
    assert source.reads == 1


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("{}", None, '"label" is a required property'),
        ('{"label": 1}', "label", '1 is not of type "string"'),
        ('{"label": null}', "label", 'null is not of type "string"'),
        ('["label"]', None, '["label"] is not of type "object"'),
        ('{"label": "a", "parts": [{"size": 1}, {"size": "x"}]}', "parts.1.size", '"x" is not of type "integer"'),
        ('{"label": "a", "extra": 1}', None, "Additional properties are not allowed ('extra' was unexpected)"),
    ],
)
def test_a_schema_finding_names_field_and_value(text: str, field: str | None, value: str) -> None:
    """Q1."""
    verdict, accepted = judge(text)
    assert verdict == Verdict(kind=VerdictKind.REPAIRABLE, rule="schema", field=field, value=value)
    assert accepted is None


def test_a_long_value_leaves_room_for_what_is_wrong_with_it() -> None:
    verdict, _ = judge('{"label": ["' + "x" * 5_000 + '"]}')
    assert verdict.value == '["' + "x" * 77 + '… is not of type "string"'


@pytest.mark.parametrize(
    ("text", "kind", "rule", "reads"),
    [
        ("not json", VerdictKind.REPAIRABLE, "json", 0),
        ('{"label": "c", "confidence": 0, "quote": "x"}', VerdictKind.REJECTED, "enum", 0),
        ('{"label": "a", "confidence": 0, "quote": "x"}', VerdictKind.REVIEW, "range", 0),
        ('{"label": "a", "confidence": 1, "quote": "x"}', VerdictKind.REPAIRABLE, "evidence", 1),
    ],
)
def test_the_first_check_that_refuses_decides(text: str, kind: VerdictKind, rule: str, reads: int) -> None:
    """Q1: the source is read only when a rule that needs it is reached."""
    source = Source(body="nothing of the kind")
    verdict, _ = judge(text, ENUM, RANGE, EVIDENCE, source=source)
    assert (verdict.kind, verdict.rule, source.reads) == (kind, rule, reads)


def test_the_source_is_read_once_for_all_rules_and_not_at_all_without_one() -> None:
    twice, never = Source(body="x"), Source()
    judge('{"label": "a", "quote": "x"}', EVIDENCE, EVIDENCE, source=twice)
    judge('{"label": "a", "confidence": 1}', ENUM, RANGE, source=never)
    assert (twice.reads, never.reads) == (1, 0)


def test_null_may_be_an_accepted_value() -> None:
    verdict, value = compile_gate(pipeline(output={"type": "null"})).judge("null", "stop", Source())
    assert (verdict, value) == (ACCEPTED, None)


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ({"type": "nope"}, 'output.type: not a JSON Schema: "nope" is not valid'),
        ({"properties": {"a": {"type": 5}}}, "output.properties.a.type: not a JSON Schema: 5 is not valid"),
        ({"properties": []}, 'output.properties: not a JSON Schema: [] is not of type "object"'),
        ({"pattern": "("}, 'output.pattern: not a JSON Schema: "(" is not a "regex"'),
        ({"$ref": "#/$defs/absent"}, "output: not a JSON Schema: Pointer '/$defs/absent' does not exist"),
        ({"$schema": "urn:x"}, "output: not a JSON Schema: Unknown meta-schema: 'urn:x'"),
    ],
)
def test_what_is_no_json_schema_is_refused_with_place_and_reason(output: dict[str, Any], reason: str) -> None:
    with pytest.raises(SchemaError) as caught:
        compile_gate(pipeline(output=output))
    assert str(caught.value).startswith(reason)
    assert str(caught.value).endswith("see json-schema.org/draft/2020-12")


@pytest.mark.parametrize("place", ["http://127.0.0.1:9/schema", "file:///etc/hostname"])
def test_a_schema_reads_neither_network_nor_files(place: str) -> None:
    """P6: the gate's only inputs are those frozen with the job."""
    with pytest.raises(SchemaError) as caught:
        compile_gate(pipeline(output={"$ref": place}))
    assert f"{place} lies outside; copy it into the schema under $defs" in str(caught.value)


def test_a_bad_check_fails_when_the_gate_is_made() -> None:
    with pytest.raises(ValueError, match=r"^checks\.0: no rule 'regex'"):
        compile_gate(pipeline({"regex": {}}))


def test_a_pattern_that_could_run_for_ever_does_not() -> None:
    gate = compile_gate(pipeline(output={"type": "string", "pattern": "^(a+)+(?!b)$"}))
    verdict, _ = gate.judge('"' + "a" * 60 + '!"', "stop", Source())
    assert verdict.rule == "schema"


@given(st.text(max_size=200) | st.builds(lambda label: '{"label": ' + label + "}", st.text(max_size=40)))
def test_every_text_gets_one_verdict_that_fits_the_wire(text: str) -> None:
    """Q1: accepted with a value, or refused with a rule and without one."""
    verdict, value = judge(text, ENUM, RANGE)
    assert (verdict.kind is VerdictKind.ACCEPTED) == (verdict.rule is None) == (value is not None)
    assert verdict.value is None or len(verdict.value) <= 200


def test_a_rule_on_a_field_that_no_answer_can_have_is_refused() -> None:
    """P4: it would refuse every answer after it was paid for."""
    closed = {"type": "object", "properties": {"label": {}}, "additionalProperties": False}
    with pytest.raises(ValueError, match=r"checks\.0: no answer can have the field 'nofield'.* has label"):
        compile_gate(pipeline({"range": {"field": "nofield", "min": 0}}, output=closed))
    assert compile_gate(pipeline({"enum": {"field": "label.deep", "values": [1]}}, output=closed)).rules


def test_a_schema_that_asks_for_a_field_that_no_answer_can_have_is_refused() -> None:
    """P4: a name that is misspelt under `required` would refuse every answer after it was paid for."""
    misspelt = {
        "type": "object",
        "properties": {"label": {}},
        "required": ["label", "lable"],
        "additionalProperties": False,
    }
    with pytest.raises(SchemaError, match=r"output\.required: no answer can have the field 'lable'; .* has label"):
        compile_gate(pipeline(output=misspelt))
    satisfiable: list[dict[str, Any]] = [
        {"additionalProperties": True},
        {"patternProperties": {"^la": {}}},
        {"type": ["object", "null"]},
    ]
    for more in satisfiable:
        assert compile_gate(pipeline(output=misspelt | more))
