"""The short form of `make chaos`: six kills in the middle of jobs, judged by the provider's own books."""

from collections.abc import Iterator

import pytest

from chaos.installation import Installation
from chaos.plan import SHORT_CYCLE, Plan, plans
from chaos.run import Limits, carry_out
from kit.patience import PATIENCE_S
from kit.simulator import Simulator

SEED = 1
SLOTS = 40
#: a pause is longer than a session of 6 s
LIMITS = Limits(items=400, pause_s=8.0, patience_s=PATIENCE_S)
PLANS = tuple(plans(len(SHORT_CYCLE), SEED, SHORT_CYCLE))


@pytest.fixture(scope="module")
def provider() -> Iterator[Simulator]:
    with Simulator() as simulator:
        yield simulator


@pytest.fixture(scope="module")
def installation(provider: Simulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    site = Installation(tmp_path_factory.mktemp("chaos"), provider.base_url, slots=SLOTS)
    try:
        site.up()
        yield site
    finally:
        site.down()


@pytest.mark.parametrize("plan", PLANS, ids=[plan.fault.name for plan in PLANS])
def test_nothing_is_lost_and_only_calls_in_flight_are_paid_twice(
    plan: Plan, installation: Installation, provider: Simulator
) -> None:
    """E1, E2, E11, M4, O1: whatever dies and whenever."""
    result = carry_out(plan, installation, provider, LIMITS)
    assert result.findings.broken == [], result
