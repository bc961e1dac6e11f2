"""Rate and time left, with the arithmetic shown."""

from pathlib import Path

import pytest

from nightmill.api.models import Counts, JobStatus, Spent
from nightmill.client.progress import Pace
from nightmill.kernel.domain.lifecycle import BatchState


def status(settled: int, planned: int | None = 100) -> JobStatus:
    return JobStatus(
        job_id="default.x.20260101-000000-aa", dataset_id="default.x", tenant="default", pipeline="x",
        state=BatchState.RUNNING, reason=None, generation=1, input_name=str(Path("x")), read_rows=0, planned=planned,
        refused_rows=0, settled=settled, counts=Counts(accepted=settled), spent=Spent(), expected_cost_nano_usd=None,
        worst_cost_nano_usd=None, budget_nano_usd=None, budget_left_nano_usd=None, gold=None, version=None,
        location=None, priority=0, tags={}, submitted_at_ms=0, deadline_at_ms=None, ended_at_ms=None, updated_at_ms=0,
    )  # fmt: skip


def test_nothing_can_be_told_from_one_look() -> None:
    progress = Pace().observe(status(10), 5.0)
    assert (progress.items_per_s, progress.left_s) == (None, None)


def test_rate_and_time_left() -> None:
    """20 items in 4 s are 5/s; 70 left take 14 s."""
    pace = Pace()
    pace.observe(status(10), 0.0)
    progress = pace.observe(status(30), 4.0)
    assert (progress.items_per_s, progress.left_s) == (5.0, 14.0)


def test_only_the_last_half_minute_counts() -> None:
    """Fast in the beginning, 1/s in the last 30 s."""
    pace = Pace()
    pace.observe(status(0), 0.0)
    pace.observe(status(1000, 2000), 1.0)
    pace.observe(status(1015, 2000), 16.0)
    assert pace.observe(status(1030, 2000), 31.0).items_per_s == pytest.approx(1.0)


def test_a_standstill_has_no_end() -> None:
    pace = Pace()
    pace.observe(status(10), 0.0)
    progress = pace.observe(status(10), 4.0)
    assert (progress.items_per_s, progress.left_s) == (0.0, None)


def test_a_new_generation_counts_anew() -> None:
    pace = Pace()
    pace.observe(status(90), 0.0)
    assert pace.observe(status(10), 1.0).items_per_s is None


def test_no_plan_no_time_left() -> None:
    pace = Pace()
    pace.observe(status(0, None), 0.0)
    assert pace.observe(status(5, None), 1.0).left_s is None
