"""Rows are functions of the event alone, and `ver` places them in the life of their key."""

from typing import Any

import pytest

from kit import ledger_events as events
from kit.messages import JOB
from nightmill.kernel.domain.lifecycle import BatchState
from nightmill.kernel.store.columns import Table
from nightmill.kernel.wire.messages import Refusal
from nightmill.ledger import rows, tables

ALL: list[tuple[Table, Any]] = [
    (tables.BATCHES, rows.batch_row(events.sealed())),
    (tables.PUBLISHES, rows.publish_row(events.published())),
    (tables.JOBS, rows.job_row(events.completed())),
    (tables.LEASE_USAGE, rows.lease_row(events.lease(1, events.NOON_MS))),
]


#: shaped as a job's, of the thirteenth month
NO_DATE = "acme.tickets.20261329-120000-a"


def by_name(table: Table, row: Any) -> dict[str, Any]:
    return dict(zip(table.names, row, strict=True))


@pytest.mark.parametrize(("table", "row"), ALL, ids=[table.name for table, _ in ALL])
def test_a_row_has_a_value_for_each_column(table: Table, row: Any) -> None:
    assert len(row) == len(table.columns)


def test_a_final_notice_outranks_a_held_one_whatever_the_clock_says() -> None:
    held = rows.job_row(events.completed(state=BatchState.HELD, completed_at_ms=events.NOON_MS + 99_000))
    final = rows.job_row(events.completed(state=BatchState.PUBLISHED, completed_at_ms=events.NOON_MS))
    assert held[-1] < final[-1]


def test_a_refused_batch_says_why() -> None:
    row = by_name(tables.BATCHES, rows.batch_row(events.sealed(refusal=Refusal(rule="budget", message="too dear"))))
    assert (row["refusal_rule"], row["refusal_message"]) == ("budget", "too dear")
    assert row["tags"] == [("team", "search"), ("environment", "test")]


def test_the_time_of_a_job_is_read_from_its_id() -> None:
    assert rows.submitted_at_ms(JOB) == events.NOON_MS
    assert {by_name(table, row).get("submitted_at", events.NOON_MS) for table, row in ALL} == {events.NOON_MS}


@pytest.mark.parametrize(
    "job", ["", "acme", "acme.tickets", "acme.tickets.yesterday", "acme.tickets.20261129-1200-a", NO_DATE]
)
def test_an_id_of_another_make_is_named(job: str) -> None:
    with pytest.raises(rows.ForeignId, match="id "):
        rows.batch_row(events.sealed(job_id=job))


def test_a_lease_report_counts_for_its_minute() -> None:
    report = events.lease(7, events.NOON_MS + 61_500)
    row = by_name(tables.LEASE_USAGE, rows.lease_row(report))
    assert row["minute"] * 1000 == events.NOON_MS + 60_000
    assert (row["seq"], row["ver"], row["used_input_tokens"]) == (7, 7, 700)
