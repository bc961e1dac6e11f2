"""What a job cost and what became of an item: the product's own questions, over both forms of the ledger's store."""

from typing import Any

from kit import ledger_events as events
from kit.clickhouse import Open
from kit.messages import BATCH, JOB, key_of
from nightmill.kernel.domain.failures import Billed, FailureClass
from nightmill.kernel.domain.lifecycle import BatchState, VerdictKind
from nightmill.kernel.wire.messages import Usage, Verdict

WRITTEN = Usage(input_tokens=100, cached_tokens=0, output_tokens=7, cache_write_tokens=30, cache_write_1h_tokens=40)


def test_what_a_job_cost_and_why(open_ledger: Open) -> None:
    """O1, O2: cost by stage, model and cause, with unknown costs counted beside the sum."""
    process = open_ledger()
    bad = Verdict(kind=VerdictKind.REPAIRABLE, rule="schema", field="label", value="z")
    calls = [
        events.judged("a", cost_nano_usd=1_000, usage=WRITTEN),  # first, accepted
        events.judged("b", cost_nano_usd=1_000, verdict=bad),  # first, repaired by:
        events.judged("b", 2, cost_nano_usd=4_000, is_repair=True),
        events.failed("c", 1, "rate_limit"),  # first, free
        events.judged("c", 2, cost_nano_usd=1_000, model="large"),  # retry
        events.unknown("d"),  # first, nobody knows
        events.judged("d", 2, cost_nano_usd=1_000),  # retry
        events.judged("z", job_id="acme.other.20261129-120000-bbbb"),  # somebody else's
    ]
    assert process.deliver([*calls, events.sealed(), events.completed()]) == "flushed"
    assert process.deliver(calls[::-1]) == "flushed"

    def view(query: str, *columns: str) -> list[tuple[Any, ...]]:
        return [tuple(row[column] for column in columns) for row in process.named(query, job_id=JOB)]

    assert view("job_cost_by_stage", "stage", "calls", "cost_usd", "unknown_calls") == [
        ("first", 4, "0.000002", 1),
        ("retry", 2, "0.000002", 0),
        ("repair", 1, "0.000004", 0),
    ]
    assert view("job_cost_by_stage", "input_tokens", "cached_tokens", "written_tokens", "output_tokens") == [
        (200, 20, 70, 14),
        (200, 40, 0, 14),
        (100, 20, 0, 7),
    ]
    assert view("job_cost_by_model", "model", "calls", "accepted", "cost_usd", "unknown_calls", "reserved_usd") == [
        ("tiny", 6, 3, "0.000007", 1, "0.000009"),
        ("large", 1, 1, "0.000001", 0, "0"),
    ]
    assert view("job_cost_by_cause", "cause", "detail", "calls", "cost_usd") == [
        ("accepted", "", 4, "0.000007"),
        ("repairable", "schema", 1, "0.000001"),
        ("capacity", "rate_limit", 1, "0"),
        ("transient", "lost", 1, None),
    ]
    assert view("job_totals", "batch_id", "planned", "state", "calls", "cost_usd", "unknown_calls", "accepted") == [
        (BATCH, 10, "published", 7, "0.000008", 1, 10)
    ]


def test_a_held_job_is_told_as_what_became_of_it(open_ledger: Open) -> None:
    process = open_ledger()
    held = events.completed(state=BatchState.HELD, reason="completion gate", version=None, location=None, gold=None)
    question = "SELECT state, reason, version, gold_right FROM jobs"
    assert process.deliver([held]) == "flushed"
    assert process.rows(question) == [["held", "completion gate", None, None]]
    assert process.deliver([events.completed(completed_at_ms=held.completed_at_ms - 1)]) == "flushed"
    assert process.deliver([held]) == "flushed"
    assert process.rows(question) == [["published", "", 3, 4]]


def test_an_item_is_explained_by_source_id_and_by_key(open_ledger: Open) -> None:
    """O1: every call of an item, with its cause and its raw answer."""
    process = open_ledger()
    rule = Verdict(kind=VerdictKind.REPAIRABLE, rule="enum", field="label", value="z")
    cut_ = events.failure(FailureClass.OUTPUT_INVALID, "finish_length", Billed.YES)
    calls = [
        events.judged("doc 1", 1, verdict=rule, output='{"label": "z"}'),
        events.judged("doc 1", 2, is_repair=True, verdict=None, failure=cut_, output='{"lab'),
        events.judged("doc 1", 3, is_repair=True),
        events.judged("doc 2", 1),
    ]
    assert process.deliver([*calls, events.settled("doc 1", 0)]) == "flushed"
    for id_ in ("doc 1", key_of("doc 1")):
        told = process.named("item_attempts", id=id_, tenant="acme")
        assert [(row["attempt_id"], row["rule"], row["failure_signal"], row["output"]) for row in told] == [
            (f"{key_of('doc 1')}-1", "enum", "", '{"label": "z"}'),
            (f"{key_of('doc 1')}-2", "", "finish_length", '{"lab'),
            (f"{key_of('doc 1')}-3", "", "", '{"label": "a"}'),
        ]
        assert [row["outcome"] for row in process.named("item_history", id=id_, tenant="")] == ["accepted"]
    assert process.named("item_attempts", id="doc 1", tenant="somebody-else") == []
