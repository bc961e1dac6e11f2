"""One simulator for the folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.faults.site import Site
from kit.simulator import Simulator


@pytest.fixture(scope="session")
def process() -> Iterator[Simulator]:
    with Simulator() as simulator:
        yield simulator


@pytest.fixture
def site(process: Simulator) -> Site:
    """A provider without faults and with empty books."""
    made = Site(process)
    made.play({})
    return made
