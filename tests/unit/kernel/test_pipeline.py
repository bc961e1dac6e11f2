"""A pipeline: durations, sensitivity, names, and which change makes which version new."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nightmill.kernel.domain.pipeline import Pipeline, Sensitivity, canonical_json, duration_s

BASE: dict[str, Any] = {
    "name": "tickets",
    "input": {"id": "id", "fields": ["subject", "body"]},
    "prompt": "user:\n{{ body }}",
    "output": {"type": "object"},
    "model": {"pools": ["local"], "max_output_tokens": 64},
}


def pipeline(**changes: Any) -> Pipeline:
    return Pipeline.model_validate({**BASE, **changes})


def versions(one: Pipeline, models: tuple[str, ...] = ("m",)) -> tuple[str, str, str, str]:
    return one.prompt_version, one.output_schema_version, one.transform_version, one.model_policy_version(models)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("90s", 90), ("15m", 900), ("6h", 21_600), ("2d", 172_800), ("0.5h", 1_800), (" 1 m ", 60), (12, 12), (1.5, 1.5)],
)
def test_a_duration(written: object, seconds: float) -> None:
    assert duration_s(written) == seconds
    assert pipeline(limits={"deadline": written}).limits.deadline == seconds


@pytest.mark.parametrize("written", ["6", "6 hours", "h", "-1h", "1h30m", "", "1e3s", "0s", 0, -5, True, float("inf")])
def test_what_is_no_duration_is_refused(written: object) -> None:
    with pytest.raises(ValidationError, match=r"limits\.deadline"):
        pipeline(limits={"deadline": written})


def test_a_text_that_is_no_duration_is_named_with_a_remedy() -> None:
    with pytest.raises(ValueError, match=r"^'6 hours' is no duration; write 90s, 15m, 6h or 2d$"):
        duration_s("6 hours")


@pytest.mark.parametrize(("position", "pool"), list(enumerate(Sensitivity)))
def test_a_pool_sees_its_own_class_and_those_before_it(position: int, pool: Sensitivity) -> None:
    """P6: public, internal, confidential, restricted."""
    assert [documents for documents in Sensitivity if pool.allows(documents)] == list(Sensitivity)[: position + 1]


@pytest.mark.parametrize(
    ("changes", "changed"),
    [
        ({"prompt": "user:\n{{ subject }}"}, {0}),
        ({"output": {"type": "string"}}, {1}),
        ({"checks": [{"enum": {"field": "a", "values": ["b"]}}]}, {2}),
        ({"repair": {"attempts": 0}}, {2}),
        ({"input": {"id": "id", "fields": ["body"]}}, {2}),
        ({"model": {"pools": ["local"], "max_output_tokens": 64, "temperature": 1}}, {3}),
        ({"model": {"pools": ["local"], "max_output_tokens": 65}}, {3}),
        # the models behind the pools count, not the pools' names
        ({"model": {"pools": ["other"], "max_output_tokens": 64}}, set()),
        ({"limits": {"budget_usd": 5, "deadline": "1h"}}, set()),
        ({"gates": {"completion": 0.5}}, set()),
        ({"publish": {"format": "jsonl"}}, set()),
        ({"sensitivity": "public"}, set()),
        ({"output": {"type": "object"}}, set()),
    ],
)
def test_only_what_changes_answers_makes_a_new_version(changes: dict[str, Any], changed: set[int]) -> None:
    """M3: a bigger budget or another target never pays again."""
    before, after = versions(pipeline()), versions(pipeline(**changes))
    assert {position for position in range(4) if before[position] != after[position]} == changed


def test_other_models_make_a_new_version_and_so_does_their_order() -> None:
    one = pipeline()
    assert len({one.model_policy_version(models) for models in (("a",), ("b",), ("a", "b"), ("b", "a"))}) == 4


def test_the_frozen_form_is_read_as_it_was() -> None:
    """M5."""
    one = pipeline(
        checks=[{"evidence": {"quote": "q", "in": ["body"]}}],
        gates={"gold": {"field": "label", "accuracy": 0.5}},
        limits={"budget_usd": 0.1, "deadline": "6h"},
    )
    again = Pipeline.model_validate_json(one.canonical())
    assert again == one
    assert again.canonical() == one.canonical()
    assert versions(again) == versions(one)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"name": "Tickets"}, "use 1-63 of a-z, 0-9 and '-', not at the ends"),
        ({"name": "a.b"}, "use 1-63 of a-z"),
        ({"checks": [{"enum": {}, "range": {}}]}, "checks: each entry has one rule, not"),
        ({"checks": [{}]}, "checks: each entry has one rule, not"),
        ({"lane": "express"}, "'express' is no lane; write realtime, bulk, by deadline, or {bulk: over 2h}"),
        ({"lane": {"bulk": "2h"}}, "'2h' is no such time; write over 2h"),
        ({"lane": {"bulk": "over tea"}}, "'tea' is no duration"),
        ({"lane": {"bulk": "over 2h", "realtime": "else"}}, "is no lane; write realtime"),
        ({"lane": {"bulk": "over 0s"}}, "greater than 0"),
        ({"model": {"pools": [], "max_output_tokens": 1}}, r"model\.pools"),
        ({"model": {"pools": ["a"], "max_output_tokens": 0}}, r"model\.max_output_tokens"),
        ({"input": {"id": "", "fields": ["a"]}}, r"input\.id"),
        ({"input": {"id": "a", "fields": []}}, r"input\.fields"),
        ({"gates": {"completion": 1.1}}, r"gates\.completion"),
        ({"limits": {"attempts": 0}}, r"limits\.attempts"),
        ({"retries": 3}, "retries"),
        ({"prompt": ""}, "prompt"),
    ],
)
def test_a_pipeline_that_can_not_be_is_refused_by_field(changes: dict[str, Any], place: str) -> None:
    with pytest.raises(ValidationError, match=place):
        pipeline(**changes)


@pytest.mark.parametrize(
    ("written", "over_s"),
    [
        ("realtime", None),
        ("bulk", None),
        ("by deadline", 86_400),
        ({"bulk": "over 2h"}, 7_200),
        ({"bulk": "over 90 m"}, 5_400),
        ({"bulk": 60}, 60),
    ],
)
def test_a_lane_is_frozen_as_it_was_written(written: object, over_s: float | None) -> None:
    """P5, M5."""
    one = pipeline(lane=written)
    assert one.bulk_over_s == over_s
    assert Pipeline.model_validate_json(one.canonical()) == one
    assert versions(one) == versions(pipeline())  # the lane does not change what is asked


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=6))
def test_equal_values_have_one_canonical_form(value: dict[str, Any]) -> None:
    assert canonical_json(dict(reversed(value.items()))) == canonical_json(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [float("-inf")]])
def test_what_is_no_json_has_no_canonical_form(value: object) -> None:
    with pytest.raises(ValueError, match="JSON"):
        canonical_json(value)


EMBED: dict[str, Any] = {
    "name": "vectors",
    "input": {"id": "id", "fields": ["body"]},
    "prompt": "{{ body }}",
    "embedding": {"dimensions": 8},
    "model": {"pools": ["local"]},
}


def test_an_embedding_needs_nothing_that_describes_answers() -> None:
    """E7: and what is frozen is read again as it was."""
    found = Pipeline.model_validate(EMBED)
    assert (found.output, found.repair.attempts, found.model.max_output_tokens) == ({}, 0, 0)
    assert Pipeline.model_validate_json(found.canonical()) == found


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"output": {"type": "object"}}, "output: an embedding has no answer in words"),
        ({"checks": [{"enum": {"field": "a", "values": ["b"]}}]}, "checks"),
        ({"repair": {"attempts": 1}}, r"repair\.attempts"),
        ({"gates": {"gold": {"field": "a", "accuracy": 1}}}, r"gates\.gold"),
        ({"model": {"pools": ["local"], "max_output_tokens": 5}}, r"model\.max_output_tokens"),
        ({"model": {"pools": ["local"], "temperature": 1}}, r"model\.temperature"),
        ({"model": {"pools": ["local"], "seed": 0}}, r"model\.seed"),
        ({"embedding": {"dimensions": 0}}, r"embedding\.dimensions"),
        ({"embedding": {}}, r"embedding\.dimensions"),
    ],
)
def test_what_an_embedding_can_not_have(changes: dict[str, Any], names: str) -> None:
    with pytest.raises(ValidationError, match=names):
        Pipeline.model_validate({**EMBED, **changes})


def test_an_answer_needs_room() -> None:
    with pytest.raises(ValidationError, match=r"model\.max_output_tokens: 0"):
        pipeline(model={"pools": ["local"], "max_output_tokens": 0})


def test_other_dimensions_are_another_vector() -> None:
    """M3."""
    one = Pipeline.model_validate(EMBED)
    for embedding in ({"dimensions": 9}, {"dimensions": 8, "shorten": True}):
        other = Pipeline.model_validate({**EMBED, "embedding": embedding})
        assert other.output_schema_version != one.output_schema_version
