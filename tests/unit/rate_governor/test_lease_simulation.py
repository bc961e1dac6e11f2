"""Leases never exceed capacity, whatever is lost, repeated, reordered or restarted; and everybody is served in the end.

The world asserts the limits at every start; the tests choose what happens to it.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightmill.kernel.domain.settings import PoolLimits
from unit.rate_governor.lease_world import STEP_MS, Call, Network, World

ROUGH = Network(lost=0.15, repeated=0.15, slowest_ms=900)


@st.composite
def storms(draw: st.DrawFn) -> tuple[World, list[tuple[int, str, int]]]:
    """A world with work in it, and faults by step."""
    holders = draw(st.integers(1, 5))
    limits = PoolLimits(
        requests_per_minute=draw(st.sampled_from([None, 600, 6000])),
        input_tokens_per_minute=draw(st.sampled_from([None, 60_000])),
        output_tokens_per_minute=draw(st.sampled_from([None, 30_000])),
        slots=draw(st.integers(1, 12)),
    )
    seed = draw(st.integers(0, 1 << 20))
    world = World(
        limits,
        holders=holders,
        seed=seed,
        network=ROUGH,
        largest=Call(input_tokens=400, output_tokens=200),
    )
    for gateway in world.gateways:
        for _ in range(draw(st.integers(0, 30))):
            output_tokens = world.random.randint(0, 200)
            gateway.queue.append(
                Call(
                    input_tokens=world.random.randint(0, 400),
                    output_tokens=output_tokens,
                    used_output_tokens=world.random.randint(0, output_tokens),
                    lasts_ms=world.random.choice([20, 200, 4_000]),
                )
            )
    kinds = st.sampled_from(["governor", "gateway"])
    faults = draw(st.lists(st.tuples(st.integers(0, 15_000), kinds, st.integers(0, 7)), max_size=8))
    return world, sorted(faults)


@settings(max_examples=40, deadline=None)
@given(storms())
def test_no_storm_exceeds_the_limits_or_starves_a_holder(storm: tuple[World, list[tuple[int, str, int]]]) -> None:
    """E2: limits hold over all processes. E3: who has no lease waits, and is served in the end."""
    world, faults = storm
    for at_ms, kind, which in faults:
        world.run(max(0, at_ms - (world.now_ms - 1_796_000_000_000)))
        if kind == "governor":
            world.restart_governor(away_ms=which * 400)
        else:
            world.restart_gateway(which % len(world.gateways))
    world.network = Network()
    world.run(300_000, until=world.idle)
    assert world.idle()


def _saturated(limits: PoolLimits, holders: int, call: Call, for_ms: int, queued: int = 100) -> World:
    """Every holder always has `queued` calls waiting."""
    world = World(limits, holders=holders, largest=call)
    _run_busy(world, call, for_ms, queued)
    return world


def _run_busy(world: World, call: Call, for_ms: int, queued: int) -> None:
    for _ in range(for_ms // STEP_MS):
        for gateway in world.gateways:
            gateway.queue.extend([call] * (queued - len(gateway.queue)))
        world.run(STEP_MS)


@pytest.mark.parametrize("holders", [1, 2, 5, 12])
def test_a_token_limit_is_used_up(holders: int) -> None:
    """E2. 60,000 tokens a minute are 1,000 a second: 10 calls of 100 tokens, 600 in the minute that is watched."""
    limits = PoolLimits(input_tokens_per_minute=60_000, slots=50)
    world = _saturated(limits, holders, Call(input_tokens=100), 60_000)
    started = [gateway.started for gateway in world.gateways]
    assert sum(started) >= 0.9 * 600
    assert min(started) >= 0.5 * sum(started) / holders


@pytest.mark.parametrize("lasts_ms", [200, 4_000])
def test_tokens_that_were_not_used_are_used_by_other_calls(lasts_ms: int) -> None:
    """E2: settled with actual use. Reserved 200, used 20: 1,000 tokens a second are 50 calls a second, not 5."""
    limits = PoolLimits(output_tokens_per_minute=60_000, slots=200)
    world = _saturated(limits, 2, Call(output_tokens=200, used_output_tokens=20, lasts_ms=lasts_ms), 60_000)
    started = sum(gateway.started for gateway in world.gateways)
    _run_busy(world, Call(output_tokens=200, used_output_tokens=20, lasts_ms=lasts_ms), 60_000, queued=100)
    assert sum(gateway.started for gateway in world.gateways) - started >= 0.9 * 50 * 60


@pytest.mark.parametrize("holders", [1, 2, 7])
def test_slots_are_never_idle(holders: int) -> None:
    """E2. 21 slots with calls of 200 ms are 105 starts a second; half a minute makes 3,150."""
    world = _saturated(PoolLimits(slots=21), holders, Call(lasts_ms=200), 30_000)
    assert world.busiest == 21
    assert sum(gateway.started for gateway in world.gateways) >= 0.9 * 3_150


def test_more_holders_than_slots_take_turns() -> None:
    """E2. One slot, three holders: 5 starts a second in all, and nobody goes without."""
    world = _saturated(PoolLimits(slots=1), 3, Call(lasts_ms=200), 60_000)
    started = [gateway.started for gateway in world.gateways]
    assert sum(started) >= 0.7 * 300
    assert min(started) >= 0.2 * sum(started)


def test_two_hundred_calls_in_flight_need_an_ask_in_two_seconds() -> None:
    """E2. 200 slots, calls of 200 ms: in flight all the time, and an ask at each half life of 2 s."""
    call = Call(lasts_ms=200)
    world = World(PoolLimits(slots=200), holders=1, network=Network(slowest_ms=300))
    gateway = world.gateways[0]
    _run_busy(world, call, 3_000, queued=400)
    started, asks = gateway.started, gateway.asks
    for _ in range(20_000 // STEP_MS):
        _run_busy(world, call, STEP_MS, queued=400)
        assert gateway.holder.in_flight == 200
    assert gateway.started - started == 20_000
    assert gateway.asks - asks <= 11


def test_an_instant_provider_does_not_wait_for_kafka() -> None:
    """E2. Calls of one step and no limit but 200 slots: 10,000 starts a second, though an answer takes 300 ms."""
    call = Call(lasts_ms=STEP_MS)
    world = World(PoolLimits(slots=200), holders=1, network=Network(slowest_ms=300))
    _run_busy(world, call, 3_000, queued=400)
    started = world.gateways[0].started
    _run_busy(world, call, 5_000, queued=400)
    assert world.gateways[0].started - started == 50_000


def test_a_call_larger_than_the_burst_is_let_through_and_paid_off() -> None:
    """E3. 6,000 tokens a minute have a burst of 500; calls of 900 still go, one in 9 s."""
    limits = PoolLimits(input_tokens_per_minute=6_000, slots=4)
    world = _saturated(limits, 3, Call(input_tokens=900), 90_000)
    assert 0.7 * 10 <= sum(gateway.started for gateway in world.gateways) <= 12


def test_a_holder_that_stops_leaves_its_slots_to_the_others() -> None:
    """E2: what is not wanted any more is free for others as soon as its holder says so."""
    world = World(PoolLimits(slots=10), holders=2, network=Network())
    first, second = world.gateways
    first.queue.extend([Call()] * 20)
    world.run(8_000)
    assert first.started == 20
    second.queue.extend([Call(lasts_ms=3_000)] * 10)
    world.run(1_000)
    assert second.holder.in_flight == 10
