"""A simulated provider for each file, and its books empty for each test."""

from collections.abc import Iterator

import pytest

from integration.bulk import PRICES
from kit.simulator import Simulator


@pytest.fixture(scope="module")
def provider() -> Iterator[Simulator]:
    with Simulator() as simulator:
        yield simulator


@pytest.fixture
def simulator(provider: Simulator) -> Simulator:
    """Nothing befalls, and the pools of `bulk.make_config` cost what the price book says; some files want another."""
    provider.set_scenario({"prices": PRICES})
    provider.reset()
    return provider
