"""A clock that is set 30 s forth or back in the middle of a job, of the whole machine or of one service's host alone.

The line in one process, since nobody may set the clock of the machine that tests run on. The provider keeps its own.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kit import line as kit_line
from kit.line import SERVICES, Line
from kit.patience import PATIENCE_S
from kit.simulator import Simulator
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.settings import Config
from nightmill.provider_gateway.http import HttpCaller
from nightmill.publisher.results import read_rows

SLOTS = 8
ITEMS = 120
STEP_MS = 30_000
SCHEMA = {"type": "object", "properties": {"label": {"enum": ["a", "b", "c"]}}, "required": ["label"]}


@dataclass
class SteppedLine(Line):
    """A line whose services' clocks can be set apart from the real one."""

    ahead_ms: dict[str, int] = field(default_factory=dict)

    def step(self) -> None:
        self.broker.now_ms = kit_line.now_ms()
        for name, loop in self.loops.items():
            loop.step(self.clock_ms(name))

    def clock_ms(self, name: str) -> int:
        return kit_line.now_ms() + self.ahead_ms.get(name, 0)


@pytest.fixture(scope="module")
def provider() -> Iterator[Simulator]:
    with Simulator({"latency": {"fixed_ms": 40}}) as simulator:
        yield simulator


@pytest.fixture
def simulator(provider: Simulator) -> Simulator:
    # the highest concurrency is remembered with the scenario's life
    provider.set_scenario({"latency": {"fixed_ms": 40}})
    provider.reset()
    return provider


@pytest.fixture
def line(simulator: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SteppedLine]:
    pool = {
        "provider": "openai_compatible",
        "base_url": simulator.base_url,
        "model": "simulated",
        "limits": {"slots": SLOTS},
        "context_tokens": 2000,
        "sensitivity": "internal",
        "call_deadline": "5s",
    }
    price = {"input_usd_per_million": 0.15, "output_usd_per_million": 0.6}
    config = {
        "pools": {"sim": pool},
        "prices": {"version": "1", "models": {"simulated": price}},
        "retry": {"classes": {name: {"base": "0.05s", "cap": "0.2s"} for name in ("transient", "capacity", "account")}},
        "tenants": {"default": {"sensitivity": "restricted"}},
    }
    stepped: list[SteppedLine] = []

    class Calls(HttpCaller):
        """Its thread reads the gateway's clock."""

        def __init__(self, *arguments: object, **named: object) -> None:
            named["clock_ms"] = lambda: stepped[0].clock_ms("provider_gateway") if stepped else kit_line.now_ms()
            super().__init__(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(kit_line, "HttpCaller", Calls)
    made = SteppedLine(tmp_path, Config.model_validate(config))
    stepped.append(made)
    yield made
    made.close()


@pytest.mark.parametrize("step_ms", [STEP_MS, -STEP_MS], ids=["forth", "back"])
@pytest.mark.parametrize(
    "who", [SERVICES, ("provider_gateway",), ("rate_governor",)], ids=["all", "gateway", "governor"]
)
def test_a_stepped_clock_loses_nothing_and_grants_nothing_twice(
    line: SteppedLine, simulator: Simulator, who: tuple[str, ...], step_ms: int
) -> None:
    """E1, E2: every item is published once and paid once; never more calls at a time than the pool has slots."""
    pipeline = Pipeline.model_validate(
        {
            "name": "label",
            "input": {"id": "id", "fields": ["text"]},
            "prompt": "system:\nLabel the text.\nuser:\n{{ text }}",
            "output": SCHEMA,
            "model": {"pools": ["sim"], "max_output_tokens": 32},
            "limits": {"budget_usd": 5},
        }
    )
    job = line.submit(pipeline, [{"id": f"d{i}", "text": f"document number {i}"} for i in range(ITEMS)])
    line.run_until(lambda: simulator.ledger()["billed"]["calls"] >= ITEMS // 4, PATIENCE_S)
    line.ahead_ms = dict.fromkeys(who, step_ms)
    line.run_until(lambda: bool(line.completions(job)), PATIENCE_S)
    rows = list(read_rows(line.folder / "results" / "default.label"))
    assert Counter(row["_source_id"] for row in rows) == Counter(f"d{i}" for i in range(ITEMS))
    bill = simulator.ledger()
    assert bill["max_concurrency"] <= SLOTS
    assert bill["billed"]["calls"] == ITEMS
