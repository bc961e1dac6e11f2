"""A simulator for each file; nothing befalls in it and its books are empty when a test begins."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kit.simulator import Simulator


@pytest.fixture(scope="module")
def process() -> Iterator[Simulator]:
    with Simulator() as simulator:
        yield simulator


@pytest.fixture
def simulator(process: Simulator) -> Simulator:
    process.set_scenario({})
    process.reset()
    return process
