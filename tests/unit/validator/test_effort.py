"""Schemas that multiply: what makes a gate slow is found by counting, and every depth is judged (Q1, E3)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.kernel.domain.lifecycle import VerdictKind
from nightmill.validator.effort import MAX_WAYS, Effort
from nightmill.validator.gate import SchemaError, compile_gate
from unit.validator.makers import pipeline

BACK = {"$ref": "#"}
AT_X = {"properties": {"x": BACK}}
NESTED = {"type": ["object", "integer"]}

TREE = {"properties": {"left": BACK, "right": BACK, "value": {"type": "integer"}}}
LINKED_LIST = {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"x": BACK}}]}
KILLER = {"type": "object", "anyOf": [AT_X, {**AT_X, "required": ["y"]}]}

#: two ways lead from every level to the next
TWICE: dict[str, dict[str, Any]] = {
    "anyOf": KILLER,
    "oneOf": {**NESTED, "oneOf": [AT_X, {**AT_X, "required": ["y"]}]},
    "allOf": {**NESTED, "allOf": [AT_X, AT_X]},
    "not": {**NESTED, **AT_X, "not": {"not": AT_X}},
    "if": {**NESTED, "if": AT_X, "then": AT_X},
    "dependentSchemas": {**NESTED, **AT_X, "dependentSchemas": {"x": AT_X}},
    "dependencies": {"$schema": "http://json-schema.org/draft-07/schema#", **AT_X, "dependencies": {"x": AT_X}},
    "patternProperties": {"patternProperties": {"^x": BACK, "x$": BACK}},
    "additionalProperties": {"anyOf": [{"additionalProperties": BACK}, {"properties": {"x": BACK}}]},
    "unevaluatedProperties": {**NESTED, "allOf": [{"unevaluatedProperties": BACK}], "unevaluatedProperties": BACK},
    "$dynamicRef": {"$dynamicAnchor": "m", "allOf": [{"properties": {"x": {"$dynamicRef": "#m"}}}, AT_X]},
    "$recursiveRef": {
        "$schema": "https://json-schema.org/draft/2019-09/schema",
        "allOf": [{"properties": {"x": {"$recursiveRef": "#"}}}, AT_X],
    },
    "$anchor": {"$anchor": "m", "allOf": [{"properties": {"x": {"$ref": "#m"}}}, AT_X]},
    "$id": {"$id": "http://s.test/a", "allOf": [{"properties": {"x": {"$ref": "/a"}}}, AT_X]},
    "$defs": {
        "$ref": "#/$defs/a~1b",
        "$defs": {"a/b": {"allOf": [{"properties": {"x": {"$ref": "#/$defs/a~1b"}}}] * 2}},
    },
}


def chain(levels: int, leaf: Any) -> Any:
    for _ in range(levels):
        leaf = {"x": leaf}
    return leaf


def doubling(definitions: int, keyword: str = "anyOf") -> dict[str, Any]:
    """Each definition refers to the next one twice."""
    defs: dict[str, Any] = {f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(definitions)}
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{definitions}": {"type": "string"}}}


def mutual(definitions: int) -> dict[str, Any]:
    """Each definition refers to each other one directly."""
    names = [f"#/$defs/d{n}" for n in range(definitions)]
    defs = {f"d{n}": {"anyOf": [{"properties": {"x": {"$ref": name}}} for name in names]} for n in range(definitions)}
    return {"$ref": names[0], "$defs": defs}


def refusal(schema: dict[str, Any]) -> str | None:
    try:
        compile_gate(pipeline(output=schema))
    except SchemaError as error:
        return str(error)
    return None


@pytest.mark.parametrize("schema", TWICE.values(), ids=list(TWICE))
def test_an_answer_of_any_depth_is_judged_and_errors_are_listed_while_that_is_little_work(
    schema: dict[str, Any],
) -> None:
    """Two ways a level: 2 ** 60 steps would never end."""
    gate = compile_gate(pipeline(output=schema))
    assert gate.schema.is_valid(chain(60, {})) in (True, False)
    assert gate.effort.may_list_errors(chain(6, {}))
    assert not gate.effort.may_list_errors(chain(60, {}))
    assert gate.judge(json.dumps(chain(60, "s")), "stop", dict)[0].kind in VerdictKind


@pytest.mark.parametrize(
    ("schema", "answer", "problem"),
    [
        (TREE, {"left": {"right": {"value": "x"}}}, '"x" is not of type "integer"'),
        (LINKED_LIST, chain(60, 3), "listed in the 'anyOf' keyword"),
        (KILLER, chain(3, 3), "listed in the 'anyOf' keyword"),
        (KILLER, chain(20, 3), "does not fit the output schema, which has too many branches to tell why"),
    ],
    ids=["tree", "linked list", "shallow killer", "killer"],
)
def test_a_refused_answer_is_told_what_is_wrong_as_far_as_that_can_be_told(
    schema: dict[str, Any], answer: Any, problem: str
) -> None:
    verdict, value = compile_gate(pipeline(output=schema)).judge(json.dumps(answer), "stop", dict)
    assert (verdict.kind, verdict.rule, value) == (VerdictKind.REPAIRABLE, "schema", None)
    assert verdict.value is not None
    assert problem in verdict.value


@pytest.mark.parametrize("schema", [TREE, LINKED_LIST, {"items": BACK}, {"additionalProperties": BACK}])
def test_recursion_by_one_way_a_level_never_costs_the_reason(schema: dict[str, Any]) -> None:
    """Trees and lists are as plain as flat schemas, however many values an answer has."""
    effort = Effort(schema)
    assert effort.may_list_errors(chain(60, [[{"left": {}, "right": {"left": 1}}]]))
    assert effort.may_list_errors([chain(20, {}) for _ in range(2_000)])


def expressions(kinds: int, *, one_union: bool) -> dict[str, Any]:
    """What a class model of expressions becomes: each kind has two operands of any kind."""
    union = {"anyOf": [{"$ref": f"#/$defs/k{n}"} for n in range(kinds)]}
    operand = {"$ref": "#/$defs/any"} if one_union else union
    kind = {"type": "object", "properties": {"left": operand, "right": operand}}
    return {"$defs": {**{f"k{n}": kind for n in range(kinds)}, "any": union}, **operand}


def record_of(types: int) -> dict[str, Any]:
    """Each type has a field of every other one: much to write down, and one way to each value."""
    fields = {f"f{n}": {"$ref": f"#/$defs/t{n}"} for n in range(types)}
    return {"$defs": {f"t{n}": {"type": "object", "properties": fields} for n in range(types)}, "$ref": "#/$defs/t0"}


@pytest.mark.parametrize(
    ("schema", "ways"),
    [
        ({}, 1),
        (True, 1),
        ({"properties": {"a": {}, "b": {"items": {}}}, "enum": [{"items": {}}]}, 1),
        ({"anyOf": [{}, {"not": {}}, True]}, 1 + 1 + 2),
        (TREE, 2),  # at left: the reference, and itself again where it leads back to
        (LINKED_LIST, 1 + 3),  # at x: the reference, and the three that meet any value
        (KILLER, 2 * (1 + 3)),  # the same twice
        ({"items": {}, "contains": {}, "prefixItems": [{"not": {}}]}, 2 + 1),
        ({"patternProperties": {"a": {}, "b": {}}, "properties": {"a": {}}, "additionalProperties": {}}, 3),
        (doubling(3), 1 + (1 + 2 * (1 + 1 + 2 * (1 + 1 + 2 * (1 + 1))))),
        (doubling(40), MAX_WAYS + 1),
        (mutual(20), MAX_WAYS + 1),
        (record_of(40), 2),
        ({"$ref": "https://json-schema.org/draft/2020-12/schema"}, 1),
    ],
)
def test_ways_are_counted_for_the_value_that_most_parts_meet(schema: Any, ways: int) -> None:
    assert Effort(schema).ways == ways


@pytest.mark.parametrize(
    "schema",
    [doubling(40), doubling(40, "allOf"), mutual(20), expressions(40, one_union=False)],
    ids=["anyOf", "allOf", "mutual", "expressions"],
)
def test_a_schema_of_too_many_ways_is_refused_with_a_remedy(schema: dict[str, Any]) -> None:
    """P4: at submission, before anything is paid for."""
    with pytest.raises(SchemaError, match=r"^output: .* in more than 20,000 ways, .*once under \$defs$"):
        compile_gate(pipeline(output=schema))


def test_the_remedy_that_a_refusal_names_helps() -> None:
    assert compile_gate(pipeline(output=expressions(40, one_union=True))).effort.ways < 4_000


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"anyOf": [{"type": "integer"}, {"not": {"$ref": "#"}}]},
        {
            "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}},
            "items": {"$ref": "#/$defs/a"},
        },
        {"$dynamicAnchor": "m", "anyOf": [{"$dynamicRef": "#m"}]},
    ],
)
def test_a_reference_to_where_it_stands_is_refused(schema: dict[str, Any]) -> None:
    """P4: every value would fit it, and a tangle of them takes for ever even for a number."""
    with pytest.raises(SchemaError, match=r"^output: the reference #\S* leads back to where it stands"):
        compile_gate(pipeline(output=schema))


def test_a_reference_that_cannot_be_followed_is_named() -> None:
    with pytest.raises(ValueError, match=r"the reference #/\$defs/absent can not be followed"):
        Effort({"$ref": "#/$defs/absent"})


@pytest.mark.parametrize("value", [5, "x", [], {}, [5], {"x": 5}, None, True])
@pytest.mark.parametrize(
    "keyword",
    ["dependentSchemas", "prefixItems", "unevaluatedItems", "$dynamicRef", "$recursiveRef", "$anchor", "then"],
)
def test_a_keyword_that_a_draft_does_not_know_may_have_any_value(keyword: str, value: Any) -> None:
    """The engine takes it for a note; it is no reason to stumble."""
    schema = {"$schema": "http://json-schema.org/draft-04/schema#", keyword: value}
    reason = refusal(schema)
    assert reason is None or f"the reference {value} can not be followed" in reason
    if reason is None:
        assert Effort(schema).may_list_errors({"x": [{"x": 1}]})


LEAVES = st.sampled_from([{"type": "string"}, {"type": "object"}, True, {"required": ["y"]}])
REFERENCES = st.sampled_from([{"properties": {"x": {"$ref": f"#/$defs/d{n}"}}} for n in range(3)])
SUBSCHEMAS = st.recursive(
    LEAVES | REFERENCES,
    lambda inner: st.one_of(
        st.builds(
            lambda name, parts: {name: parts},
            st.sampled_from(["anyOf", "oneOf", "allOf"]),
            st.lists(inner, min_size=1, max_size=3),
        ),
        st.builds(lambda name, part: {name: {"x": part}}, st.sampled_from(["properties", "dependentSchemas"]), inner),
        st.builds(
            lambda name, part: {name: part},
            st.sampled_from(["not", "items", "contains", "additionalProperties", "unevaluatedProperties"]),
            inner,
        ),
        st.builds(
            lambda first, second: {**first, **second} if isinstance(second, dict) else first,
            st.just({"type": "object"}),
            inner,
        ),
    ),
    max_leaves=8,
)
SCHEMAS = st.builds(
    lambda defs: {"$ref": "#/$defs/d0", "$defs": {f"d{n}": each for n, each in enumerate(defs)}},
    st.lists(SUBSCHEMAS, min_size=3, max_size=3),
)


@given(SCHEMAS, st.integers(0, 60), st.sampled_from([3, "s", {}, [[]], {"y": [1]}]))
def test_whatever_refers_to_whatever_is_judged(schema: dict[str, Any], levels: int, leaf: Any) -> None:
    """Q1: accepted, or refused with a reason, and soon: a schema that took minutes would stop this property."""
    gate = compile_gate(pipeline(output=schema))
    verdict, _ = gate.judge(json.dumps(chain(levels, leaf)), "stop", dict)
    assert (verdict.kind is VerdictKind.ACCEPTED) == (verdict.value is None)


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), min_size=10, max_size=10), st.integers(0, 60))
def test_definitions_that_refer_to_each_other_are_judged_or_refused_beforehand(
    links: list[list[int]], levels: int
) -> None:
    """As above for tangles, among them those that lead back to where they stand."""
    branches = [[{"properties": {"x": {"$ref": f"#/$defs/d{to}"}}} for to in each[1:]] for each in links]
    tangled = [{"$ref": f"#/$defs/d{each[0]}"} for each in links]
    defs = {f"d{n}": {"anyOf": [*branches[n], *([tangled[n]] if n % 4 == 0 else [{}])]} for n in range(len(links))}
    output = {"$ref": "#/$defs/d0", "$defs": defs}
    reason = refusal(output)
    if reason is None:
        assert compile_gate(pipeline(output=output)).judge(json.dumps(chain(levels, 3)), "stop", dict)[0].kind
    else:
        assert "ways" in reason or "leads back to where it stands" in reason
