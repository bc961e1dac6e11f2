"""The planner's handlers and ticks on one partition: every bad input, every repeat, every stop."""

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nightmill.kernel.domain.bitmap import Bitmap
from nightmill.kernel.domain.ids import ItemIdentity, digest, item_key
from nightmill.kernel.domain.lifecycle import ControlState, InputFormat, PlanPhase, Reuse
from nightmill.kernel.domain.pipeline import canonical_json
from nightmill.kernel.runtime.service import NOTHING, ContractViolation, Unavailable
from nightmill.kernel.store.blobs import BlobStore
from nightmill.kernel.store.blocks import BlockReader
from nightmill.kernel.wire.messages import (
    BatchPlanRow,
    BatchSealed,
    BlockAdmitted,
    BlockPlanRow,
    ItemPlanned,
    JobSubmitted,
)
from nightmill.kernel.wire.values import replace
from unit.planner.makers import NOW_MS, Stage, jsonl, make_pipeline, tickets

MakeStage = Callable[..., Stage]


@pytest.fixture
def make_stage(tmp_path: Path) -> Iterator[MakeStage]:
    made: list[Stage] = []

    def make(**options: Any) -> Stage:
        made.append(Stage(tmp_path, **options))
        return made[-1]

    yield make
    for stage in made:
        stage.planner.close()


GOOD = jsonl(tickets(3))
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
    items = expand_all(stage, sealed)
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


# -- releasing and expanding


def admitted(stage: Stage) -> list[BlockAdmitted]:
    return [message for message in stage.part.sent if isinstance(message, BlockAdmitted)]


def release_all(stage: Stage, sealed: BatchSealed) -> None:
    for _ in range(100):
        if stage.part.table(BatchPlanRow).get(sealed.batch_id).phase is not PlanPhase.RELEASING:
            return
        stage.part.now_ms += 10_000
        stage.tick()


def expand_all(stage: Stage, sealed: BatchSealed, **word: Any) -> list[ItemPlanned]:
    before = len(stage.part.sent)
    stage.follow(stage.control(sealed, **word))
    release_all(stage, sealed)
    blocks = [message for message in stage.part.sent[before:] if isinstance(message, BlockAdmitted)]
    items: list[ItemPlanned] = []
    for block in blocks:
        decision = stage.planner.on_block_admitted(block, stage.part)
        items += [message for message in decision.send if isinstance(message, ItemPlanned)]
    return items


def test_an_item_carries_its_identity_and_the_word(make_stage: MakeStage) -> None:
    """M3"""
    stage = make_stage()
    pipeline = make_pipeline()
    job = stage.job(jsonl([{"id": 7, "body": "x", "more": 1}]), pipeline, priority=2)
    sealed = stage.plan(job)
    (item,) = expand_all(stage, sealed, reuse=Reuse.FINAL, deadline_at_ms=NOW_MS + 9_000, generation=3)
    identity = ItemIdentity(
        tenant="acme",
        source_id="7",
        source_version=digest(canonical_json({"body": "x"})),
        pipeline="sort-tickets",
        transform_version=pipeline.transform_version,
        prompt_version=pipeline.prompt_version,
        model_policy_version=pipeline.model_policy_version(("model-mini",)),
        output_schema_version=pipeline.output_schema_version,
    )
    assert item.item_key == item_key(identity)
    assert (item.source_id, item.ordinal, item.generation) == ("7", 0, 3)
    assert (item.reuse, item.priority, item.deadline_at_ms) == (Reuse.FINAL, 2, NOW_MS + 9_000)
    assert (item.batch_id, item.job_id, item.dataset_id) == (sealed.batch_id, job.job_id, job.dataset_id)
    assert (item.max_output_tokens, item.pipeline_digest) == (100, job.pipeline_digest)
    assert BlockReader(stage.blobs).row(item.row) == {"id": "7", "body": "x"}
    (block,) = admitted(stage)
    assert block.block_id == f"{sealed.batch_id}/3/0"


def test_a_selection_plans_those_ordinals_alone(make_stage: MakeStage) -> None:
    """E11: blocks without a selected row do not go out at all."""
    stage = make_stage()
    sealed = stage.plan(stage.job(jsonl(tickets(6_500))))
    wanted = [0, 7, 1_999, 6_000, 6_499]
    selection = stage.blobs.put_json({"ordinals": Bitmap.of(6_500, wanted).to_text()})
    items = expand_all(stage, sealed, generation=2, selection_digest=selection)
    assert [item.ordinal for item in items] == wanted
    assert [item.source_id for item in items] == [f"t-{ordinal}" for ordinal in wanted]
    assert [block.first_ordinal for block in admitted(stage)] == [0, 6_000]


def test_release_waits_for_the_dispatcher(make_stage: MakeStage) -> None:
    """E4: the mark is 5,000 items; what just went out counts until the lag can show it."""
    lag: list[int | None] = [None]
    stage = make_stage(lag=lambda: lag[0])
    sealed = stage.plan(stage.job(jsonl(tickets(14_000))))
    stage.follow(stage.control(sealed))
    released = []
    for now_s, value in [(0, None), (0, 5_000), (0, 4_000), (1, 0), (2, 3_000), (9, 0), (9, 0), (20, 0)]:
        stage.part.now_ms, lag[0] = NOW_MS + now_s * 1000, value
        stage.tick()
        released.append(len(admitted(stage)))
    # at 1 s: 2,000 unseen and room up to the mark for two more; at 2 s: 6,000 unseen are over it
    assert released == [0, 0, 1, 3, 3, 6, 6, 7]
    assert stage.part.table(BatchPlanRow).get(sealed.batch_id).phase is PlanPhase.RELEASED


def test_the_lag_is_asked_for_before_it_is_needed(make_stage: MakeStage) -> None:
    """The first question is answered only afterwards: a release that comes right after planning does not wait."""
    asked: list[int] = []

    def lag() -> int | None:
        asked.append(stage.part.now_ms)
        return None if len(asked) == 1 else 0

    stage = make_stage(lag=lag)
    sealed = stage.plan(stage.job(GOOD))
    stage.follow(stage.control(sealed))
    stage.tick()
    assert len(admitted(stage)) == 1


def test_hold_stops_the_release_and_running_goes_on(make_stage: MakeStage) -> None:
    """E11"""
    stage = make_stage()
    sealed = stage.plan(stage.job(jsonl(tickets(14_000))))
    stage.follow(stage.control(sealed))
    stage.tick()
    first = len(admitted(stage))
    held = stage.control(sealed, state=ControlState.HELD, controlled_at_ms=NOW_MS + 1)
    stage.follow(held)
    stage.part.now_ms += 60_000
    stage.tick()
    assert len(admitted(stage)) == first == 3
    assert not stage.planner.busy()
    stage.restart()
    stage.follow(stage.control(sealed, controlled_at_ms=NOW_MS + 2))
    release_all(stage, sealed)
    assert [block.first_ordinal for block in admitted(stage)] == list(range(0, 14_000, 2_000))


def test_held_after_the_last_block_and_running_again_ends(make_stage: MakeStage) -> None:
    stage = make_stage()
    job = stage.job(GOOD)
    sealed = stage.plan(job)
    expand_all(stage, sealed)
    stage.follow(stage.control(sealed, state=ControlState.HELD, controlled_at_ms=NOW_MS + 1))
    stage.follow(stage.control(sealed, controlled_at_ms=NOW_MS + 2))
    assert stage.row(job).phase is PlanPhase.RELEASING
    stage.tick()
    assert stage.row(job).phase is PlanPhase.RELEASED
    assert len(admitted(stage)) == 1


def test_a_crash_between_releases_repeats_and_loses_no_block(make_stage: MakeStage) -> None:
    """E1: an aborted release is released again, with equal ids."""
    stage = make_stage()
    sealed = stage.plan(stage.job(jsonl(tickets(14_000))))
    stage.follow(stage.control(sealed))
    while stage.part.table(BatchPlanRow).get(sealed.batch_id).phase is PlanPhase.RELEASING:
        stage.planner.on_tick(stage.part)
        stage.restart()
        stage.part.now_ms += 10_000
        stage.tick()
    assert [block.first_ordinal for block in admitted(stage)] == list(range(0, 14_000, 2_000))


def test_expanding_twice_gives_equal_items(make_stage: MakeStage) -> None:
    """E1"""
    stage = make_stage()
    sealed = stage.plan(stage.job(GOOD))
    expand_all(stage, sealed)
    (block,) = admitted(stage)
    first = stage.planner.on_block_admitted(block, stage.part)
    stage.restart()
    assert stage.planner.on_block_admitted(block, stage.part) == first


def test_a_word_on_an_unknown_batch_is_quarantined(make_stage: MakeStage) -> None:
    stage = make_stage()
    sealed = stage.plan(stage.job(GOOD))
    with pytest.raises(ContractViolation, match="was never planned"):
        stage.planner.on_batch_controlled(stage.control(sealed, batch_id="acme.x.y.1"), stage.part)


@pytest.mark.parametrize("field", ["manifest_digest", "selection_digest"])
def test_a_word_whose_blobs_are_gone_is_quarantined(make_stage: MakeStage, field: str) -> None:
    stage = make_stage()
    sealed = stage.plan(stage.job(GOOD))
    with pytest.raises(ContractViolation, match="restore it and resume the job"):
        stage.planner.on_batch_controlled(stage.control(sealed, **{field: digest(b"gone")}), stage.part)


def test_a_manifest_lost_while_releasing_stops_that_batch_alone(make_stage: MakeStage) -> None:
    stage = make_stage()
    other = stage.job(jsonl(tickets(2)), job_id="acme.sort-tickets.20261129-000001-b2")
    sealed, sound = stage.plan(stage.job(GOOD)), stage.plan(other)
    stage.follow(stage.control(sealed))
    stage.follow(stage.control(sound))
    assert sealed.manifest_digest is not None
    stage.blobs.delete(sealed.manifest_digest)
    stage.restart()
    stage.tick()
    assert stage.part.table(BatchPlanRow).get(sealed.batch_id).phase is PlanPhase.STOPPED
    assert [block.batch_id for block in admitted(stage)] == [sound.batch_id]


def test_a_block_that_can_not_be_read_is_quarantined(make_stage: MakeStage) -> None:
    stage = make_stage()
    sealed = stage.plan(stage.job(GOOD))
    expand_all(stage, sealed)
    (block,) = admitted(stage)
    lost = replace(block, block=replace(block.block, digest=digest(b"gone")))
    with pytest.raises(ContractViolation, match="restore it and resume the job"):
        stage.planner.on_block_admitted(lost, stage.part)


def test_a_block_whose_prompt_fails_now_is_quarantined(make_stage: MakeStage) -> None:
    """The fault is named without the document's text."""
    stage = make_stage()
    pipeline = make_pipeline(prompt="{{ body + 1 }}")
    sealed = stage.plan(stage.job(jsonl([{"id": "a", "body": 1}]), pipeline))
    expand_all(stage, sealed)
    (block,) = admitted(stage)
    spoilt = stage.blobs.put(zlib.compress(canonical_json({"id": "a", "body": "secret"})))
    with pytest.raises(ContractViolation, match="TypeError in the template") as caught:
        stage.planner.on_block_admitted(replace(block, block=replace(block.block, digest=spoilt)), stage.part)
    assert "secret" not in str(caught.value)


def test_a_quarantined_submission_is_sealed_as_refused(make_stage: MakeStage) -> None:
    """E1: quarantine leaves nobody hanging."""
    stage = make_stage()
    job: JobSubmitted = stage.job(GOOD)
    headers = {"job": job.job_id}
    stage.part.apply(stage.planner.on_quarantined("job-submitted", headers, "no schema number", stage.part))
    sealed = stage.sealed(job)
    assert sealed.refusal is not None
    assert sealed.refusal.rule == "quarantined"
    assert "no schema number" in sealed.refusal.message
    assert (sealed.batch_id, sealed.dataset_id, sealed.tenant) == (f"{job.job_id}.1", "acme.sort-tickets", "acme")


@pytest.mark.parametrize("headers", [{}, {"job": "nonsense"}])
def test_a_quarantined_record_that_names_no_job_is_only_reported(
    make_stage: MakeStage, headers: dict[str, str]
) -> None:
    stage = make_stage()
    for topic in ("job-submitted", "block-admitted", "batch-controlled"):
        assert stage.planner.on_quarantined(topic, headers, "spoilt", stage.part) is NOTHING


def test_an_idle_partition_does_nothing(make_stage: MakeStage) -> None:
    stage = make_stage()
    assert stage.planner.on_tick(stage.part) is NOTHING
    assert not stage.planner.busy()
