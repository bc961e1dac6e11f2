"""The short form of `python tests/chaos --bulk`: the gateway dies twice in the middle of one batch job."""

from collections.abc import Iterator
from typing import Any

import pytest

from chaos.bulk.plan import BulkPlan, Moment
from chaos.bulk.run import carry_out
from chaos.bulk.workload import configure, sound
from chaos.installation import Installation
from chaos.run import Limits
from kit.patience import PATIENCE_S
from kit.simulator import Simulator

ITEMS = 1_000
#: more than there are for each of two pools with two partitions: everything is sent at once, and nothing comes after it
SUBMISSION = 400
#: when its batches are at the provider, and when the first results are in publication
MOMENTS = (Moment(create=4, delay_s=2.5), Moment(settled=0.2))
#: the results of one provider come so much later, so that there is a time between, however quick the line is
_APART_MS = 6_000


def apart(seed: int) -> dict[str, Any]:
    base = sound(seed)
    return {**base, "faults": [{"kind": "slow", "on": ["batch_results"], "delay_ms": _APART_MS}, *base["faults"]]}


@pytest.fixture
def provider() -> Iterator[Simulator]:
    with Simulator() as simulator:
        yield simulator


@pytest.fixture
def site(provider: Simulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    site = Installation(tmp_path_factory.mktemp("chaos"), provider.base_url, slots=20)
    configure(site.laptop, SUBMISSION)
    try:
        site.laptop.up()
        yield site
    finally:
        site.laptop.close()


def test_a_killed_gateway_loses_no_item_and_pays_no_batch_twice(site: Installation, provider: Simulator) -> None:
    """E1, E6, M4, O1."""
    limits = Limits(items=ITEMS, patience_s=PATIENCE_S)
    result = carry_out(BulkPlan(number=1, moments=MOMENTS), site, provider, limits, scenario=apart)
    assert result.findings.broken == [], result
    assert len(result.findings.kills) == len(MOMENTS)
