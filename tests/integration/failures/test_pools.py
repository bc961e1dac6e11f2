"""What a failure of a provider does to a pool: paused until its time, halved, or stopped and told.

The simulator's books are the oracle of what was called and paid, and when.
"""

import time
from typing import Any

import pytest

from integration.bulk import documents
from integration.failures.strict import give, minted, pipeline, settled
from kit.line import Line
from kit.simulator import Simulator
from nightmill.kernel.domain.lifecycle import BatchState, ItemOutcome
from nightmill.kernel.wire.messages import AttemptAnswered, ItemSettled, StallReported
from nightmill.provider_gateway.failures import Signal


@pytest.mark.parametrize(
    ("form", "least_ms"), [("seconds", 2_000), ("milliseconds", 2_000), ("http_date", 1_000)]
)  # a date has whole seconds
def test_a_rate_limit_pauses_the_pool_until_the_providers_time(
    line: Line, simulator: Simulator, form: str, least_ms: int
) -> None:
    """E9: one call is refused, and none is sent before its time; no item fails."""
    give(simulator, {"kind": "rate_limited", "first": 1, "retry_after": form, "retry_after_s": 2})
    notice = line.finish(line.submit(pipeline("single"), documents(20)))
    assert (notice.state, notice.counts.accepted) == (BatchState.PUBLISHED, 20)
    first, second, *rest = simulator.attempts(refused=True)
    assert (first["status"], len(rest)) == (429, 19)
    assert second["started_at_ms"] - first["ended_at_ms"] >= least_ms
    assert notice.totals.retries == 0


def test_a_rate_limit_lets_in_no_more_than_was_on_its_way(line: Line, simulator: Simulator) -> None:
    """E9: with eight slots, seven other calls may have left before the refusal came back; nothing follows them."""
    give(simulator, {"kind": "rate_limited", "first": 8, "retry_after_s": 2})
    notice = line.finish(line.submit(pipeline("openai"), documents(40)))
    assert (notice.state, notice.counts.accepted) == (BatchState.PUBLISHED, 40)
    first, *others = simulator.attempts(refused=True)
    early = [row for row in others if row["started_at_ms"] < first["ended_at_ms"] + 2_000]
    assert len(early) <= 7
    assert notice.totals.retries == 0


def test_who_is_asked_to_slow_down_goes_on_with_half(line: Line, simulator: Simulator) -> None:
    """Row 3: of eight slots four, for the next quarter of an hour."""
    give(simulator, {"kind": "slow_down", "first": 1, "retry_after_s": 0}, latency={"fixed_ms": 120})
    notice = line.finish(line.submit(pipeline("openai"), documents(40)))
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
    ("anthropic", {"kind": "spend_limit", "form": "own"}, "until 2027-01-01", Signal.BILLING),
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
    notice = line.finish(job)
    assert (notice.state, notice.counts.accepted) == (BatchState.PUBLISHED, 30)
    assert simulator.ledger()["billed"]["calls"] == 30


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
