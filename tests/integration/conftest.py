"""A simulated provider for each file, and its books empty for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.bulk import PRICES, make_config
from kit.line import Line
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


@pytest.fixture
def line(simulator: Simulator, tmp_path: Path, kind: str) -> Iterator[Line]:
    """With a bulk lane to it."""
    line = Line(tmp_path, make_config(simulator.base_url, kind))
    yield line
    line.close()


@pytest.fixture
def kind() -> str:
    """The provider's name in pools.yaml; some tests run for several."""
    return "openai"
