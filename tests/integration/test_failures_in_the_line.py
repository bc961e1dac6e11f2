"""What a failure of a provider does to a job: every service on the memory log, providers as strict as the real ones.

The simulator's books are the oracle of what was called and paid, and when.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.line import Line
from kit.simulator import Simulator
from nightmill.kernel.domain.lifecycle import AttemptState, BatchState, ItemOutcome
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.settings import Config
from nightmill.kernel.wire.messages import (
    AttemptAnswered,
    ItemSettled,
    JobCompleted,
    ShardAttempt,
    ShardDispatched,
    StallReported,
)
from nightmill.provider_gateway.failures import Signal

SCHEMA = {
    "type": "object",
    "properties": {"label": {"enum": ["a", "b", "c"]}},
    "required": ["label"],
    "additionalProperties": False,
}
#: what both providers ask for their small models, as of 2026-11-29
RATES = {
    "input_usd_per_million": 0.10,
    "cached_usd_per_million": 0.01,
    "cache_write_usd_per_million": 0.125,
    "cache_write_1h_usd_per_million": 0.20,
    "output_usd_per_million": 0.50,
}
POOLS: dict[str, dict[str, Any]] = {
    "openai": {"provider": "openai", "model": "gpt-6-luna"},
    "responses": {"provider": "openai", "model": "gpt-6-luna", "api": "responses"},
    "anthropic": {"provider": "anthropic", "model": "claude-haiku-5-5"},
    "older": {"provider": "anthropic", "model": "claude-haiku-5-5", "anthropic_version": "2023-06-01"},
    "single": {"provider": "openai", "model": "gpt-6-luna", "limits": {"slots": 1}},
    "short": {"provider": "openai", "model": "gpt-6-luna", "call_deadline": "2s"},
}


@pytest.fixture
def simulator(provider: Simulator) -> Simulator:
    provider.reset()
    give(provider)
    return provider


@pytest.fixture
def line(simulator: Simulator, tmp_path: Path) -> Iterator[Line]:
    key = tmp_path / "key"
    key.write_text("sk-good")
    key.chmod(0o600)
    common: dict[str, Any] = {
        "base_url": simulator.base_url,
        "key": {"file": str(key)},
        "limits": {"slots": 8},
        "context_tokens": 4000,
        "call_deadline": "30s",
    }
    config = {
        "pools": {name: {**common, **pool} for name, pool in POOLS.items()},
        "prices": {"version": "1", "models": {"gpt-6-luna": RATES, "claude-haiku-5-5": RATES}},
        "retry": {"classes": {name: {"base": "0.05s", "cap": "0.2s"} for name in ("transient", "capacity", "account")}},
        "tenants": {"default": {"sensitivity": "restricted"}},
    }
    line = Line(tmp_path, Config.model_validate(config))
    yield line
    line.close()


def give(simulator: Simulator, *faults: dict[str, Any], **scenario: Any) -> None:
    simulator.set_scenario({"dialect": "openai", "faults": list(faults), **scenario})


def pipeline(pool: str, **fields: Any) -> Pipeline:
    base: dict[str, Any] = {
        "name": "label",
        "input": {"id": "id", "fields": ["text"]},
        "prompt": "system:\nLabel the text.\nuser:\n{{ text }}",
        "output": SCHEMA,
        "model": {"pools": [pool], "max_output_tokens": 32},
        "limits": {"budget_usd": 5},
        "gates": {"completion": 0.5},
        "publish": {"partial": True},
    }
    return Pipeline.model_validate({**base, **fields})


def documents(count: int) -> list[dict[str, Any]]:
    return [{"id": f"d{i}", "text": f"document number {i} end"} for i in range(count)]


def finish(line: Line, job: str) -> JobCompleted:
    line.run_until(lambda: bool(line.completions(job)))
    return line.completions(job)[-1]


def settled(line: Line, outcome: ItemOutcome) -> list[ItemSettled]:
    return [item for item in line.told(ItemSettled, "item-settled") if item.outcome is outcome]


def minted(line: Line) -> list[ShardAttempt]:
    return [each for shard in line.told(ShardDispatched, "shard-dispatched") for each in shard.attempts]


@pytest.mark.parametrize("pool", ["openai", "responses", "anthropic", "older"])
def test_a_job_at_each_provider_costs_what_the_provider_bills(line: Line, simulator: Simulator, pool: str) -> None:
    """P4, E12: four classes of tokens, priced apart; the spend of the job is the bill, to the nano-dollar."""
    usage = {"cached": 0.3, "cache_write": 0.2}
    give(simulator, answers=[{"rate": 0.5, "usage": usage}])
    notice = finish(line, line.submit(pipeline(pool), documents(60)))
    assert (notice.state, notice.counts.accepted) == (BatchState.PUBLISHED, 60)
    ledger = simulator.ledger()
    assert notice.totals.attempts == ledger["billed"]["calls"] == 60
    assert notice.totals.input_tokens == ledger["billed"]["prompt_tokens"]
    assert 0 < notice.totals.cached_tokens == sum(row["billed_cached_tokens"] for row in simulator.attempts())
    assert notice.totals.cost_nano_usd == ledger["money"]["billed_nano_usd"]


@pytest.mark.parametrize(
    ("form", "least_ms"), [("seconds", 2_000), ("milliseconds", 2_000), ("http_date", 1_000)]
)  # a date has whole seconds
def test_a_rate_limit_pauses_the_pool_until_the_providers_time(
    line: Line, simulator: Simulator, form: str, least_ms: int
) -> None:
    """E9: one call is refused, and none is sent before its time; no item fails."""
    give(simulator, {"kind": "rate_limited", "first": 1, "retry_after": form, "retry_after_s": 2})
    notice = finish(line, line.submit(pipeline("single"), documents(20)))
    assert (notice.state, notice.counts.accepted) == (BatchState.PUBLISHED, 20)
    first, second, *rest = simulator.attempts(refused=True)
    assert (first["status"], len(rest)) == (429, 19)
    assert second["started_at_ms"] - first["ended_at_ms"] >= least_ms
    assert notice.totals.retries == 0


def test_a_rate_limit_lets_in_no_more_than_was_on_its_way(line: Line, simulator: Simulator) -> None:
    """E9: with eight slots, seven other calls may have left before the refusal came back; nothing follows them."""
    give(simulator, {"kind": "rate_limited", "first": 8, "retry_after_s": 2})
    notice = finish(line, line.submit(pipeline("openai"), documents(40)))
    assert (notice.state, notice.counts.accepted) == (BatchState.PUBLISHED, 40)
    first, *others = simulator.attempts(refused=True)
    early = [row for row in others if row["started_at_ms"] < first["ended_at_ms"] + 2_000]
    assert len(early) <= 7
    assert notice.totals.retries == 0


def test_who_is_asked_to_slow_down_goes_on_with_half(line: Line, simulator: Simulator) -> None:
    """Row 3: of eight slots four, for the next quarter of an hour."""
    give(simulator, {"kind": "slow_down", "first": 1, "retry_after_s": 0}, latency={"fixed_ms": 120})
    notice = finish(line, line.submit(pipeline("openai"), documents(40)))
    assert (notice.state, notice.totals.retries) == (BatchState.PUBLISHED, 0)
    _, *rest = simulator.attempts(refused=True)
    # seven may have left before the refusal came back, and as many while it was on its way through the line
    later = sorted(rest, key=lambda row: row["started_at_ms"])[14:]
    together = [sum(a["started_at_ms"] <= b["started_at_ms"] < a["ended_at_ms"] for a in later) for b in later]
    assert len(later) >= 8
    assert max(together) <= 4


ACCOUNT: list[tuple[str, dict[str, Any], str, Signal]] = [
    ("openai", {"kind": "unauthorized"}, "check key in pools.yaml", Signal.KEY_REFUSED),
    ("openai", {"kind": "quota_exhausted", "code": "credit_balance_exhausted"}, "no credit", Signal.OUT_OF_CREDIT),
    ("anthropic", {"kind": "spend_limit", "form": "own", "retry_after": "missing"}, "until 2027-01-01", Signal.BILLING),
    ("anthropic", {"kind": "redirect"}, "base_url", Signal.REDIRECT),
]


@pytest.mark.parametrize(("pool", "fault", "words", "signal"), ACCOUNT, ids=[case[3] for case in ACCOUNT])
def test_an_account_failure_stops_the_pool_and_keeps_every_item(
    line: Line, simulator: Simulator, pool: str, fault: dict[str, Any], words: str, signal: Signal
) -> None:
    """E8: told to people once, no item is spent on it; when the account is mended the job goes on."""
    give(simulator, fault)
    job = line.submit(pipeline(pool), documents(30))
    line.run_until(lambda: any(stall.pool == pool for stall in line.told(StallReported, "stall-reported")))
    for _ in range(100):
        line.step()
    (stall,) = [stall for stall in line.told(StallReported, "stall-reported") if stall.pool == pool]
    assert f"pool {pool} is stopped" in (stall.reason or "")
    assert words in (stall.reason or "")
    assert stall.until_ms is not None
    failed = [answered.failure for answered in line.told(AttemptAnswered, "attempt-answered")]
    assert {failure.signal for failure in failed if failure} == {signal}
    assert simulator.ledger()["received"]["calls"] <= 8  # those that were under way together, and none after
    assert line.told(ItemSettled, "item-settled") == []
    give(simulator)
    line.loops.pop("provider_gateway").close()
    line.start("provider_gateway")
    notice = finish(line, job)
    assert (notice.state, notice.counts.accepted) == (BatchState.PUBLISHED, 30)
    assert simulator.ledger()["billed"]["calls"] == 30


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
    notice = finish(line, line.submit(pipeline(pool), documents(12)))
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
    notice = finish(line, line.submit(pipeline(pool), documents(12)))
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
    notice = finish(line, line.submit(pipeline(pool), documents(10)))
    assert (notice.counts.accepted, notice.counts.in_review) == (9, 1)
    assert notice.totals.cost_nano_usd == simulator.ledger()["money"]["billed_nano_usd"]
    assert simulator.ledger()["billed"]["calls"] == 10


@pytest.mark.parametrize("pool", ["openai", "responses", "anthropic"])
def test_an_answer_that_is_cut_or_no_json_is_asked_for_once_more(line: Line, simulator: Simulator, pool: str) -> None:
    """Rows 32 and 38: one repair each, and a fence around an answer costs none."""
    forms = [("1 ", "length"), ("2 ", "prose"), ("3 ", "wrong_schema"), ("4 ", "fenced"), ("5 ", "empty")]
    rules = [{"regex": rf"number {number}end$", "form": form} for number, form in forms]
    give(simulator, answers=rules)
    notice = finish(line, line.submit(pipeline(pool), documents(10)))
    assert (notice.state, notice.counts.accepted) == (BatchState.PUBLISHED, 10)
    assert notice.totals.repairs == 4
    assert simulator.ledger()["billed"]["calls"] == 14


def test_an_answer_cut_at_its_limit_gets_twice_as_much(line: Line, simulator: Simulator) -> None:
    """Row 32: once, up to what every model takes."""
    give(simulator, answers=[{"regex": r"number 4 end$", "form": "length"}])
    notice = finish(line, line.submit(pipeline("openai"), documents(6)))
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
    notice = finish(line, line.submit(pipeline(pool, model=model), documents(1)))
    assert (notice.state, notice.counts.accepted, notice.totals.repairs) == (BatchState.PUBLISHED, 1, 1)
    assert {each.ordinal: each.max_output_tokens for each in minted(line)} == {1: 600, 2: 600, 3: 300, 4: 600}


def test_a_tenant_whose_prompts_are_filtered_again_and_again_goes_slowly(line: Line, simulator: Simulator) -> None:
    """Row 36: told to people, who get every filtered prompt; the account sees ten a minute more, not all of them."""
    give(simulator, {"kind": "client_error", "status": 400, "code": "content_policy_violation"})
    line.submit(pipeline("single"), documents(400))
    line.run_until(lambda: any("filtered" in (s.reason or "") for s in line.told(StallReported, "stall-reported")))
    before = -1
    while len(minted(line)) != before:  # until what was on its way is back, and nothing follows for a second
        before, until_s = len(minted(line)), time.monotonic() + 1
        while time.monotonic() < until_s or len(settled(line, ItemOutcome.IN_REVIEW)) != len(minted(line)):
            for _ in range(50):
                line.step()
    assert before <= 300  # two partitions, each with twenty, three seconds of what came back, and ten in a minute
    told = [stall for stall in line.told(StallReported, "stall-reported") if stall.reason]
    assert {stall.stall_id for stall in told} == {"dispatcher@0/tenant default"}
    assert "tenant default" in (told[-1].reason or "")
    assert len(settled(line, ItemOutcome.IN_REVIEW)) == simulator.ledger()["received"]["calls"] == before


@pytest.mark.parametrize("pool", ["openai", "anthropic"])
def test_a_body_that_nobody_can_read_is_in_the_dead_letter(line: Line, simulator: Simulator, pool: str) -> None:
    """Row 27: called again while the budget lasts; whoever opens the letter sees what came."""
    give(simulator, {"kind": "odd_body", "form": "bom", "match": "number 4 "})
    frozen = pipeline(pool, limits={"budget_usd": 5, "attempts": 2})
    notice = finish(line, line.submit(frozen, documents(6)))
    assert (notice.counts.accepted, notice.counts.dead_letter) == (5, 1)
    (dead,) = settled(line, ItemOutcome.DEAD_LETTER)
    assert (dead.failure is not None and dead.failure.signal, dead.totals.attempts) == (Signal.BODY_MALFORMED, 2)
    assert (dead.output or "").startswith("\ufeff{")


@pytest.mark.parametrize("pool", ["openai", "anthropic"])
def test_web_pages_in_a_row_stop_the_pool(line: Line, simulator: Simulator, pool: str) -> None:
    """Row 28: a proxy or a wrong address answers with pages for everything: told, and no item is given up for it."""
    give(simulator, {"kind": "html", "status": 200})
    job = line.submit(pipeline(pool), documents(30))
    line.run_until(lambda: any(stall.pool == pool for stall in line.told(StallReported, "stall-reported")))
    for _ in range(100):
        line.step()
    assert "web pages" in (line.told(StallReported, "stall-reported")[-1].reason or "")
    assert line.told(ItemSettled, "item-settled") == []
    assert line.completions(job) == []


def test_what_a_version_removed_is_refused_before_anything_is_spent(line: Line, simulator: Simulator) -> None:
    """P4, row 16: with the rule's name and the remedy; the older version takes it."""
    model = {"pools": ["anthropic"], "max_output_tokens": 32, "temperature": 0.5}
    notice = finish(line, line.submit(pipeline("anthropic", model=model), documents(3)))
    assert notice.state is BatchState.REFUSED
    assert "temperature" in (notice.reason or "")
    assert "2026-10-21 has removed it" in (notice.reason or "")
    assert simulator.ledger()["received"]["calls"] == 0
    older = pipeline("older", model={**model, "pools": ["older"]})
    assert finish(line, line.submit(older, documents(3))).state is BatchState.PUBLISHED
