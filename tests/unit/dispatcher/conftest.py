from pathlib import Path

import pytest

from unit.dispatcher.stage import A, Stage


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """A dispatcher whose batch A runs."""
    made = Stage(tmp_path)
    made.say(A)
    return made
