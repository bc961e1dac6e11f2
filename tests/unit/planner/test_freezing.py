"""Freezing and expanding lose and repeat nothing, however ticks, crashes and limits fall (M4, M5)."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nightmill.kernel.domain.lifecycle import InputFormat, PlanPhase
from nightmill.kernel.store.blocks import MAX_BYTES
from nightmill.kernel.wire.messages import BatchPlanRow, BatchSealed, BlockAdmitted, BlockPlanRow, ItemPlanned
from nightmill.planner import slices
from nightmill.planner.rows import MAX_ROW_BYTES
from unit.planner.makers import Stage, jsonl, make_pipeline, tickets

#: bodies of rows; None stands for a row that can not be used
BODIES = st.lists(st.one_of(st.none(), st.text(max_size=20)), min_size=1, max_size=25)
FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of at most three rows and 100 bytes, so that a few rows make many."""
    monkeypatch.setattr(slices, "MAX_ROWS", 3)
    monkeypatch.setattr(slices, "MAX_BYTES", 100)
    monkeypatch.setattr(slices, "MAX_INPUT_BYTES", 400)


def rows_of(bodies: list[str | None]) -> list[dict[str, Any]]:
    return [{"id": number, "body": body} for number, body in enumerate(bodies)]


def encode(rows: list[dict[str, Any]], format_: InputFormat) -> bytes:
    if format_ is InputFormat.JSONL:
        return jsonl(rows)
    return b"id,body\n" + b"".join(
        b"%d\n" % row["id"]
        if row["body"] is None
        else b'%d,"%s"\n' % (row["id"], row["body"].replace('"', '""').encode())
        for row in rows
    )


def manifest_of(stage: Stage, sealed: BatchSealed) -> dict[str, Any]:
    assert sealed.manifest_digest is not None
    manifest: dict[str, Any] = stage.blobs.get_json(sealed.manifest_digest)
    return manifest


def expanded(stage: Stage, sealed: BatchSealed) -> list[ItemPlanned]:
    """Release everything and expand every block."""
    stage.follow(stage.control(sealed))
    while stage.part.table(BatchPlanRow).get(sealed.batch_id).phase is PlanPhase.RELEASING:
        stage.part.now_ms += 10_000
        stage.tick()
    for message in [m for m in stage.part.sent if isinstance(m, BlockAdmitted)]:
        stage.part.apply(stage.planner.on_block_admitted(message, stage.part))
    return [m for m in stage.part.sent if isinstance(m, ItemPlanned)]


@FEW
@given(
    bodies=BODIES,
    format_=st.sampled_from([InputFormat.JSONL, InputFormat.CSV]),
    crashes=st.sets(st.integers(0, 12)),
    lost=st.sets(st.integers(0, 12)),
    limit=st.one_of(st.none(), st.integers(1, 30)),
)
@pytest.mark.usefixtures("small_blocks")
def test_nothing_is_lost_or_repeated(
    bodies: list[str | None], format_: InputFormat, crashes: set[int], lost: set[int], limit: int | None
) -> None:
    """M4 M5 E1: `crashes` are ticks before which the process ends, `lost` those whose transaction is aborted."""
    rows = rows_of(bodies)
    if limit is not None:
        rows = rows[:limit]
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Path(folder))
        job = stage.job(encode(rows_of(bodies), format_), format=format_, limit=limit, skip_bad_rows=True)
        stage.submit(job)
        tick = 0
        while stage.row(job).phase in (PlanPhase.FREEZING, PlanPhase.MERGING):
            if tick in crashes:
                stage.restart()
            if tick in lost:
                stage.planner.on_tick(stage.part)
                if tick % 2:
                    stage.planner.on_close(stage.part.number)
            stage.tick()
            tick += 1
        sealed = stage.sealed(job)
        good = [row for row in rows if row["body"] is not None]
        assert (sealed.planned, sealed.refused_rows) == (len(good), len(rows) - len(good))
        assert list(stage.part.table(BlockPlanRow).prefix("")) == []
        if not good:
            assert sealed.refusal is not None
            assert sealed.refusal.rule == "empty_input"
            stage.planner.close()
            return
        manifest = manifest_of(stage, sealed)
        assert all(0 < block["rows"] <= 3 for block in manifest["blocks"])
        refused = [row["id"] for row in rows if row["body"] is None]
        places = [f"line {id_ + 1}" if format_ is InputFormat.JSONL else f"row {id_ + 2}" for id_ in refused]
        assert [entry["place"] for entry in manifest["refused"]] == places
        items = expanded(stage, sealed)
        assert [item.ordinal for item in items] == list(range(len(good)))
        assert [item.source_id for item in items] == [str(row["id"]) for row in good]
        assert len({item.item_key for item in items}) == len(good)
        assert sum(item.input_tokens for item in items) == sealed.input_tokens
        stage.planner.close()


@FEW
@given(bodies=st.lists(st.text(max_size=20), min_size=1, max_size=25), crashes=st.sets(st.integers(0, 12)))
@pytest.mark.usefixtures("small_blocks")
def test_a_crash_changes_no_digest(bodies: list[str], crashes: set[int]) -> None:
    """M4: equal input gives an equal manifest, so what was staged before a crash is found again."""
    manifests = []
    with tempfile.TemporaryDirectory() as folder:
        for points in (set[int](), crashes):
            stage = Stage(Path(folder))
            job = stage.job(jsonl(rows_of(list(bodies))))
            stage.submit(job)
            tick = 0
            while stage.row(job).phase in (PlanPhase.FREEZING, PlanPhase.MERGING):
                if tick in points:
                    stage.restart()
                stage.tick()
                tick += 1
            manifests.append(stage.sealed(job).manifest_digest)
            stage.planner.close()
    assert manifests[0] == manifests[1] is not None


def test_block_limits_hold_for_real_sizes(tmp_path: Path) -> None:
    """P3: 2,000 rows or 4 MiB, whichever comes first; a larger row has a block of its own."""
    big = "x" * (MAX_BYTES + 10)
    rows = tickets(2_500) + [{"id": "big", "body": big}] + [{"id": f"m-{n}", "body": "y" * 900_000} for n in range(6)]
    stage = Stage(tmp_path)
    sealed = stage.plan(stage.job(jsonl(rows)))
    blocks = manifest_of(stage, sealed)["blocks"]
    assert [block["rows"] for block in blocks] == [2_000, 500, 1, 4, 2]
    assert [block["first_ordinal"] for block in blocks] == [0, 2_000, 2_500, 2_501, 2_505]
    assert sealed.blocks == 5
    assert sealed.planned == 2_507
    assert len(big) < MAX_ROW_BYTES
    stage.planner.close()


def test_a_slice_of_bad_rows_leaves_no_block(tmp_path: Path) -> None:
    """P7"""
    stage = Stage(tmp_path)
    data = b"{\n" * 4_100 + jsonl(tickets(1))
    sealed = stage.plan(stage.job(data, skip_bad_rows=True))
    manifest = manifest_of(stage, sealed)
    assert (sealed.blocks, sealed.planned, sealed.refused_rows) == (1, 1, 4_100)
    assert (len(manifest["refused"]), manifest["refused_rows"]) == (1_000, 4_100)
    assert manifest["refused"][0] == {
        "place": "line 1",
        "reason": "broken JSON: Expecting property name enclosed in double quotes at column 2; "
        "write one whole JSON object per line",
        "source_id": None,
    }
    stage.planner.close()


def test_the_manifest_names_everything_that_was_frozen(tmp_path: Path) -> None:
    """M5"""
    stage = Stage(tmp_path)
    pipeline = make_pipeline()
    job = stage.job(jsonl(tickets(3)), pipeline)
    manifest = manifest_of(stage, stage.plan(job))
    assert manifest["batch_id"] == f"{job.job_id}.1"
    assert manifest["pipeline_digest"] == job.pipeline_digest
    assert manifest["input"] == json.loads(json.dumps({**job.input.to_avro(), "format": "jsonl"}))
    assert manifest["planned"] == 3
    assert manifest["versions"] == {
        "prompt_version": pipeline.prompt_version,
        "output_schema_version": pipeline.output_schema_version,
        "transform_version": pipeline.transform_version,
        "model_policy_version": pipeline.model_policy_version(("model-mini",)),
    }
    stage.planner.close()
