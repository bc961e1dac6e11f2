"""Columns are functions of the records alone, and `ver` places a row in the life of its key."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit import ledger_events as events
from kit.ledger_columns import encoded, rows_of
from kit.messages import JOB, key_of
from nightmill.kernel.domain.failures import Billed, FailureClass
from nightmill.kernel.domain.lifecycle import AttemptState, ItemOutcome, VerdictKind
from nightmill.kernel.store.columns import Table
from nightmill.kernel.wire.messages import Usage, Verdict
from nightmill.ledger import columns, rows, tables


def attempts(*judged: Any) -> list[dict[str, Any]]:
    return rows_of(tables.ATTEMPTS, columns.attempts(encoded(judged)))


def verdicts(*judged: Any) -> list[dict[str, Any]]:
    return rows_of(tables.VERDICTS, columns.verdicts(encoded(judged)))


def items(*settled: Any) -> list[dict[str, Any]]:
    return rows_of(tables.ITEMS, columns.items(encoded(settled)))


def test_an_attempt_carries_tokens_cost_and_cause() -> None:
    """O1"""
    (row,) = attempts(events.judged("a", 2))
    assert (row["tenant"], row["pipeline"], row["job_id"]) == ("acme", "tickets", JOB)
    assert (row["input_tokens"], row["cached_tokens"], row["output_tokens"]) == (100, 20, 7)
    assert (row["cost_usd"], row["reserved_usd"], row["price_version"]) == (1_500, 9_000, "v1")
    assert (row["item_key"], row["ordinal"], row["verdict"], row["billed"]) == (key_of("a"), 2, "accepted", "yes")
    assert (row["minted_at"], row["started_at"], row["ended_at"]) == tuple(
        events.NOON_MS + after for after in (2_000, 2_010, 2_210)
    )


def test_an_attempt_carries_what_it_wrote_into_a_cache() -> None:
    """O1: None where the provider does not say; 0 is another word."""
    usage = Usage(input_tokens=100, cached_tokens=20, output_tokens=7, cache_write_tokens=30, cache_write_1h_tokens=0)
    rows = attempts(events.judged("a", 1, usage=usage), events.judged("b", 1))
    assert [(row["cache_write_tokens"], row["cache_write_1h_tokens"]) for row in rows] == [(30, 0), (None, None)]


def test_an_unknown_cost_is_none_and_never_zero() -> None:
    """O1"""
    row, known = attempts(events.unknown("a"), events.judged("b"))
    assert row["cost_usd"] is None
    assert row["input_tokens"] is None
    assert (row["reserved_usd"], row["billed"], row["failure_signal"]) == (9_000, "unknown", "lost")
    assert (known["cost_usd"], known["failure_signal"], known["failure_class"]) == (1_500, "", "")


@pytest.mark.parametrize(
    ("state", "failure", "billed"),
    [
        (AttemptState.ANSWERED, None, "yes"),
        (AttemptState.UNKNOWN, None, "unknown"),
        (AttemptState.FAILED, Billed.NO, "no"),
        (AttemptState.UNKNOWN, Billed.YES, "yes"),
    ],
)
def test_a_failure_says_whether_its_call_is_billed(state: AttemptState, failure: Billed | None, billed: str) -> None:
    """O1"""
    told = None if failure is None else events.failure(FailureClass.TRANSIENT, "signal", failure)
    (row,) = attempts(events.judged("a", state=state, failure=told))
    assert row["billed"] == billed


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
    judged = events.judged("a", state=state, late=late)
    assert [row["ver"] for row in (*attempts(judged), *verdicts(judged))] == [version, version]


@pytest.mark.parametrize(
    ("state", "call"),
    [(s, s not in (AttemptState.NOT_SENT, AttemptState.MINTED)) for s in AttemptState],
)
def test_only_calls_that_may_have_happened_are_rows(state: AttemptState, call: bool) -> None:
    judged = events.judged("a", state=state)
    assert (len(attempts(judged)), len(verdicts(judged))) == (call, call)


def test_an_answer_without_a_verdict_keeps_its_text() -> None:
    """E8: a cut answer failed before it was judged, and can still be read."""
    cut = events.judged(
        "a",
        verdict=None,
        state=AttemptState.FAILED,
        failure=events.failure(FailureClass.OUTPUT_INVALID, "finish_length", Billed.YES),
        output='{"label": ',
    )
    (row,) = verdicts(cut)
    assert (row["output"], row["verdict"]) == ('{"label": ', "")


def test_a_failure_without_an_answer_has_no_verdict_row() -> None:
    told = verdicts(events.failed("a", 1, "rate_limit"), events.judged("b"), events.judged("c", output_digest="d" * 64))
    assert [row["item_key"] for row in told] == [key_of("b"), key_of("c")]


def test_a_verdict_names_rule_field_and_value() -> None:
    verdict = Verdict(kind=VerdictKind.REJECTED, rule="enum", field="label", value="zürich ☂")
    (row,) = verdicts(events.judged("a", verdict=verdict))
    assert (row["verdict"], row["rule"], row["field"], row["value"]) == ("rejected", "enum", "label", "zürich ☂")


@given(
    older=st.tuples(st.integers(1, 1_000), st.integers(1, 60_000)),
    newer=st.tuples(st.integers(1, 1_000), st.integers(1, 60_000)),
)
def test_items_order_by_generation_then_revision(older: tuple[int, int], newer: tuple[int, int]) -> None:
    first, second = items(
        *(
            events.settled("a", 0, generation=generation, revision=revision, outcome=ItemOutcome.IN_REVIEW)
            for generation, revision in (older, newer)
        )
    )
    assert (first["ver"] < second["ver"]) == (older < newer)


def test_an_item_carries_what_its_waiter_pays() -> None:
    """O1"""
    totals = events.totals(attempts=3, retries=1, repairs=1, unknown_attempts=1, input_tokens=9, cost_nano_usd=7)
    (row,) = items(events.settled("a", 4, totals=totals, reused=True))
    assert [row[name] for name in ("attempts", "retries", "repairs", "unknown_attempts", "input_tokens")] == [
        3,
        1,
        1,
        1,
        9,
    ]
    assert (row["cost_usd"], bool(row["reused"]), row["ordinal"], row["outcome"]) == (7, True, 4, "accepted")
    assert (row["submitted_at"], row["planned_at"], row["settled_at"]) == tuple(
        events.NOON_MS + after for after in (0, 500, 2_000)
    )


@pytest.mark.parametrize("job", ["", "acme", "acme.tickets", "acme.tickets.yesterday", "acme.tickets.20261129-1200-a"])
def test_an_id_of_another_make_is_named(job: str) -> None:
    with pytest.raises(rows.ForeignId, match="id "):
        items(events.settled("a", 0, job_id=job))


def test_a_job_of_the_thirteenth_month_is_a_fault_of_its_record() -> None:
    """E9: the record is refused; it does not end the process at every flush."""
    (record,) = encoded([events.settled("a", 0, job_id="acme.tickets.20261329-120000-a")])
    assert "month must be in 1..12" in (columns.fault(tables.ITEMS, record) or "")


@given(st.lists(st.tuples(st.integers(1, 50), st.booleans()), min_size=1, max_size=20))
def test_a_record_gives_the_same_row_in_any_company(told: list[tuple[int, bool]]) -> None:
    """O1, P4: the same event meets itself, whatever is read with it."""
    judged = [
        events.unknown(f"s{ordinal}", ordinal, late=late) if late else events.judged(f"s{ordinal}", ordinal)
        for ordinal, late in told
    ]
    assert attempts(*judged) == [row for event in judged for row in attempts(event)]
    assert verdicts(*judged) == [row for event in judged for row in verdicts(event)]


@pytest.mark.parametrize(
    ("table", "read", "record"),
    [
        (tables.ATTEMPTS, columns.attempts, encoded([events.judged("a", job_id="nobody")])[0]),
        (tables.VERDICTS, columns.verdicts, encoded([events.judged("a")])[0][:-1]),
        (tables.ITEMS, columns.items, encoded([events.settled("a", 0)])[0] + b"\0"),
        (tables.ITEMS, columns.items, encoded([events.settled("aäa", 0)])[0].replace("ä".encode(), b"\xff\xff")),
    ],
    ids=["foreign", "cut", "longer", "no UTF-8"],
)
def test_a_record_that_can_not_be_read_is_found_by_itself(
    table: Table, read: Callable[[Sequence[bytes]], columns.Block], record: bytes
) -> None:
    assert columns.fault(table, record)
    good = encoded([events.settled("b", 1) if table is tables.ITEMS else events.judged("b")])[0]
    assert columns.fault(table, good) is None
