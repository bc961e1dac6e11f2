"""Admission: one row per rule, each text with place, value and remedy (P4, P5, P6)."""

from typing import Any

import pytest

from nightmill.planner.admission import admit, usd
from nightmill.planner.estimate import PlanTotals, estimate
from unit.planner.makers import NOW_MS, make_config, make_pipeline

PLAN = PlanTotals(items=1_000, refused_rows=0, input_tokens=300_000)
WORST = 1_300_000_000
BOTH = {"pools": ["mini", "big"], "max_output_tokens": 100}
ONLY_MINI = {"model-mini": {"input_usd_per_million": 1, "output_usd_per_million": 10}}
ENDED = {"model-mini": {**ONLY_MINI["model-mini"], "valid_to": "2026-11-29"}}
ODD_TOKENIZER = {"mini": {**make_config().pools["mini"].model_dump(), "tokenizer": "o300k"}}


def ask(
    plan: PlanTotals | None = PLAN,
    *,
    tenant: str = "acme",
    config: dict[str, Any] | None = None,
    budget: int | None = None,
    deadline: int | None = None,
    **pipeline: Any,
) -> tuple[str, str] | None:
    frozen, settings = make_pipeline(**pipeline), make_config(**(config or {}))
    told = estimate(frozen, plan, tenant=tenant, config=settings, now_ms=NOW_MS) if plan else None
    refusal = admit(
        frozen,
        tenant=tenant,
        config=settings,
        plan=told,
        budget_nano_usd=budget,
        deadline_at_ms=deadline,
        now_ms=NOW_MS,
    )
    return (refusal.rule, refusal.message) if refusal else None


@pytest.mark.parametrize(
    ("arguments", "rule", "parts"),
    [
        ({"model": {"pools": ["x"], "max_output_tokens": 1}}, "unknown_pool", ["model.pools", "'x'", "'mini'"]),
        ({"model": BOTH, "config": {"prices": ONLY_MINI}}, "no_price", ["'model-big'", "'big'", "prices.yaml"]),
        ({"config": {"prices": ENDED}}, "no_price", ["'model-mini'", "that holds now", "prices.yaml"]),
        ({"config": {"pools": ODD_TOKENIZER}}, "unknown_tokenizer", ["pools.yaml", "'o300k'", "cl100k"]),
        ({"tenant": "nobody"}, "unknown_tenant", ["tenants.yaml", "'nobody'", "acme"]),
        ({"sensitivity": "restricted"}, "sensitivity", ["restricted", "confidential at most", "tenants.yaml"]),
        ({"sensitivity": "confidential"}, "sensitivity", ["mini: may see internal documents at most", "pools.yaml"]),
        ({"tenant": "small"}, "sensitivity", ["'small'", "the tenant may use big only"]),
        ({"prompt": "{{ bodi }}"}, "prompt", ["'bodi'", "['body']", "pipeline.yaml"]),
        ({"prompt": "a\n{{ body"}, "prompt", ["prompt, line 2", "correct the template"]),
        ({"deadline": NOW_MS - 1_500}, "deadline", ["1.5 s ago", "--deadline"]),
        ({"deadline": NOW_MS + 4_999}, "deadline", ["only 5.0 s away", "5 s is the least"]),
        ({"budget": WORST - 1}, "budget", ["1.299999999 USD", "1.30 USD", "1,000 items", "--budget-usd"]),
        ({"plan": PlanTotals(items=0, refused_rows=0, input_tokens=0)}, "empty_input", ["it has no rows"]),
        ({"plan": PlanTotals(items=0, refused_rows=7, input_tokens=0)}, "empty_input", ["all 7 rows were refused"]),
    ],
)
def test_refused(arguments: dict[str, Any], rule: str, parts: list[str]) -> None:
    """P4 P5 P6"""
    answer = ask(**arguments)
    assert answer is not None
    assert answer[0] == rule
    assert [part for part in parts if part not in answer[1]] == []


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"budget": WORST},
        {"deadline": NOW_MS + 5_000, "plan": None},
        {"tenant": "small", "model": BOTH},
        # a price of 0 that is stated is a price
        {"budget": 0, "config": {"prices": {"model-mini": {"input_usd_per_million": 0, "output_usd_per_million": 0}}}},
        # before anything is read neither budget nor emptiness can be judged
        {"plan": None, "budget": 0},
        # only pools that may be used need a price
        {"model": BOTH, "sensitivity": "confidential", "config": {"prices": {"model-big": ONLY_MINI["model-mini"]}}},
        # far more tokens than the pool's context: each such row ends alone, later
        {"plan": PlanTotals(items=1, refused_rows=0, input_tokens=10_000_000)},
    ],
)
def test_admitted(arguments: dict[str, Any]) -> None:
    """P4 P6 P7"""
    assert ask(**arguments) is None


@pytest.mark.parametrize(
    ("nano", "text"), [(0, "0.00 USD"), (1, "0.000000001 USD"), (1_234_500_000_000, "1,234.50 USD")]
)
def test_amounts_are_exact(nano: int, text: str) -> None:
    assert usd(nano) == text
