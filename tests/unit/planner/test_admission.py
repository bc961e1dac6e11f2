"""Admission: one row per rule, each text with place, value and remedy (P4, P5, P6)."""

from typing import Any

import pytest

from nightmill.planner.admission import admit, doubts, usd
from nightmill.planner.estimate import PlanTotals, estimate
from unit.planner.makers import CONFIG, NOW_MS, make_config, make_pipeline

PLAN = PlanTotals(items=1_000, refused_rows=0, input_tokens=300_000)
WORST = 1_300_000_000
BOTH = {"pools": ["mini", "big"], "max_output_tokens": 100}
ONLY_MINI = {"model-mini": {"input_usd_per_million": 1, "output_usd_per_million": 10}}
ENDED = {"model-mini": {**ONLY_MINI["model-mini"], "valid_to": "2026-11-29"}}
ODD_TOKENIZER = {"mini": {**make_config().pools["mini"].model_dump(), "tokenizer": "o300k"}}

IN_BULK: dict[str, Any] = {"config": {"pools": {"mini": {**CONFIG["pools"]["mini"], "bulk": {}}}}}
HALF: dict[str, Any] = {
    "config": {**IN_BULK["config"], "prices": {"model-mini": {**ONLY_MINI["model-mini"], "batch_discount": 0.5}}}
}


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
    told = None
    if plan:
        told = estimate(frozen, plan, tenant=tenant, config=settings, now_ms=NOW_MS, deadline_at_ms=deadline)
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
        # 1,000 items at 600 requests a minute take 100 s
        (
            {"deadline": NOW_MS + 99_999},
            "deadline_unreachable",
            ["1 min 39 s left", "1 min 40 s at least", "'mini'", "--deadline"],
        ),
        ({"lane": "bulk"}, "no_bulk_pool", ["lane: bulk", "['mini']", "pools.yaml", "lane: realtime"]),
        ({"lane": "bulk", **IN_BULK}, "no_price", ["no price of batches", "'model-mini'", "batch_discount"]),
        ({"lane": "by deadline", **IN_BULK}, "no_price", ["no price of batches", "'model-mini'", "batch_discount"]),
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
        {"deadline": NOW_MS + 100_000},
        # batches may take a day, or be quicker: that is a doubt and no refusal
        {"deadline": NOW_MS + 60_000, "lane": "bulk", **HALF},
        {"deadline": NOW_MS + 200_000, "lane": {"bulk": "over 2m"}, **HALF},
        # no rate, only slots and an assumed time: a doubt and no refusal
        {"deadline": NOW_MS + 60_000, "tenant": "small", "model": BOTH},
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


@pytest.mark.parametrize(
    ("left_s", "fields", "parts"),
    [
        # 1,000 calls of 2 s in 10 slots take 200 s; rates take 100 s
        (200, {}, None),
        (199, {}, ["deadline: 3 min 19 s left", "real time may take 3 min 20 s on pool 'mini' (slots)"]),
        (86_400, {"lane": "bulk", **HALF}, None),
        (86_399, {"lane": "bulk", **HALF}, ["batches may take 1 d", "nothing is moved", "lane: {bulk: over 2h}"]),
        # twice 200 s, 120 s for a call and 75 s of grace: realtime can still do all of it
        (7_200, {"lane": {"bulk": "over 10m"}, **HALF}, None),
        (199, {"lane": {"bulk": "over 1m"}, **HALF}, ["batches may take 1 d, and real time 3 min 20 s on pool 'mini'"]),
        (None, {"lane": "bulk", **HALF}, None),
    ],
)
def test_a_deadline_that_may_be_missed_is_warned_of(
    left_s: int | None, fields: dict[str, Any], parts: list[str] | None
) -> None:
    """P5: what rests on an assumption is said and not refused."""
    frozen = make_pipeline(**{name: value for name, value in fields.items() if name != "config"})
    deadline = None if left_s is None else NOW_MS + left_s * 1000
    config = make_config(**fields.get("config", {}))
    told = estimate(frozen, PLAN, tenant="acme", config=config, now_ms=NOW_MS, deadline_at_ms=deadline)
    found = doubts(frozen, told, deadline_at_ms=deadline, now_ms=NOW_MS)
    assert bool(found) is (parts is not None)
    assert [part for part in parts or [] if part not in found[0]] == []
