"""Which call is selected: tables for the conditions, properties for the draw."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.provider_simulator.call_faults import RetryAfterForm
from nightmill.provider_simulator.draw import Draw, fraction
from nightmill.provider_simulator.faults import Occasion, answer_rule, decide, retry_after_header
from nightmill.provider_simulator.scenario import Scenario, parse_scenario

DIGEST = bytes(16)


def scenario(**fault: Any) -> Scenario:
    return parse_scenario({"seed": 1, "faults": [{"kind": "unauthorized", **fault}]}, where="test")


def occasion(
    *,
    occurrence: int = 1,
    arrival: int = 1,
    elapsed_ms: int = 0,
    prompt: str = "contract 17",
    digest: bytes = DIGEST,
    model: str = "m",
) -> Occasion:
    return Occasion(digest, occurrence, arrival, elapsed_ms, prompt, model=model)


@pytest.mark.parametrize(
    ("rule", "call", "hit"),
    [
        ({}, occasion(), True),
        ({"rate": 0}, occasion(), False),
        ({"first": 2}, occasion(arrival=2), True),
        ({"first": 2}, occasion(arrival=3), False),
        ({"occurrences": [1, 3]}, occasion(occurrence=3), True),
        ({"occurrences": [1, 3]}, occasion(occurrence=2), False),
        ({"match": "contract 1"}, occasion(), True),
        ({"match": "contract 2"}, occasion(), False),
        ({"model": "m"}, occasion(), True),
        ({"model": "m"}, occasion(model="m-mini"), False),
        ({"regex": r"contract \d\d$"}, occasion(), True),
        ({"regex": r"^\d"}, occasion(), False),
        ({"from_ms": 100}, occasion(elapsed_ms=99), False),
        ({"from_ms": 100}, occasion(elapsed_ms=100), True),
        ({"until_ms": 100}, occasion(elapsed_ms=99), True),
        ({"until_ms": 100}, occasion(elapsed_ms=100), False),
        ({"match": "contract", "first": 1}, occasion(arrival=2), False),  # all conditions must hold
    ],
)
def test_conditions(rule: dict[str, Any], call: Occasion, hit: bool) -> None:
    assert (decide(scenario(**rule), call) is not None) is hit


def test_first_rule_that_selects_wins() -> None:
    rules = [{"kind": "hang", "match": "absent"}, {"kind": "html"}, {"kind": "unauthorized"}]
    fault = decide(parse_scenario({"faults": rules}, where="test"), occasion())
    assert fault is not None
    assert fault.kind == "html"


@given(seed=st.integers(), digest=st.binary(min_size=16, max_size=16), occurrence=st.integers(1, 9))
def test_decision_depends_on_seed_body_and_occurrence_alone(seed: int, digest: bytes, occurrence: int) -> None:
    rules = parse_scenario({"seed": seed, "faults": [{"kind": "hang", "rate": 0.5}]}, where="test")
    one = decide(rules, occasion(digest=digest, occurrence=occurrence, arrival=1, elapsed_ms=0))
    other = decide(rules, occasion(digest=digest, occurrence=occurrence, arrival=900, elapsed_ms=12_345))
    assert one == other


def test_rate_is_met_and_each_occurrence_is_drawn_anew() -> None:
    rules = scenario(rate=0.2)
    digests = [n.to_bytes(16, "big") for n in range(4000)]
    first = [decide(rules, occasion(digest=d)) is not None for d in digests]
    second = [decide(rules, occasion(digest=d, occurrence=2)) is not None for d in digests]
    assert 700 < sum(first) < 900  # 4000 x 0.2 = 800; three standard deviations are 76
    both = sum(a and b for a, b in zip(first, second, strict=True))
    assert 110 < both < 210  # independent: 4000 x 0.04 = 160


@given(digest=st.binary(min_size=16, max_size=16), occurrence=st.integers(1, 9))
def test_content_rules_ignore_the_occurrence(digest: bytes, occurrence: int) -> None:
    rules = parse_scenario({"answers": [{"rate": 0.5, "content": "x"}]}, where="test")
    first = answer_rule(rules, occasion(digest=digest))
    assert answer_rule(rules, occasion(digest=digest, occurrence=occurrence)) == first


@given(seed=st.integers(), digest=st.binary(max_size=32), bound=st.integers(1, 10**6))
def test_draws_stay_in_range(seed: int, digest: bytes, bound: int) -> None:
    assert 0 <= fraction(seed, "x", digest, 1) < 1
    draw = Draw(seed, digest)
    assert all(0 <= draw.below(bound) < bound for _ in range(5))


@pytest.mark.parametrize(
    ("form", "seconds", "headers"),
    [
        (RetryAfterForm.SECONDS, 7, {"Retry-After": "7"}),
        (RetryAfterForm.SECONDS, -1, {"Retry-After": "-1"}),
        (RetryAfterForm.MILLISECONDS, 7, {"retry-after-ms": "7000"}),
        (RetryAfterForm.HTTP_DATE, 60, {"Retry-After": "Thu, 01 Jan 1970 00:01:01 GMT"}),  # now is 1 s
        (RetryAfterForm.GARBAGE, 7, {"Retry-After": "soon"}),
        (RetryAfterForm.MISSING, 7, {}),
    ],
)
def test_retry_after_forms(form: RetryAfterForm, seconds: int, headers: dict[str, str]) -> None:
    assert retry_after_header(form, seconds, now_ms=1999) == headers
