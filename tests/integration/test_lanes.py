"""Lane choice in the whole line: bulk while the deadline allows it, realtime when it does not, nothing twice."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from integration.bulk import PRICES, billed_lines, documents, make_config, open_submissions, pipeline, published
from kit.line import Line
from kit.simulator import Simulator
from nightmill.api.board import Board
from nightmill.api.findings import LaneNote
from nightmill.api.lane_notes import lane_notes
from nightmill.kernel.domain.ids import batch_id
from nightmill.kernel.domain.lifecycle import BatchState, Lane
from nightmill.kernel.domain.pipeline import Pipeline, Sensitivity
from nightmill.kernel.domain.settings import PoolLimits
from nightmill.kernel.wire.messages import AttemptAnswered, LaneChoiceRow

OpenLine = Callable[..., Line]


@pytest.fixture
def open_line(simulator: Simulator, tmp_path: Path) -> Iterator[OpenLine]:
    opened: list[Line] = []

    def open_(provider: str = "openai", slots: int = 20, see: str = "internal", **bulk: Any) -> Line:
        config = make_config(simulator.base_url, provider, **bulk)
        changes: dict[str, Any] = {"call_deadline": 2.0, "limits": PoolLimits(slots=slots)}
        pools = {name: pool.model_copy(update=changes) for name, pool in config.pools.items()}
        pools["sim"] = pools["sim"].model_copy(update={"sensitivity": Sensitivity(see)})
        opened.append(Line(tmp_path, config.model_copy(update={"pools": pools})))
        return opened[-1]

    yield open_
    for line in opened:
        line.close()


def by_lane(line: Line) -> Counter[tuple[str, Lane, str]]:
    """Attempts by pool, lane and end."""
    return Counter((each.pool, each.lane, each.state) for each in line.told(AttemptAnswered, "attempt-answered"))


def has_choice(line: Line, field: str) -> bool:
    """Whether a choice of a lane tells this time."""
    return any(getattr(row, field) is not None for row in line.told(LaneChoiceRow, "dispatcher-lane-choice"))


def notes_of(line: Line, job: str, frozen: Pipeline) -> dict[str, list[LaneNote]]:
    """What `explain` says of the lane of each document."""
    rows = {row.choice_id: row for row in line.told(LaneChoiceRow, "dispatcher-lane-choice")}
    board = Board(lanes=rows, partitions=line.log.partitions)
    items = {each.source_id: each.item_key for each in line.told(AttemptAnswered, "attempt-answered")}
    return {name: lane_notes(board, line.config, frozen, batch_id(job), key) for name, key in items.items()}


def test_time_enough_goes_bulk_for_half_the_price(open_line: OpenLine, simulator: Simulator) -> None:
    """P5, P6: the pool without a bulk lane is left out, and the reason says so."""
    line = open_line()
    frozen = pipeline(
        lane={"bulk": "over 20s"},
        limits={"deadline": "5m"},
        model={"pools": ["realtime", "sim"], "max_output_tokens": 32},
    )
    job = line.submit(frozen, documents(30))
    assert line.finish(job).state is BatchState.PUBLISHED
    assert by_lane(line) == {("sim", Lane.BULK, "answered"): 30}
    assert len(billed_lines(simulator)) == 30
    for (note,) in notes_of(line, job, frozen).values():
        assert note.lane is Lane.BULK
        assert "left until the deadline, more than 20 s" in note.reason
        assert note.reason.endswith("pools: sim; not realtime: has no bulk lane")


def test_too_little_time_goes_realtime(open_line: OpenLine, simulator: Simulator) -> None:
    """P5."""
    line = open_line()
    frozen = pipeline(lane={"bulk": "over 2m"}, limits={"deadline": "1m"})
    job = line.submit(frozen, documents(30))
    assert line.finish(job).state is BatchState.PUBLISHED
    assert by_lane(line) == {("sim", Lane.REALTIME, "answered"): 30}
    assert billed_lines(simulator) == []
    for (note,) in notes_of(line, job, frozen).values():
        assert note.lane is Lane.REALTIME
        assert "left until the deadline, bulk is for more than 2 min" in note.reason


@pytest.mark.parametrize(
    ("provider_kind", "killed"), [("anthropic", ()), ("openai", ("dispatcher", "provider_gateway"))]
)
def test_a_deadline_in_danger_moves_what_is_not_submitted_and_calls_the_rest_back(
    open_line: OpenLine, simulator: Simulator, provider_kind: str, killed: tuple[str, ...]
) -> None:
    """P5, E1, E6: one stuck batch and a queue behind it: every document is published, and each is paid once.

    Also when services die right after the move, and again right after the call back.
    """
    stuck = {"kind": "batch_stuck", "keep": 0.5, "first": 4}
    simulator.set_scenario({"prices": PRICES, "faults": [stuck]})
    # 600 tokens are enqueued at most: the provider has some submissions, the gateway waits with more, the rest is ready
    line = open_line(provider_kind, slots=60, max_requests=5, enqueued_tokens=600)
    frozen = pipeline(lane={"bulk": "over 8s"}, limits={"deadline": "12s", "budget_usd": 5})
    job = line.submit(frozen, documents(60))
    for field in ("moved_at_ms", "recalled_at_ms"):
        line.run_until(partial(has_choice, line, field))
        for name in killed:
            line.kill(name)
            line.start(name)
    notice = line.finish(job)
    assert notice.state is BatchState.PUBLISHED
    assert published(line) == Counter(f"d{i}" for i in range(60))
    bill = [row for row in simulator.attempts() if row["billed"]]
    assert len(bill) == 60
    assert (notice.totals.attempts, notice.totals.unknown_attempts, notice.totals.retries) == (60, 0, 0)
    assert notice.totals.cost_nano_usd == sum(row["billed_nano_usd"] for row in bill)
    line.run_until(lambda: not open_submissions(line))
    # each life of the gateway has a folder of its own here, so that a killed one may have left something
    assert killed or list(line.folder.glob("bulk-*/*.results")) == []
    ended = by_lane(line)
    in_bulk, in_realtime = ended["sim", Lane.BULK, "answered"], ended["sim", Lane.REALTIME, "answered"]
    assert 0 < in_bulk == len(billed_lines(simulator)) < 30
    assert (in_realtime, ended["sim", Lane.BULK, "not_sent"] > 0) == (60 - in_bulk, True)
    notes = notes_of(line, job, frozen)
    assert {tuple(note.lane for note in each[:2]) for each in notes.values()} == {(Lane.BULK, Lane.REALTIME)}
    assert any(
        each[-1].reason.startswith("submissions called back; the deadline is in danger") for each in notes.values()
    )


def test_documents_that_a_pool_may_not_see_reach_it_in_no_lane(open_line: OpenLine, simulator: Simulator) -> None:
    """P6: the cheaper lane is no reason."""
    line = open_line(see="public")
    frozen = pipeline(lane="by deadline", model={"pools": ["sim", "realtime"], "max_output_tokens": 32})
    job = line.submit(frozen, documents(10))
    assert line.finish(job).state is BatchState.PUBLISHED
    assert by_lane(line) == {("realtime", Lane.REALTIME, "answered"): 10}
    for (note,) in notes_of(line, job, frozen).values():
        assert "none of the pools that may be used has a bulk lane" in note.reason
        assert "not sim: may see public documents at most, these are internal" in note.reason
