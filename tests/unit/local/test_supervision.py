"""The supervisor's decisions as tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.local.supervision import (
    LONGEST_DELAY_S,
    STARTS_BEFORE_GIVING_UP,
    Phase,
    failures_after,
    gives_up,
    progress_line,
    restart_delay_s,
    stop_waves,
)


@pytest.mark.parametrize(
    ("failures", "delay_s"),
    [(1, 0.2), (2, 0.4), (3, 0.8), (4, 1.6), (5, 3.2), (6, 6.4), (7, 10.0), (8, 10.0), (5000, 10.0)],
)
def test_the_pause_doubles_from_a_fifth_of_a_second_to_ten(failures: int, delay_s: float) -> None:
    assert restart_delay_s(failures) == pytest.approx(delay_s)


@given(st.integers(min_value=1, max_value=10**9))
def test_the_pause_never_shrinks_and_never_passes_its_limit(failures: int) -> None:
    assert 0 < restart_delay_s(failures) <= restart_delay_s(failures + 1) <= LONGEST_DELAY_S


@pytest.mark.parametrize(("failures", "alive_s", "expected"), [(0, 0.1, 1), (3, 29.9, 4), (3, 30.0, 1), (0, 3600.0, 1)])
def test_thirty_steady_seconds_wipe_the_slate(failures: int, alive_s: float, expected: int) -> None:
    assert failures_after(failures, alive_s=alive_s) == expected


def test_only_a_process_that_never_was_ready_ends_the_start() -> None:
    assert not gives_up(STARTS_BEFORE_GIVING_UP - 1, was_ready=False)
    assert gives_up(STARTS_BEFORE_GIVING_UP, was_ready=False)
    assert not gives_up(1000, was_ready=True)


def test_stops_front_door_then_workers_then_model_then_broker() -> None:
    names = ["broker", "model_server", "embeddings_server", "planner", "ledger", "api"]
    assert stop_waves(names) == [["api"], ["planner", "ledger"], ["model_server", "embeddings_server"], ["broker"]]
    assert stop_waves([]) == []


def test_progress_names_what_is_missing() -> None:
    line = progress_line(Phase.STARTING, ["broker"], ["planner", "api"])
    assert line == "starting: 1 of 3 processes ready, waiting for api, planner"
    assert progress_line(Phase.READY, ["api", "broker"], []) == "ready: 2 of 2 processes ready"
