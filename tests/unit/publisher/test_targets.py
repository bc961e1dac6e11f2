"""One suite that every target passes, and what only files can show."""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.wire.messages import ItemSettled
from nightmill.publisher.accounting import CHUNK, Change, Chunk, accounted, counts_of
from nightmill.publisher.batches import published_state
from nightmill.publisher.results import current, manifest_of, read_failures, read_rows, read_staged, read_table
from nightmill.publisher.targets import TARGETS
from nightmill.publisher.targets.port import Incomplete, Overtaken, Publication, Published, Target
from unit.publisher.world import BATCH, DATASET, JOB, A, D, R, V, World, pipeline, totals


@pytest.fixture(params=["parquet", "jsonl"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(tmp_path, pipeline(publish={"format": request.param, "columns": ["text", "label"]}))


@pytest.fixture(params=sorted(TARGETS))
def target(request: pytest.FixtureRequest, world: World) -> Target:
    return TARGETS[request.param](world.results, world.blobs)


def publication(
    world: World, parts: Sequence[str], settled: Sequence[ItemSettled], *, version: int = 1, generation: int = 1
) -> Publication:
    """What the publisher would ask for after these settlements."""
    chunks: dict[int, Chunk] = {}
    for item in settled:
        number = item.ordinal // CHUNK
        chunk = chunks.setdefault(number, Chunk(BATCH, generation, number))
        change = chunk.change_by(item.ordinal, item.outcome, item.revision)
        if change is not None:
            chunk.apply(item.ordinal, Change(before=change.before, after=change.after))
    rows = tuple(chunk.row() for chunk in chunks.values())
    counts = counts_of(rows, 0)
    return Publication(
        dataset_id=DATASET,
        version=version,
        job_id=JOB,
        batch_id=BATCH,
        generation=generation,
        state=published_state(counts),
        pipeline=world.lines,
        pipeline_digest=world.pipeline_digest,
        input_manifest="m" * 64,
        planned=accounted(counts),
        refused_rows=0,
        counts=counts,
        totals=totals(),
        gold=None,
        gates=(),
        approved=False,
        accounting=rows,
        parts=tuple(parts),
        published_at_ms=9,
    )


class TestEveryTarget:
    """What `Target` promises."""

    def test_equal_items_stage_to_one_digest_in_any_order(self, world: World, target: Target) -> None:
        items = [world.settled(n) for n in range(5)]
        first, second = target.stage(BATCH, items), target.stage(BATCH, items[::-1])
        assert first == second
        assert first.rows == 5

    def test_readers_see_accepted_rows_by_ordinal_joined_with_their_input(self, world: World, target: Target) -> None:
        """Q3: a row carries its provenance."""
        world.rows([{"id": f"s{n}", "text": f"t{n}", "label": n} for n in range(3)])
        items = [world.settled(2), world.settled(0), world.settled(1, R)]
        parts = [target.stage(BATCH, [item]).digest for item in items]
        outcome = target.publish(publication(world, parts, items))
        assert isinstance(outcome, Published)
        assert outcome.rows == 2
        rows = list(target.read())
        assert [(row["text"], row["label"], row["score"]) for row in rows] == [("t0", "l0", 0.5), ("t2", "l2", 0.5)]
        assert str(rows[1]["input_label"]) == "2"
        record = {name: value for name, value in rows[0].items() if name.startswith("_")}
        versions = record.pop("_versions")
        assert versions["prompt"] == world.lines.prompt_version[:12]
        assert record == {
            "_source_id": "s0",
            "_status": "accepted",
            "_rule": None,
            "_attempt_id": "key0-1",
            "_model": "tiny",
            "_cost_nano_usd": 7,
        }

    def test_publishing_again_changes_nothing(self, world: World, target: Target) -> None:
        """Q5: an intent that is done twice switches once."""
        world.rows([{"id": "s0", "text": "t", "label": None}])
        items = [world.settled(0)]
        asked = publication(world, [target.stage(BATCH, items).digest], items)
        assert target.publish(asked) == target.publish(replace(asked, published_at_ms=99))
        assert len(list(target.read())) == 1

    def test_whoever_finds_a_higher_or_foreign_switch_decides_again(self, world: World, target: Target) -> None:
        """Q5: one number has one winner, and a lower one never replaces a higher."""
        world.rows([{"id": "s0", "text": "t", "label": None}])
        items = [world.settled(0)]
        asked = publication(world, [target.stage(BATCH, items).digest], items, version=4)
        assert isinstance(target.publish(asked), Published)
        assert target.publish(replace(asked, generation=2)) == Overtaken(highest=4)
        assert target.publish(replace(asked, generation=2, version=3)) == Overtaken(highest=4)
        assert isinstance(target.publish(replace(asked, generation=2, version=5)), Published)

    def test_older_versions_stay_readable(self, world: World, target: Target) -> None:
        world.rows([{"id": f"s{n}", "text": "t", "label": None} for n in range(2)])
        items = [world.settled(0), world.settled(1)]
        part = target.stage(BATCH, items).digest
        target.publish(publication(world, [part], items[:1], version=1))
        target.publish(publication(world, [part], items, version=2, generation=2))
        assert [len(list(target.read(version))) for version in (1, 2, None)] == [1, 2, 2]
        assert list(target.read(3)) == []

    def test_the_newest_row_of_the_accounted_outcome_is_taken(self, world: World, target: Target) -> None:
        """E11: what a later generation or revision said replaces what was staged before, never the other way."""
        world.rows([{"id": f"s{n}", "text": "t", "label": None} for n in range(3)])
        old = [world.settled(0, V), world.settled(1, D), world.settled(2, output='{"label":"old","score":1}')]
        new = [
            world.settled(0, A, revision=2),
            world.settled(1, A, generation=2),
            world.settled(2, generation=2, output='{"label":"new","score":1}'),
        ]
        future = [world.settled(2, generation=3, output='{"label":"future","score":1}')]
        parts = [target.stage(BATCH, items).digest for items in (future, new, old)]
        target.publish(publication(world, parts, new, generation=2))
        assert [row["label"] for row in target.read()] == ["l0", "l1", "new"]

    def test_merged_parts_hold_what_their_sources_held(self, world: World, target: Target) -> None:
        world.rows([{"id": f"s{n}", "text": "t", "label": None} for n in range(40)])
        items = [world.settled(n) for n in range(40)]
        parts = [target.stage(BATCH, items[n::4]).digest for n in range(4)]
        merged = target.merge(BATCH, parts)
        assert merged.rows == 40
        target.publish(publication(world, [merged.digest], items))
        assert [row["_source_id"] for row in target.read()] == [f"s{n}" for n in range(40)]

    def test_an_empty_version_is_a_version(self, world: World, target: Target) -> None:
        assert list(target.read()) == []
        assert target.publish(publication(world, [], [])) == target.publish(publication(world, [], []))
        assert list(target.read()) == []

    def test_rows_that_were_never_staged_stop_the_switch(self, world: World, target: Target) -> None:
        """Published is exactly what was accounted for, or nothing is."""
        world.rows([{"id": "s0", "text": "t", "label": None}] * 2)
        items = [world.settled(0), world.settled(1)]
        part = target.stage(BATCH, items[:1]).digest
        outcome = target.publish(publication(world, [part], items))
        assert isinstance(outcome, Incomplete)
        assert "1 accepted rows" in outcome.reason
        assert isinstance(target.publish(publication(world, ["f" * 64], items)), Incomplete)
        assert list(target.read()) == []

    def test_only_old_unnamed_parts_are_swept(self, world: World, target: Target) -> None:
        world.rows([{"id": f"s{n}", "text": "t", "label": None} for n in range(2)])
        named = target.stage(BATCH, [world.settled(0)]).digest
        lost = target.stage(BATCH, [world.settled(1)]).digest
        assert target.discard(BATCH, named={named}, before_ms=0) == 0
        assert target.discard(BATCH, named={named}, before_ms=2**62) == 1
        assert isinstance(target.publish(publication(world, [lost], [world.settled(1)])), Incomplete)
        assert isinstance(target.publish(publication(world, [named], [world.settled(0)])), Published)

    def test_a_value_that_no_typed_column_holds_is_kept(self, world: World, target: Target) -> None:
        """A score past what a float says exactly: the column turns to JSON text, the value stays."""
        world.rows([{"id": "s0", "text": "t", "label": None}])
        big = 2**60 + 1
        items = [world.settled(0, output=f'{{"label":"x","score":{big}}}')]
        target.publish(publication(world, [target.stage(BATCH, items).digest], items))
        assert [row["score"] for row in target.read()] == [big]


class TestFiles:
    """What readers of the folder rely on."""

    @pytest.fixture
    def published(self, world: World) -> World:
        world.rows([{"id": f"s{n}", "text": f"t{n}", "label": None} for n in range(4)])
        items = [world.settled(0), world.settled(1, R), world.settled(2, D), world.settled(3, V)]
        files = TARGETS["files"](world.results, world.blobs)
        assert isinstance(files.publish(publication(world, [files.stage(BATCH, items).digest], items)), Published)
        return world

    def test_the_manifest_is_the_contract(self, published: World) -> None:
        """Q6: scope, what is missing, where the list is, what to do next."""
        manifest = current(published.results)
        assert manifest is not None
        assert (manifest["version"], manifest["state"], manifest["generation"]) == (1, "partial_failed", 1)
        partial = manifest["partial"]
        assert partial["scope"] == {"published": 1, "of": 4}
        assert partial["missing"] == {"dead_letter": 1, "in_review": 1, "cancelled": 0}
        assert (partial["in_review"], partial["repair"]) == (["s3"], f"nightmill resume {JOB}")
        folder = (published.results / manifest["location"]).parent
        for file in manifest["files"]:
            assert (folder / file["name"]).stat().st_size == file["bytes"]
        assert partial["failures_file"] in [file["name"] for file in manifest["files"]]

    def test_failures_say_why(self, published: World) -> None:
        said = [
            (row["source_id"], row["status"], row["rule"], row["field"], row["failure_class"], row["signal"])
            for row in read_failures(published.results)
        ]
        assert said == [
            ("s1", "rejected", "enum", "label", None, None),
            ("s2", "dead_letter", None, None, "bad_input", "context_too_long"),
            ("s3", "in_review", "enum", "label", None, None),
        ]

    def test_rows_tables_and_staged_rows_agree(self, published: World) -> None:
        rows = list(read_rows(published.results))
        staged = list(read_staged(published.results, BATCH, published.lines, published.blobs))
        assert [row["label"] for row in rows] == [row["label"] for row in staged] == ["l0"]
        table = read_table(published.results)
        assert table is not None
        assert table.num_rows == 1
        assert table.schema.field("score").type == "double"
        assert json.loads(table.column("_versions")[0].as_py()) == rows[0]["_versions"]

    def test_an_empty_result_has_its_columns(self, world: World) -> None:
        files = TARGETS["files"](world.results, world.blobs)
        files.publish(publication(world, [], []))
        table = read_table(world.results)
        assert table is not None
        assert table.column_names[:4] == ["text", "input_label", "label", "score"]
        assert (table.num_rows, manifest_of(world.results, 2), read_table(world.results, 2)) == (0, None, None)

    def test_half_written_files_are_nobodys(self, published: World) -> None:
        """A crash leaves temporary files: no pointer, no part; the sweep takes them."""
        folder = published.results
        (folder / ".pointer-0000000009.json.1-ab").write_text("{")
        (folder / "staging" / BATCH / ".part-x.parquet.1-ab").write_text("half")
        manifest = current(folder)
        assert manifest is not None
        assert manifest["version"] == 1
        files = TARGETS["files"](folder, published.blobs)
        part = next((folder / "staging" / BATCH).glob("part-*")).name.removeprefix("part-").removesuffix(".parquet")
        assert files.discard(BATCH, named={part}, before_ms=2**62) == 1

    def test_a_crash_before_the_pointer_leaves_readers_where_they_were(self, published: World) -> None:
        """Q5: a whole version without its pointer is not seen, and publishing it again finishes it."""
        files = TARGETS["files"](published.results, published.blobs)
        items = [published.settled(n, generation=2) for n in range(4)]
        asked = publication(published, [files.stage(BATCH, items).digest], items, version=2, generation=2)
        assert isinstance(files.publish(asked), Published)
        (published.results / "pointer-0000000002.json").unlink()
        assert len(list(files.read())) == 1
        assert isinstance(files.publish(asked), Published)
        assert len(list(files.read())) == 4


def test_a_large_version_is_assembled_window_by_window(tmp_path: Path) -> None:
    """Parts interleave over several chunks; rows come out once each, in order."""
    world = World(tmp_path, pipeline())
    files = TARGETS["files"](world.results, world.blobs)
    planned = 2 * CHUNK + 100
    items = [world.settled(n) for n in range(planned)]
    parts = [files.stage(BATCH, items[n::7]).digest for n in range(7)]
    assert isinstance(files.publish(publication(world, parts, items)), Published)
    names = [row["_source_id"] for row in files.read()]
    assert names == [f"s{n}" for n in range(planned)]


def test_parquet_columns_are_typed(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"label": {"type": "string"}, "n": {"type": "integer"}, "tags": {"type": "array"}}
    lines: Pipeline = pipeline(output={"type": "object", "properties": fields})
    world = World(tmp_path, lines)
    files = TARGETS["files"](world.results, world.blobs)
    items = [world.settled(0, output='{"label":"x","n":3.0,"tags":["a"],"more":1}')]
    files.publish(publication(world, [files.stage(BATCH, items).digest], items))
    (data,) = world.results.glob("versions/*/data-*.parquet")
    row = pq.read_table(data).to_pylist()[0]
    assert (row["n"], row["tags"], row["other_fields"]) == (3, '["a"]', '{"more":1}')
    assert os.path.basename(data).startswith("data-00000-")
