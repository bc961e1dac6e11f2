"""A gateway on its stage, and a caller at its desk: closed when the test is over."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from unit.provider_gateway.caller_desk import Desk
from unit.provider_gateway.stage import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.close()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.close()
