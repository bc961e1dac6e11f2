"""Rows are functions of the event alone, and `ver` places them in the life of their key."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit import ledger_events as events
from kit.messages import JOB, key_of
from nightmill.kernel.domain.failures import Billed, FailureClass
from nightmill.kernel.domain.lifecycle import AttemptState, BatchState, ItemOutcome, VerdictKind
from nightmill.kernel.store.columns import Table
from nightmill.kernel.wire.messages import Refusal, Verdict
from nightmill.kernel.wire.values import replace
from nightmill.ledger import rows, tables

ALL: list[tuple[Table, Any]] = [
    (tables.ATTEMPTS, rows.attempt_row(events.judged("a"))),
    (tables.VERDICTS, rows.verdict_row(events.judged("a"))),
    (tables.ITEMS, rows.item_row(events.settled("a", 0))),
    (tables.BATCHES, rows.batch_row(events.sealed())),
    (tables.PUBLISHES, rows.publish_row(events.published())),
    (tables.JOBS, rows.job_row(events.completed())),
    (tables.LEASE_USAGE, rows.lease_row(events.lease(1, events.NOON_MS))),
]


def by_name(table: Table, row: Any) -> dict[str, Any]:
    return dict(zip(table.names, row, strict=True))


@pytest.mark.parametrize(("table", "row"), ALL, ids=[table.name for table, _ in ALL])
def test_a_row_has_a_value_for_each_column(table: Table, row: Any) -> None:
    assert len(row) == len(table.columns)


def test_an_attempt_carries_tokens_cost_and_cause() -> None:
    """O1"""
    row = by_name(tables.ATTEMPTS, rows.attempt_row(events.judged("a", 2)))
    assert (row["tenant"], row["pipeline"], row["job_id"]) == ("acme", "tickets", JOB)
    assert (row["input_tokens"], row["cached_tokens"], row["output_tokens"]) == (100, 20, 7)
    assert (row["cost_usd"], row["reserved_usd"], row["price_version"]) == (1_500, 9_000, "v1")
    assert (row["item_key"], row["ordinal"], row["verdict"], row["billed"]) == (key_of("a"), 2, "accepted", "yes")


def test_an_unknown_cost_is_none_and_never_zero() -> None:
    """O1"""
    row = by_name(tables.ATTEMPTS, rows.attempt_row(events.unknown("a")))
    assert row["cost_usd"] is None
    assert row["input_tokens"] is None
    assert (row["reserved_usd"], row["billed"], row["failure_signal"]) == (9_000, "unknown", "lost")


@pytest.mark.parametrize(
    ("state", "late", "version"),
    [
        (AttemptState.UNKNOWN, False, 2),
        (AttemptState.UNKNOWN, True, 2),  # knowing late that nothing is known corrects nothing
        (AttemptState.FAILED, False, 3),
        (AttemptState.ANSWERED, False, 3),
        (AttemptState.ANSWERED, True, 4),
        (AttemptState.FAILED, True, 4),
    ],
)
def test_version_of_an_attempt(state: AttemptState, late: bool, version: int) -> None:
    assert rows.attempt_version(events.judged("a", state=state, late=late).attempt) == version


@pytest.mark.parametrize(
    ("state", "call"),
    [(s, s not in (AttemptState.NOT_SENT, AttemptState.MINTED)) for s in AttemptState],
)
def test_only_calls_that_may_have_happened_are_rows(state: AttemptState, call: bool) -> None:
    assert rows.is_call(events.judged("a", state=state).attempt) is call


def test_an_answer_without_a_verdict_keeps_its_text() -> None:
    """E8: a cut answer failed before it was judged, and can still be read."""
    cut = events.judged(
        "a",
        verdict=None,
        state=AttemptState.FAILED,
        failure=events.failure(FailureClass.OUTPUT_INVALID, "finish_length", Billed.YES),
        output='{"label": ',
    )
    row = rows.verdict_row(cut)
    assert row is not None
    assert by_name(tables.VERDICTS, row)["output"] == '{"label": '
    assert by_name(tables.VERDICTS, row)["verdict"] == ""


def test_a_failure_without_an_answer_has_no_verdict_row() -> None:
    assert rows.verdict_row(events.failed("a", 1, "rate_limit")) is None


def test_a_verdict_names_rule_field_and_value() -> None:
    verdict = Verdict(kind=VerdictKind.REJECTED, rule="enum", field="label", value="z")
    row = by_name(tables.VERDICTS, rows.verdict_row(events.judged("a", verdict=verdict)))
    assert (row["verdict"], row["rule"], row["field"], row["value"]) == ("rejected", "enum", "label", "z")


@given(
    older=st.tuples(st.integers(1, 1_000), st.integers(1, 60_000)),
    newer=st.tuples(st.integers(1, 1_000), st.integers(1, 60_000)),
)
def test_items_order_by_generation_then_revision(older: tuple[int, int], newer: tuple[int, int]) -> None:
    def version(generation: int, revision: int) -> int:
        event = events.settled("a", 0, generation=generation, revision=revision, outcome=ItemOutcome.IN_REVIEW)
        return int(rows.item_row(event)[-1])

    assert (version(*older) < version(*newer)) == (older < newer)


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


@pytest.mark.parametrize("job", ["", "acme", "acme.tickets", "acme.tickets.yesterday", "acme.tickets.20261129-1200-a"])
def test_an_id_of_another_make_is_named(job: str) -> None:
    with pytest.raises(rows.ForeignId, match="id "):
        rows.item_row(events.settled("a", 0, job_id=job))


def test_a_lease_report_counts_for_its_minute() -> None:
    report = events.lease(7, events.NOON_MS + 61_500)
    row = by_name(tables.LEASE_USAGE, rows.lease_row(report))
    assert row["minute"] * 1000 == events.NOON_MS + 60_000
    assert (row["seq"], row["ver"], row["used_input_tokens"]) == (7, 7, 700)


@given(st.integers(1, 50), st.booleans())
def test_a_repeated_event_gives_the_same_row(ordinal: int, late: bool) -> None:
    """O1, P4: the same event, decoded again, meets itself."""
    event = events.judged("a", ordinal, late=late)
    again = replace(event, attempt=replace(event.attempt))
    assert rows.attempt_row(event) == rows.attempt_row(again)
    assert rows.verdict_row(event) == rows.verdict_row(again)
