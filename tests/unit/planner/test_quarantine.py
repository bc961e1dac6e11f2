"""Records, blobs and blocks that can not be used: quarantined, and nobody is left hanging."""

import zlib

import pytest

from nightmill.kernel.domain.ids import digest
from nightmill.kernel.domain.lifecycle import PlanPhase
from nightmill.kernel.domain.pipeline import canonical_json
from nightmill.kernel.runtime.service import NOTHING, ContractViolation
from nightmill.kernel.wire.messages import BatchPlanRow, JobSubmitted
from nightmill.kernel.wire.values import replace
from unit.planner.makers import GOOD, MakeStage, jsonl, make_pipeline, tickets


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
    assert [block.batch_id for block in stage.admitted()] == [sound.batch_id]


def test_a_block_that_can_not_be_read_is_quarantined(make_stage: MakeStage) -> None:
    stage = make_stage()
    sealed = stage.plan(stage.job(GOOD))
    stage.expand_all(sealed)
    (block,) = stage.admitted()
    lost = replace(block, block=replace(block.block, digest=digest(b"gone")))
    with pytest.raises(ContractViolation, match="restore it and resume the job"):
        stage.planner.on_block_admitted(lost, stage.part)


def test_a_block_whose_prompt_fails_now_is_quarantined(make_stage: MakeStage) -> None:
    """The fault is named without the document's text."""
    stage = make_stage()
    pipeline = make_pipeline(prompt="{{ body + 1 }}")
    sealed = stage.plan(stage.job(jsonl([{"id": "a", "body": 1}]), pipeline))
    stage.expand_all(sealed)
    (block,) = stage.admitted()
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
