"""The dispatcher's choice of a lane, its moves, and what it remembers of them (P5, P6, P7)."""

from pathlib import Path

import pytest

from nightmill.kernel.domain.lifecycle import AttemptState, Lane
from nightmill.kernel.domain.pipeline import ModelPolicy, Sensitivity
from nightmill.kernel.domain.settings import BulkLimits, PoolLimits
from nightmill.kernel.wire.messages import ItemSettled, LaneChoiceRow, ShardAttempt
from unit.dispatcher.stage import A, B, Stage, config, failed, judged, pipeline, pool

H, MIN = 3_600, 60
NOW_MS = 1_796_000_000_000
#: two slots: one item a second, by calls of two seconds; four submissions of one item each at once in bulk
CHEAP = pool(bulk=BulkLimits(max_requests=1), limits=PoolLimits(slots=2))
DIRECT = pool(context_tokens=32_000)


def make_stage(folder: Path, lane: object) -> Stage:
    settings = config(cheap=CHEAP, direct=DIRECT)
    frozen = pipeline(lane=lane, model=ModelPolicy(pools=("cheap", "direct"), max_output_tokens=64))
    return Stage(folder, settings=settings, frozen=frozen)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    made = make_stage(tmp_path, {"bulk": "over 2h"})
    made.say(A, deadline_at_ms=NOW_MS + 6 * H * 1000)
    return made


def plan(stage: Stage, count: int, batch: str = A) -> None:
    deadline_at_ms = stage.view.rows[batch].deadline_at_ms
    for number in range(count):
        stage.plan(batch, f"item-{batch[-5]}{number}", deadline_at_ms=deadline_at_ms, ordinal=number)


def choice(stage: Stage, batch: str = A) -> LaneChoiceRow:
    row: LaneChoiceRow = stage.part.table(LaneChoiceRow).rows[f"{batch}/0"]
    return row


def lanes(stage: Stage) -> list[tuple[str, Lane, int]]:
    return [(shard.pool, shard.lane, len(shard.attempts)) for shard in stage.shards()]


def until(stage: Stage, left_s: float, batch: str = A) -> list[ShardAttempt]:
    """Time passes until so much is left, then what two ticks dispatch: the second one after the look of the first."""
    deadline_at_ms = stage.view.rows[batch].deadline_at_ms
    assert deadline_at_ms is not None
    stage.part.now_ms = deadline_at_ms - round(left_s * 1000)
    return stage.tick(0) + stage.tick()


def test_the_first_choice_stands_in_a_row_with_its_reason(stage: Stage) -> None:
    """P5: 6 h are more than 2 h."""
    plan(stage, 1)
    stage.tick()
    assert lanes(stage) == [("cheap", Lane.BULK, 1)]
    row = choice(stage)
    assert (row.lane, row.partition, row.moved_at_ms, row.recalled_at_ms) == (Lane.BULK, 0, None, None)
    assert row.reason == (
        "5 h 59 min left until the deadline, more than 2 h; pools: cheap; not direct: has no bulk lane"
    )


def test_what_is_not_dispatched_moves_first_and_submissions_are_called_back_in_danger(stage: Stage) -> None:
    """P5: ten items, four in bulk. With 2 h left the others go realtime; with 15 min left the four are called back.

    Four items at one a second need 4 s: danger from 2 * 4 s + 2 min + 15 min on, until 4 s + 2 min.
    """
    plan(stage, 10)
    in_bulk = stage.tick()
    assert len(in_bulk) == 4
    assert until(stage, 2 * H + 2) == []
    moved = until(stage, 2 * H)
    assert [each for each in lanes(stage) if each[1] is Lane.REALTIME] == [("cheap", Lane.REALTIME, 6)]
    assert len(moved) == 6
    row = choice(stage)
    assert (row.lane, row.moved_at_ms, row.recalled_at_ms) == (Lane.REALTIME, NOW_MS + 4 * H * 1000, None)
    assert (row.moved_reason or "").startswith("2 h left until the deadline, bulk is for more than 2 h; pools: cheap")
    for attempt in moved:
        stage.judge(judged(attempt))
    assert until(stage, 17 * MIN + 9) == []
    assert choice(stage).recalled_at_ms is None
    until(stage, 17 * MIN + 8)
    assert choice(stage).recalled_at_ms == stage.part.now_ms - 50
    assert (choice(stage).recalled_reason or "").startswith("the deadline is in danger: 17 min 8 s left, and 4 items")
    settled: list[ItemSettled] = []
    for attempt in in_bulk:  # the gateway gives them back unsent
        stage.judge(failed(attempt, None, AttemptState.NOT_SENT))
    for attempt in stage.tick():
        settled += stage.judge(judged(attempt))
    assert [(each.totals.attempts, each.totals.retries) for each in settled] == [(1, 0)] * 4
    assert lanes(stage)[-1] == ("cheap", Lane.REALTIME, 4)


def test_submissions_are_left_alone_when_it_is_too_late(stage: Stage) -> None:
    """P5: realtime could not meet the deadline either, and a batch may end any moment."""
    plan(stage, 4)
    stage.tick()
    until(stage, 2 * MIN + 3)
    until(stage, -H)
    assert (choice(stage).lane, choice(stage).recalled_at_ms) == (Lane.REALTIME, None)


def test_a_choice_outlives_the_process_and_is_never_taken_back(stage: Stage) -> None:
    """P5, E1: more time does not bring a batch back to bulk."""
    plan(stage, 6)
    stage.tick()
    until(stage, 2 * H)
    stage.start()
    stage.say(A, deadline_at_ms=stage.part.now_ms + 48 * H * 1000)
    plan(stage, 8)
    stage.tick(2)
    assert lanes(stage)[-1] == ("cheap", Lane.REALTIME, 2)
    assert choice(stage).lane is Lane.REALTIME


def test_a_busy_pool_is_as_fast_as_it_answers(stage: Stage) -> None:
    """P5: by its limits it does one a second, but eight calls are under way and four were answered in 400 s.

    Four items at 0.01 a second need 400 s: danger from 2 * 400 s + 2 min + 15 min = 1,820 s on; else 1,028 s.
    """
    stage.say(B, deadline_at_ms=NOW_MS + 6 * H * 1000)
    plan(stage, 4)
    stage.tick()
    until(stage, 2 * H)
    plan(stage, 9, B)
    started = [each for each in stage.tick() + stage.tick() if each.batch_id == B]
    assert sorted(lanes(stage)) == [("cheap", Lane.BULK, 4), ("cheap", Lane.REALTIME, 8)]
    until(stage, 1_910)
    for _ in range(20):  # the last windows are what counts
        stage.tick(0.5)
    for attempt in started[:4]:
        stage.judge(judged(attempt))
    stage.tick(390)
    assert "4 items at 0.01 a second" in (choice(stage).recalled_reason or "")


def test_an_item_too_long_for_bulk_takes_the_longer_pool(stage: Stage) -> None:
    """P7: one long document has its own way, and does not wait."""
    stage.plan(A, "long", input_tokens=20_000)
    stage.plan(A, "short", ordinal=1)
    stage.tick()
    assert sorted(lanes(stage)) == [("cheap", Lane.BULK, 1), ("direct", Lane.REALTIME, 1)]


@pytest.mark.parametrize(
    ("lane", "expected"),
    [("bulk", [("cheap", Lane.BULK, 1)]), ("realtime", [("cheap", Lane.REALTIME, 1)])],
)
def test_a_fixed_lane_needs_no_row(tmp_path: Path, lane: str, expected: list[tuple[str, Lane, int]]) -> None:
    """P5: whatever the deadline."""
    stage = make_stage(tmp_path, lane)
    stage.say(A, deadline_at_ms=NOW_MS + 10 * MIN * 1000)
    plan(stage, 1)
    stage.tick()
    assert lanes(stage) == expected
    assert stage.part.table(LaneChoiceRow).rows == {}


def test_bulk_alone_says_why_no_pool_takes_an_item(tmp_path: Path) -> None:
    """P6: the pool that may see the documents has no bulk lane."""
    settings = config(cheap=CHEAP.model_copy(update={"sensitivity": Sensitivity.PUBLIC}), direct=DIRECT)
    frozen = pipeline(lane="bulk", model=ModelPolicy(pools=("cheap", "direct"), max_output_tokens=64))
    stage = Stage(tmp_path, settings=settings, frozen=frozen)
    stage.say(A)
    stage.plan(A)
    (settled,) = stage.settled()
    assert settled.failure is not None
    assert "cheap: may see public documents at most, these are internal" in settled.failure.message
    assert "direct: has no bulk lane" in settled.failure.message


def test_choices_are_kept_for_a_month(stage: Stage) -> None:
    plan(stage, 1)
    (attempt,) = stage.tick()
    stage.judge(judged(attempt))
    stage.tick(29 * 24 * H)
    assert len(stage.part.table(LaneChoiceRow).rows) == 1
    stage.tick(2 * 24 * H)
    assert stage.part.table(LaneChoiceRow).rows == {}
