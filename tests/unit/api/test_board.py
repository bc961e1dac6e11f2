"""Status from views: which row wins, and what is not known yet."""

import dataclasses
from pathlib import Path

import pytest

from kit.ledger_events import COUNTS, NOON_MS, sealed
from kit.messages import BATCH, JOB
from nightmill.api.board import Board, job_status, job_statuses, version_list
from nightmill.kernel.domain.lifecycle import BatchState, PlanPhase
from nightmill.kernel.wire.messages import BatchPlanRow, GoldScore, JobSubmitted, PublicationRow, Refusal
from nightmill.kernel.wire.values import replace

from .rows import dataset, plan, publication, submitted

RESULTS = Path("/results")


def board(
    job: JobSubmitted | None = None, planned: BatchPlanRow | None = None, published: PublicationRow | None = None
) -> Board:
    return Board(
        submitted={} if job is None else {JOB: job},
        plans={} if planned is None else {BATCH: planned},
        publications={} if published is None else {BATCH: published},
    )


REFUSED = plan(phase=PlanPhase.REFUSED, refusal=Refusal(rule="budget", message="budget: too small; raise it"))


@pytest.mark.parametrize(
    ("seen", "state", "planned", "settled", "reason"),
    [
        (board(submitted()), BatchState.CREATED, None, 0, None),
        (board(submitted(), plan()), BatchState.PLANNING, None, 0, None),
        (board(submitted(), plan(phase=PlanPhase.MERGING)), BatchState.PLANNING, None, 0, None),
        (board(None, plan(phase=PlanPhase.SEALED)), BatchState.QUEUED, 398, 0, None),
        (board(None, REFUSED), BatchState.REFUSED, 398, 0, "budget: too small; raise it"),
        (board(submitted(), plan(), publication()), BatchState.RUNNING, 10, 5, None),
        (board(None, None, publication(state=BatchState.HELD, reason="gold")), BatchState.HELD, 10, 5, "gold"),
        # cancelled before the plan, and the cancel taken back: the plan says where it stands
        (board(submitted(), plan(), publication(state=BatchState.CREATED, sealed=None, counts=COUNTS)),
         BatchState.PLANNING, None, 0, None),
    ],
)  # fmt: skip
def test_state(seen: Board, state: BatchState, planned: int | None, settled: int, reason: str | None) -> None:
    """O1: where a job stands is told from the views alone."""
    status = job_status(seen, JOB, RESULTS)
    assert status is not None
    assert (status.state, status.planned, status.settled, status.reason) == (state, planned, settled, reason)


def test_money_and_tokens() -> None:
    """P4: 5,000,000 nano-USD of budget less 9,000 spent; the unknown attempt is counted, not priced."""
    status = job_status(board(submitted(), plan(), publication()), JOB, RESULTS)
    assert status is not None
    assert (status.budget_nano_usd, status.spent.cost_nano_usd, status.budget_left_nano_usd) == (
        5_000_000,
        9_000,
        4_991_000,
    )
    assert status.spent.unknown_attempts == 1
    assert (status.spent.input_tokens, status.spent.output_tokens) == (600, 42)
    assert status.expected_cost_nano_usd == 20_000


def test_a_published_job_says_where_its_files_lie() -> None:
    row = publication(
        state=BatchState.PUBLISHED,
        version=3,
        location="versions/0000000003-x-g1/manifest.json",
        gold=GoldScore(compared=5, right=4),
        ended_at_ms=NOON_MS + 9_000,
    )
    status = job_status(board(submitted(), None, row), JOB, RESULTS)
    assert status is not None
    assert status.location == "/results/acme.tickets/versions/0000000003-x-g1"
    assert status.gold is not None
    assert (status.gold.right, status.gold.compared, status.version) == (4, 5, 3)


def test_a_resumed_job_keeps_the_version_it_has_published() -> None:
    """Q6: readers still have version 4 while generation 2 is worked on; another batch's version 5 is not this job's."""
    other = dataset(5, batch="acme.tickets.20261130-000000-0000.b1")
    versions = replace(other, versions=(*dataset(1, 4).versions, *other.versions))
    resumed = publication(state=BatchState.HELD, generation=2, version=None, location=None)
    status = job_status(
        dataclasses.replace(board(submitted(), None, resumed), datasets={"acme.tickets": versions}), JOB, RESULTS
    )
    assert status is not None
    assert (status.state, status.version, status.location) == (BatchState.HELD, 4, "/results/acme.tickets/versions/4")


def test_rows_read_are_rows_and_no_header() -> None:
    """398 planned and 2 refused, though the reader of a CSV file stands behind its 401st line."""
    status = job_status(board(submitted(), plan(cursor_row=401)), JOB, RESULTS)
    assert status is not None
    assert status.read_rows == 400


def test_an_unknown_job_has_no_status() -> None:
    assert job_status(Board(), JOB, RESULTS) is None
    assert job_status(Board(), "no id at all", RESULTS) is None


def test_jobs_are_listed_newest_first_over_all_datasets() -> None:
    ids = ["acme.tickets.20261129-120000-aaaa", "zoo.labels.20261128-000000-ffff", "acme.labels.20261130-000000-0000"]
    seen = Board(submitted={id_: submitted(job_id=id_) for id_ in ids})
    assert [status.job_id for status in job_statuses(seen, RESULTS, limit=2)] == [ids[2], ids[0]]


def test_versions_are_listed_newest_first() -> None:
    listed = version_list(dataset(1, 2, 5), RESULTS)
    assert [each.version for each in listed.versions] == [5, 2, 1]
    assert listed.current == 5
    assert listed.versions[0].location == "/results/acme.tickets/versions/5"


def test_a_submission_that_could_not_be_read_is_a_refused_job() -> None:
    """E2: a quarantined submission leaves only the publisher's row, and it still has a status."""
    refusal = Refusal(rule="quarantined", message="the submission could not be handled; submit it again")
    row = replace(publication(state=BatchState.REFUSED), sealed=sealed(refusal=refusal), reason=refusal.message)
    status = job_status(board(None, None, row), JOB, RESULTS)
    assert status is not None
    assert (status.state, status.reason) == (BatchState.REFUSED, refusal.message)
