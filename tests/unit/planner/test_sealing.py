"""From a job that was submitted to a batch that is sealed: every bad input, every repeat, every wait."""

from typing import Any

import pytest

from nightmill.kernel.domain.ids import digest
from nightmill.kernel.domain.lifecycle import InputFormat, PlanPhase
from nightmill.kernel.runtime.service import NOTHING, Unavailable
from nightmill.kernel.store.blobs import BlobStore
from nightmill.kernel.wire.messages import BlockPlanRow
from unit.planner.makers import GOOD, NOW_MS, MakeStage, jsonl, make_pipeline, tickets

BAD = GOOD + b'{"id": "b"\n' + b'{"id": "c"}\n'

#: (changes to the job, data, rule of the refusal, parts of its text)
REFUSED: list[tuple[dict[str, Any], bytes, str, list[str]]] = [
    ({}, b"", "empty_input", ["it has no rows"]),
    ({"format": InputFormat.CSV}, b"", "empty_input", ["it has no rows"]),
    ({"format": InputFormat.CSV}, b"id,body\n", "empty_input", ["it has no rows"]),
    ({}, BAD, "bad_rows", ["tickets.jsonl, line 4: broken JSON", "(2 of 5 rows can not be used)", "--skip-bad-rows"]),
    ({"skip_bad_rows": True}, b"{\n", "empty_input", ["all 1 rows were refused"]),
    ({"format": InputFormat.CSV}, b"id,id\n1,2\n", "unreadable_input", ["tickets.jsonl, row 1: the column 'id'"]),
    ({"format": InputFormat.PARQUET}, b"PAR1", "unreadable_input", ["tickets.jsonl, the file is no Parquet"]),
    ({}, "{}".encode("utf-16"), "unreadable_input", ["UTF-16", "save the file as UTF-8"]),
    ({}, GOOD + GOOD, "duplicate_ids", ["line 1 and line 4 share the id 't-0'", "input.id"]),
    (
        {},
        jsonl(tickets(2_000)) + jsonl([{"id": "t-7", "body": "x"}, {"id": "t-8", "body": "x"}]),
        "duplicate_ids",
        ["line 8 and line 2001 share the id 't-7'", "(2 rows repeat an id)"],
    ),
    ({"skip_bad_rows": True}, jsonl(tickets(2_000)) + GOOD[:40], "duplicate_ids", ["line 1 and line 2001"]),
    ({"budget_nano_usd": 5}, GOOD, "budget", ["0.000000005 USD", "3 items"]),
    ({"deadline_at_ms": NOW_MS}, GOOD, "deadline", ["only 0.0 s away"]),
    ({"tenant": "nobody"}, GOOD, "unknown_tenant", ["'nobody'"]),
    ({"pipeline_digest": digest(b"gone")}, GOOD, "unreadable_pipeline", ["BlobMissing", "submit the job again"]),
]


@pytest.mark.parametrize(("changes", "data", "rule", "parts"), REFUSED)
def test_a_job_that_can_not_start_is_refused_whole(
    make_stage: MakeStage, changes: dict[str, Any], data: bytes, rule: str, parts: list[str]
) -> None:
    """P4 P5 P6 P7: nothing half-started: no manifest, no slices, one message."""
    stage = make_stage()
    job = stage.job(data, **changes)
    sealed = stage.plan(job)
    assert sealed.refusal is not None
    assert sealed.refusal.rule == rule
    assert [part for part in parts if part not in sealed.refusal.message] == []
    assert sealed.manifest_digest is None
    assert stage.row(job).phase is PlanPhase.REFUSED
    assert list(stage.part.table(BlockPlanRow).prefix("")) == []
    stage.tick()
    assert not stage.planner.busy()
    assert stage.planner.on_job_submitted(job, stage.part) is NOTHING


def test_the_first_bad_row_is_named_even_when_it_comes_late(make_stage: MakeStage) -> None:
    """P7"""
    stage = make_stage()
    sealed = stage.plan(stage.job(jsonl(tickets(4_500)) + b"{\n"))
    assert sealed.refusal is not None
    assert sealed.refusal.message.startswith("tickets.jsonl, line 4501: broken JSON")
    assert "(1 of 4,501 rows can not be used)" in sealed.refusal.message


def test_a_missing_upload_is_refused(make_stage: MakeStage) -> None:
    stage = make_stage()
    job = stage.job(GOOD)
    stage.blobs.delete(job.input.blob)
    sealed = stage.plan(job)
    assert sealed.refusal is not None
    assert (sealed.refusal.rule, "submit it again" in sealed.refusal.message) == ("blob_missing", True)


def test_a_blob_that_is_no_pipeline_is_refused(make_stage: MakeStage) -> None:
    stage = make_stage()
    sealed = stage.plan(stage.job(GOOD, pipeline_digest=stage.blobs.put(b'{"name": "x"}')))
    assert sealed.refusal is not None
    assert sealed.refusal.rule == "unreadable_pipeline"


def test_a_long_document_ends_alone_and_never_refuses_the_job(make_stage: MakeStage) -> None:
    """P7: the pool's context is 1,000 tokens."""
    stage = make_stage()
    long = {"id": "long", "body": "word " * 5_000}
    sealed = stage.plan(stage.job(jsonl([*tickets(1), long])))
    assert sealed.refusal is None
    items = stage.expand_all(sealed)
    assert [item.input_tokens > 1_000 for item in items] == [False, True]


def test_sealed_totals(make_stage: MakeStage) -> None:
    """P4: limits of the pipeline hold where the job names none."""
    stage = make_stage()
    pipeline = make_pipeline(limits={"budget_usd": 2.5, "deadline": "1h"}, repair={"attempts": 1})
    job = stage.job(BAD, pipeline, skip_bad_rows=True, priority=4, tags={"team": "x"})
    sealed = stage.plan(job)
    assert sealed.refusal is None
    assert (sealed.planned, sealed.refused_rows, sealed.blocks) == (3, 2, 1)
    assert sealed.max_output_tokens == 3 * 100
    assert sealed.expected_cost_nano_usd == sealed.input_tokens * 1_000 + 300 * 10_000
    assert sealed.worst_cost_nano_usd is not None
    assert sealed.worst_cost_nano_usd > sealed.expected_cost_nano_usd
    assert sealed.budget_nano_usd == 2_500_000_000
    assert sealed.deadline_at_ms == NOW_MS + 3_600_000
    assert (sealed.priority, sealed.tags) == (4, {"team": "x"})
    assert stage.row(job).phase is PlanPhase.SEALED
    assert not list(stage.part.table(BlockPlanRow).prefix(""))


def test_a_job_sent_twice_is_planned_once(make_stage: MakeStage) -> None:
    """M3"""
    stage = make_stage()
    job = stage.job(GOOD)
    stage.plan(job)
    assert stage.planner.on_job_submitted(job, stage.part) is NOTHING


def test_a_tick_is_bounded_and_batches_take_turns(make_stage: MakeStage) -> None:
    """E4: one slice of one batch per tick; a small job does not wait for a big one."""
    stage = make_stage()
    big = stage.job(jsonl(tickets(9_000)))
    small = stage.job(GOOD, job_id="acme.sort-tickets.20261129-000001-b2")
    stage.submit(big)
    stage.submit(small)
    seen: list[tuple[int, int]] = []
    while stage.row(small).phase in (PlanPhase.FREEZING, PlanPhase.MERGING):
        stage.tick()
        assert stage.planner.busy()
        assert stage.planner.goes_on()
        seen.append((stage.row(big).planned, stage.row(small).planned))
    assert seen == [(2_000, 0), (2_000, 3), (4_000, 3), (4_000, 3)]


def test_planning_waits_while_the_disk_refuses(make_stage: MakeStage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = make_stage()
    job = stage.job(GOOD)
    stage.submit(job)

    def refuse(_self: BlobStore, _data: bytes) -> str:
        raise Unavailable("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(BlobStore, "put", refuse)
        assert stage.planner.on_tick(stage.part) is NOTHING
        assert stage.planner.busy()
        assert not stage.planner.goes_on()
    stage.part.now_ms += 10_000
    while stage.row(job).phase is not PlanPhase.SEALED:
        stage.tick()
    assert stage.sealed(job).planned == 3
