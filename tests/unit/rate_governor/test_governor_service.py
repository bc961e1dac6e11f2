"""The handlers: an answer commits with the row; take-overs, ticks and unknown pools."""

from pathlib import Path

import pytest

from kit.partition import StagePartition
from nightmill.kernel.domain.settings import PoolLimits
from nightmill.kernel.runtime.service import NOTHING, ContractViolation
from nightmill.kernel.runtime.settings import read_settings
from nightmill.kernel.wire.messages import LeaseAmounts, LeaseGranted, LeaseRequested, LeaseStateRow
from nightmill.rate_governor.run import build
from nightmill.rate_governor.service import RateGovernor
from unit.rate_governor.lease_world import POOL, pool

LIMITS = PoolLimits(requests_per_minute=60, slots=4)


def _part(governor: RateGovernor, rows: dict[str, LeaseStateRow] | None = None) -> StagePartition:
    part = StagePartition(governor)
    part.table(LeaseStateRow).rows.update(rows or {})
    governor.on_open(part)
    return part


def _ask(seq: int, name: str = POOL) -> LeaseRequested:
    return LeaseRequested(
        pool=name,
        holder="mini@0-1",
        holder_partition=1,
        epoch=5,
        seq=seq,
        wants=LeaseAmounts(requests=3, input_tokens=0, output_tokens=0),
        wants_slots=2,
        used=LeaseAmounts(requests=0, input_tokens=0, output_tokens=0),
        reserved=LeaseAmounts(requests=0, input_tokens=0, output_tokens=0),
        slots_in_use=0,
        asked_at_ms=1,
    )


def test_an_ask_is_answered_once() -> None:
    """E2: the answer goes to the holder's own partition; the same ask again changes nothing."""
    governor = RateGovernor({POOL: pool(LIMITS)})
    part = _part(governor)
    decision = part.apply(governor.on_lease_requested(_ask(1), part))
    (granted,) = decision.send
    assert isinstance(granted, LeaseGranted)
    assert (granted.holder_partition, granted.granted.requests, granted.slots) == (1, 3, 2)
    assert part.table(LeaseStateRow).get(POOL).requests_level == 3_000
    assert governor.on_lease_requested(_ask(1), part) == NOTHING


def test_an_unknown_pool_is_a_broken_contract_with_a_remedy() -> None:
    governor = RateGovernor({})
    with pytest.raises(ContractViolation, match="not in pools.yaml.*same config folder"):
        governor.on_lease_requested(_ask(1, "elsewhere"), _part(governor))


def test_ticks_write_only_when_a_lease_lapses_or_its_slots_come_free() -> None:
    """E2. ttl 4 s + guard 1 s, then the call deadline of 5 s."""
    governor = RateGovernor({POOL: pool(LIMITS, call_deadline_s=5)})
    part = _part(governor)
    part.apply(governor.on_lease_requested(_ask(1), part))
    start_ms, written = part.now_ms, []
    for second in range(12):
        part.now_ms = start_ms + second * 1000
        if part.apply(governor.on_tick(part)).put:
            written.append(second)
    assert written == [5, 10]
    assert part.table(LeaseStateRow).get(POOL).holders == ()


def test_a_new_owner_starts_the_clock_at_zero() -> None:
    """E2: a restart a day later neither drains the level nor ends the lease."""
    first = RateGovernor({POOL: pool(LIMITS)})
    before = _part(first)
    before.apply(first.on_lease_requested(_ask(1), before))
    second = RateGovernor({POOL: pool(LIMITS)})
    after = _part(second, before.table(LeaseStateRow).rows)
    after.now_ms += 86_400_000
    (row,) = after.apply(second.on_tick(after)).put
    assert isinstance(row, LeaseStateRow)
    assert row.requests_level == 3_000
    assert row.holders[0].remaining_ms == 5_000
    assert second.on_tick(after).put == []


def test_a_pool_that_left_the_config_is_left_alone() -> None:
    governor = RateGovernor({POOL: pool(LIMITS)})
    before = _part(governor)
    before.apply(governor.on_lease_requested(_ask(1), before))
    without = RateGovernor({})
    assert without.on_tick(_part(without, before.table(LeaseStateRow).rows)).put == []


def test_build_reads_the_pools(tmp_path: Path) -> None:
    (tmp_path / "pools.yaml").write_text(
        "pools: {mini: {provider: openai_compatible, base_url: 'http://127.0.0.1:1', model: m, context_tokens: 100,"
        " limits: {slots: 1}}}\n"
    )
    (tmp_path / "prices.yaml").write_text("{version: '1', models: {}}\n")
    (tmp_path / "retry.yaml").write_text("classes: {}\n")
    (tmp_path / "tenants.yaml").write_text("tenants: {}\n")
    settings = read_settings({"NIGHTMILL_HOME": str(tmp_path), "NIGHTMILL_CONFIG": str(tmp_path)})
    governor = build(settings)
    assert isinstance(governor, RateGovernor)
    assert governor.on_lease_requested(_ask(1), _part(governor)).send
