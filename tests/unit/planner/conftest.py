"""Planners on a stage, closed when the test is over."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from unit.planner.makers import MakeStage, Stage


@pytest.fixture
def make_stage(tmp_path: Path) -> Iterator[MakeStage]:
    made: list[Stage] = []

    def make(**options: Any) -> Stage:
        made.append(Stage(tmp_path, **options))
        return made[-1]

    yield make
    for stage in made:
        stage.planner.close()
