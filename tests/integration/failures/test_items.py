"""What a failure of a provider does to an item: called again, mended, given up or left to a person, and what it costs.

The simulator's books are the oracle of what was called and paid.
"""

from typing import Any

import pytest

from integration.bulk import documents
from integration.failures.strict import give, minted, pipeline, settled
from kit.line import Line
from kit.simulator import Simulator
from nightmill.kernel.domain.lifecycle import AttemptState, BatchState, ItemOutcome
from nightmill.kernel.wire.messages import AttemptAnswered
from nightmill.provider_gateway.failures import Signal


@pytest.mark.parametrize("pool", ["openai", "responses", "anthropic", "older"])
def test_a_job_at_each_provider_costs_what_the_provider_bills(line: Line, simulator: Simulator, pool: str) -> None:
    """P4, E12: four classes of tokens, priced apart; the spend of the job is the bill, to the nano-dollar."""
    usage = {"cached": 0.3, "cache_write": 0.2}
    give(simulator, answers=[{"rate": 0.5, "usage": usage}])
    notice = line.finish(line.submit(pipeline(pool), documents(60)))
    assert (notice.state, notice.counts.accepted) == (BatchState.PUBLISHED, 60)
    ledger = simulator.ledger()
    assert notice.totals.attempts == ledger["billed"]["calls"] == 60
    assert notice.totals.input_tokens == ledger["billed"]["prompt_tokens"]
    assert 0 < notice.totals.cached_tokens == sum(row["billed_cached_tokens"] for row in simulator.attempts())
    assert notice.totals.cost_nano_usd == ledger["money"]["billed_nano_usd"]


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("openai", {"param": "messages.1.content"}, "messages.1.content"),
    ("responses", {"param": "input", "status": 422}, "input"),
    ("anthropic", {"message": "messages.0.content: Input should be a valid string"}, "messages.0.content"),
]


@pytest.mark.parametrize(("pool", "said", "field"), BAD, ids=[case[0] for case in BAD])
def test_bad_input_is_a_dead_letter_with_its_field(
    line: Line, simulator: Simulator, pool: str, said: dict[str, Any], field: str
) -> None:
    """E8: that item alone, after one call."""
    give(simulator, {"kind": "client_error", "status": 400, "match": "number 7 ", **said})
    notice = line.finish(line.submit(pipeline(pool), documents(12)))
    assert (notice.counts.accepted, notice.counts.dead_letter) == (11, 1)
    (dead,) = settled(line, ItemOutcome.DEAD_LETTER)
    assert dead.source_id == "d7"
    assert dead.failure is not None
    assert (dead.failure.signal, dead.failure.param) == (Signal.BAD_REQUEST, field)
    assert simulator.ledger()["received"]["calls"] == 12


@pytest.mark.parametrize("pool", ["openai", "anthropic"])
def test_an_unknown_outcome_keeps_its_reservation(line: Line, simulator: Simulator, pool: str) -> None:
    """E2, P4: what may have been paid is counted as such, one by one, and covers what the provider billed unseen."""
    lost = ("number 3 ", "number 5 ")
    faults = [{"kind": "reset_after_billing", "match": match, "occurrences": [1]} for match in lost]
    give(simulator, *faults)
    notice = line.finish(line.submit(pipeline(pool), documents(12)))
    assert (notice.state, notice.counts.accepted) == (BatchState.PUBLISHED, 12)
    unknown = [a for a in line.told(AttemptAnswered, "attempt-answered") if a.state is AttemptState.UNKNOWN]
    ledger = simulator.ledger()
    assert len(unknown) == notice.totals.unknown_attempts == ledger["lost"]["calls"] == len(lost)
    assert all(attempt.cost_nano_usd is None for attempt in unknown)
    assert sum(attempt.reserved_nano_usd for attempt in unknown) >= ledger["money"]["lost_nano_usd"]
    assert notice.totals.cost_nano_usd == ledger["money"]["delivered_nano_usd"]
    assert notice.totals.attempts == 12 + len(lost)


@pytest.mark.parametrize("pool", ["openai", "responses", "anthropic"])
def test_a_refusal_goes_to_a_person_and_is_paid(line: Line, simulator: Simulator, pool: str) -> None:
    """Row 35: no blind retry; the tokens are on the job's bill."""
    give(simulator, answers=[{"match": "number 4 ", "form": "refused"}])
    notice = line.finish(line.submit(pipeline(pool), documents(10)))
    assert (notice.counts.accepted, notice.counts.in_review) == (9, 1)
    assert notice.totals.cost_nano_usd == simulator.ledger()["money"]["billed_nano_usd"]
    assert simulator.ledger()["billed"]["calls"] == 10


@pytest.mark.parametrize("pool", ["openai", "responses", "anthropic"])
def test_an_answer_that_is_cut_or_no_json_is_asked_for_once_more(line: Line, simulator: Simulator, pool: str) -> None:
    """Rows 32 and 38: one repair each, and a fence around an answer costs none."""
    forms = [("1 ", "length"), ("2 ", "prose"), ("3 ", "wrong_schema"), ("4 ", "fenced"), ("5 ", "empty")]
    rules = [{"regex": rf"number {number}end$", "form": form} for number, form in forms]
    give(simulator, answers=rules)
    notice = line.finish(line.submit(pipeline(pool), documents(10)))
    assert (notice.state, notice.counts.accepted) == (BatchState.PUBLISHED, 10)
    assert notice.totals.repairs == 4
    assert simulator.ledger()["billed"]["calls"] == 14


def test_an_answer_cut_at_its_limit_gets_twice_as_much(line: Line, simulator: Simulator) -> None:
    """Row 32: once, up to what every model takes."""
    give(simulator, answers=[{"regex": r"number 4 end$", "form": "length"}])
    notice = line.finish(line.submit(pipeline("openai"), documents(6)))
    assert (notice.counts.accepted, notice.totals.repairs) == (6, 1)
    assert sorted(each.max_output_tokens for each in minted(line)) == [32] * 6 + [64]


@pytest.mark.parametrize(
    ("pool", "fault"),
    [
        ("openai", {"kind": "client_error", "status": 408}),
        ("anthropic", {"kind": "client_error", "status": 408}),
        ("short", {"kind": "hang"}),
    ],
    ids=["408 openai", "408 anthropic", "deadline"],
)
def test_who_runs_out_of_time_twice_asks_for_half_and_loses_nothing(
    line: Line, simulator: Simulator, pool: str, fault: dict[str, Any]
) -> None:
    """Rows 11 and 23: half as many tokens the third time; the answer that is cut for it gets as many again."""
    give(simulator, {**fault, "first": 2}, answers=[{"regex": "end$", "form": "length"}])
    model = {"pools": [pool], "max_output_tokens": 600}
    notice = line.finish(line.submit(pipeline(pool, model=model), documents(1)))
    assert (notice.state, notice.counts.accepted, notice.totals.repairs) == (BatchState.PUBLISHED, 1, 1)
    assert {each.ordinal: each.max_output_tokens for each in minted(line)} == {1: 600, 2: 600, 3: 300, 4: 600}


@pytest.mark.parametrize("pool", ["openai", "anthropic"])
def test_a_body_that_nobody_can_read_is_in_the_dead_letter(line: Line, simulator: Simulator, pool: str) -> None:
    """Row 27: called again while the budget lasts; whoever opens the letter sees what came."""
    give(simulator, {"kind": "odd_body", "form": "bom", "match": "number 4 "})
    frozen = pipeline(pool, limits={"budget_usd": 5, "attempts": 2})
    notice = line.finish(line.submit(frozen, documents(6)))
    assert (notice.counts.accepted, notice.counts.dead_letter) == (5, 1)
    (dead,) = settled(line, ItemOutcome.DEAD_LETTER)
    assert (dead.failure is not None and dead.failure.signal, dead.totals.attempts) == (Signal.BODY_MALFORMED, 2)
    assert (dead.output or "").startswith("\ufeff{")


def test_what_a_version_removed_is_refused_before_anything_is_spent(line: Line, simulator: Simulator) -> None:
    """P4, row 16: with the rule's name and the remedy; the older version takes it."""
    model = {"pools": ["anthropic"], "max_output_tokens": 32, "temperature": 0.5}
    notice = line.finish(line.submit(pipeline("anthropic", model=model), documents(3)))
    assert notice.state is BatchState.REFUSED
    assert "temperature" in (notice.reason or "")
    assert "2026-10-21 has removed it" in (notice.reason or "")
    assert simulator.ledger()["received"]["calls"] == 0
    older = pipeline("older", model={**model, "pools": ["older"]})
    assert line.finish(line.submit(older, documents(3))).state is BatchState.PUBLISHED
