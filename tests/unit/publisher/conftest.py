"""The world around the publisher, one for each test."""

from pathlib import Path

import pytest

from unit.publisher.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
