"""The survey reads what freezing would read; the lag is asked for beside the loop."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, cast

import pytest

from nightmill.kernel.runtime.log import Log, LogUnavailable
from nightmill.planner.estimate import PlanTotals
from nightmill.planner.lag import DispatcherLag
from nightmill.planner.rows import Unreadable
from nightmill.planner.survey import survey
from nightmill.planner.tokens import count_tokens
from nightmill.planner.transforms import Transforms
from unit.planner.makers import Stage, jsonl, make_pipeline, tickets


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.planner.close()


@pytest.mark.parametrize("limit", [None, 1, 2_000, 2_001, 4_000])
def test_a_survey_agrees_with_the_plan(stage: Stage, limit: int | None) -> None:
    """P4"""
    job = stage.job(jsonl(tickets(2_500)) + b"{\n" + jsonl([{"id": "x", "body": "y"}]), limit=limit, skip_bad_rows=True)
    transform = Transforms(stage.blobs, stage.config, count_tokens).get(job.pipeline_digest, job.tenant)
    surveyed = survey(stage.blobs, job.input, transform)
    sealed = stage.plan(job)
    assert surveyed.totals == PlanTotals(
        items=sealed.planned,
        refused_rows=sealed.refused_rows,
        input_tokens=sealed.input_tokens,
        longest_input_tokens=stage.row(job).longest_input_tokens,
    )
    assert [problem.place for problem in surveyed.problems] == ["line 2501"] * sealed.refused_rows


@pytest.mark.parametrize(
    ("more", "absent"), [([], ("colour",)), ([{"id": "x", "body": "y", "colour": None}], ())], ids=["none", "one"]
)
def test_a_survey_names_the_columns_that_no_row_has(
    stage: Stage, more: list[dict[str, Any]], absent: tuple[str, ...]
) -> None:
    """P4: a misspelt column of publish.columns would be empty in every result."""
    job = stage.job(jsonl(tickets(2) + more), make_pipeline(publish={"columns": ["body", "colour"]}))
    transform = Transforms(stage.blobs, stage.config, count_tokens).get(job.pipeline_digest, job.tenant)
    assert survey(stage.blobs, job.input, transform).absent == absent


def test_a_survey_names_repeats_of_neighbours(stage: Stage) -> None:
    job = stage.job(jsonl(tickets(2) + tickets(1)))
    transform = Transforms(stage.blobs, stage.config, count_tokens).get(job.pipeline_digest, job.tenant)
    with pytest.raises(Unreadable, match="line 1 and line 3 share the id 't-0'"):
        survey(stage.blobs, job.input, transform)


class OneLag:
    """A log that knows nothing but its lag."""

    def __init__(self, *answers: int | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str]] = []

    def lag(self, group: str, topic: str) -> int:
        self.asked.append((group, topic))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class AtOnce(Executor):
    """Does the work when it is submitted."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except LogUnavailable as error:
            future.set_exception(error)
        return future


def test_the_lag_is_as_last_heard_and_grows_stale() -> None:
    """E4: a second old: asked again; the broker away for five: not known."""
    log, now_s = OneLag(7, LogUnavailable("away"), 9), [100.0]
    lag = DispatcherLag(cast(Log, log), lambda: now_s[0], AtOnce())
    heard = []
    for at_s in (100.0, 100.2, 100.9, 101.2, 101.3, 104.9, 105.3, 105.4):
        now_s[0] = at_s
        heard.append((lag(), len(log.asked)))
    # heard at 100.2; the question of 101.2 fails; the one of 104.9 is answered and heard at 105.3
    assert heard == [(None, 1), (7, 1), (7, 1), (7, 2), (7, 2), (7, 3), (9, 3), (9, 3)]
    assert set(log.asked) == {("dispatcher", "item-planned")}


def test_a_lag_that_was_not_heard_of_for_long_is_not_known() -> None:
    """E4"""
    log, now_s = OneLag(7, 8), [100.0]
    lag = DispatcherLag(cast(Log, log), lambda: now_s[0], AtOnce())
    lag()
    assert lag() == 7
    now_s[0] = 105.1
    assert lag() is None
    assert lag() == 8
