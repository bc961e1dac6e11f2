"""From a sealed batch to its planned items: whose word is heeded, what is held, and what a crash repeats."""

from nightmill.kernel.domain.bitmap import Bitmap
from nightmill.kernel.domain.ids import ItemIdentity, digest, item_key
from nightmill.kernel.domain.lifecycle import ControlState, PlanPhase, Reuse
from nightmill.kernel.domain.pipeline import canonical_json
from nightmill.kernel.runtime.service import NOTHING
from nightmill.kernel.store.blocks import BlockReader
from nightmill.kernel.wire.messages import BatchPlanRow
from unit.planner.makers import GOOD, NOW_MS, MakeStage, jsonl, make_pipeline, tickets


def test_an_item_carries_its_identity_and_the_word(make_stage: MakeStage) -> None:
    """M3"""
    stage = make_stage()
    pipeline = make_pipeline()
    job = stage.job(jsonl([{"id": 7, "body": "x", "more": 1}]), pipeline, priority=2)
    sealed = stage.plan(job)
    (item,) = stage.expand_all(sealed, reuse=Reuse.FINAL, deadline_at_ms=NOW_MS + 9_000, generation=3)
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
    (block,) = stage.admitted()
    assert block.block_id == f"{sealed.batch_id}/3/0"


def test_a_selection_plans_those_ordinals_alone(make_stage: MakeStage) -> None:
    """E11: blocks without a selected row do not go out at all."""
    stage = make_stage()
    sealed = stage.plan(stage.job(jsonl(tickets(6_500))))
    wanted = [0, 7, 1_999, 6_000, 6_499]
    selection = stage.blobs.put_json({"ordinals": Bitmap.of(6_500, wanted).to_text()})
    items = stage.expand_all(sealed, generation=2, selection_digest=selection)
    assert [item.ordinal for item in items] == wanted
    assert [item.source_id for item in items] == [f"t-{ordinal}" for ordinal in wanted]
    assert [block.first_ordinal for block in stage.admitted()] == [0, 6_000]


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
        released.append(len(stage.admitted()))
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
    assert len(stage.admitted()) == 1


def test_hold_stops_the_release_and_running_goes_on(make_stage: MakeStage) -> None:
    """E11"""
    stage = make_stage()
    sealed = stage.plan(stage.job(jsonl(tickets(14_000))))
    stage.follow(stage.control(sealed))
    stage.tick()
    first = len(stage.admitted())
    held = stage.control(sealed, state=ControlState.HELD, controlled_at_ms=NOW_MS + 1)
    stage.follow(held)
    stage.part.now_ms += 60_000
    stage.tick()
    assert len(stage.admitted()) == first == 3
    assert not stage.planner.busy()
    stage.restart()
    stage.follow(stage.control(sealed, controlled_at_ms=NOW_MS + 2))
    stage.release_all(sealed)
    assert [block.first_ordinal for block in stage.admitted()] == list(range(0, 14_000, 2_000))


def test_held_after_the_last_block_and_running_again_ends(make_stage: MakeStage) -> None:
    stage = make_stage()
    job = stage.job(GOOD)
    sealed = stage.plan(job)
    stage.expand_all(sealed)
    stage.follow(stage.control(sealed, state=ControlState.HELD, controlled_at_ms=NOW_MS + 1))
    stage.follow(stage.control(sealed, controlled_at_ms=NOW_MS + 2))
    assert stage.row(job).phase is PlanPhase.RELEASING
    stage.tick()
    assert stage.row(job).phase is PlanPhase.RELEASED
    assert len(stage.admitted()) == 1


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
    assert [block.first_ordinal for block in stage.admitted()] == list(range(0, 14_000, 2_000))


def test_expanding_twice_gives_equal_items(make_stage: MakeStage) -> None:
    """E1"""
    stage = make_stage()
    sealed = stage.plan(stage.job(GOOD))
    stage.expand_all(sealed)
    (block,) = stage.admitted()
    first = stage.planner.on_block_admitted(block, stage.part)
    stage.restart()
    assert stage.planner.on_block_admitted(block, stage.part) == first


def test_an_idle_partition_does_nothing(make_stage: MakeStage) -> None:
    stage = make_stage()
    assert stage.planner.on_tick(stage.part) is NOTHING
    assert not stage.planner.busy()
