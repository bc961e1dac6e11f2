"""Every service on the memory log, with pools at a provider that is as strict as the real ones."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.failures.strict import POOLS, RATES, give
from kit.line import Line
from kit.simulator import Simulator
from nightmill.kernel.domain.settings import Config


@pytest.fixture
def simulator(provider: Simulator) -> Simulator:
    provider.reset()
    give(provider)
    return provider


@pytest.fixture
def line(simulator: Simulator, tmp_path: Path) -> Iterator[Line]:
    key = tmp_path / "key"
    key.write_text("sk-good")
    key.chmod(0o600)
    common: dict[str, Any] = {
        "base_url": simulator.base_url,
        "key": {"file": str(key)},
        "limits": {"slots": 8},
        "context_tokens": 4000,
        "call_deadline": "30s",
    }
    config = {
        "pools": {name: {**common, **pool} for name, pool in POOLS.items()},
        "prices": {"version": "1", "models": {"gpt-6-luna": RATES, "claude-haiku-5-5": RATES}},
        "retry": {"classes": {name: {"base": "0.05s", "cap": "0.2s"} for name in ("transient", "capacity", "account")}},
        "tenants": {"default": {"sensitivity": "restricted"}},
    }
    line = Line(tmp_path, Config.model_validate(config))
    yield line
    line.close()
