"""The publisher over aborts, crashes and a target that is away: one version comes out, nothing is lost."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nightmill.kernel.domain.lifecycle import BatchState, Command
from nightmill.kernel.wire.messages import BatchPublished, JobCompleted
from nightmill.publisher.results import current, read_rows
from unit.publisher.world import BATCH, DATASET, World

CRASHES: dict[str, Callable[[World], None]] = {
    "abort": World.abort,
    "kill": World.crash,
}


class TestCrashes:
    @pytest.mark.parametrize("how", sorted(CRASHES))
    @pytest.mark.parametrize("after", range(5))
    def test_one_version_comes_out_wherever_it_breaks(self, tmp_path: Path, after: int, how: str) -> None:
        """E1, Q5: between settlement, intent, files, pointer and commit; input is replayed from the last commit."""
        world = World(tmp_path)
        world.begin(3)
        items = [world.settled(n) for n in range(3)]
        # settled; the intent decided; committed, the switch starts; landed; committed
        for number, step in enumerate(["take", "tick", "commit", "tick", "commit"]):
            if step == "take":
                world.take(*items)
            elif step == "tick":
                world.tick()
            else:
                world.commit(start=number != after)
            if number == after:
                CRASHES[how](world)
                world.take(*items)
        world.settle_down()
        self._assert_published_once(world)

    @pytest.mark.parametrize("how", sorted(CRASHES))
    def test_a_pointer_without_its_commit_is_recognised(self, world: World, how: str) -> None:
        """Q5: the switch was made, the process died before it could say so."""
        world.begin(3)
        world.take(*(world.settled(n) for n in range(3)))
        world.tick()
        world.commit()  # the effect runs: the pointer is there
        assert current(world.results) is not None
        assert world.sent_of(BatchPublished) == []
        CRASHES[how](world)
        world.settle_down()
        self._assert_published_once(world)

    def test_what_waits_for_its_commit_does_not_run_yet(self, world: World) -> None:
        """An effect that was only asked for must not put off the commit that starts it."""
        world.begin(1)
        world.take(world.settled(0))
        world.tick()
        world.commit(start=False)
        world.crash()
        world.tick()
        assert world.part.effects
        assert not world.service.busy()
        world.commit()
        assert world.service.busy()
        world.tick()
        assert not world.service.busy()

    def test_parts_of_an_aborted_transaction_never_show(self, world: World) -> None:
        """Staged, then aborted: the same items come again with another answer."""
        world.begin(1)
        world.take(world.settled(0, output='{"label":"aborted","score":0}'))
        world.service.on_flush(world.part)
        world.abort()
        world.take(world.settled(0))
        world.settle_down()
        assert [row["label"] for row in read_rows(world.results)] == ["l0"]

    def test_a_target_that_is_away_is_waited_out(self, world: World) -> None:
        """E8: a downstream failure replays the staged write; no model is asked again."""
        world.begin(1)
        world.take(world.settled(0))
        world.results.mkdir(parents=True)
        (world.results / "versions").write_text("in the way")
        world.settle_down(3)
        assert (world.row.state, current(world.results)) == (BatchState.VALIDATING, None)
        (world.results / "versions").unlink()
        world.part.now_ms += 1_000
        world.settle_down()
        self._assert_published_once(world, planned=1)

    def test_a_foreign_pointer_makes_it_decide_again(self, world: World, tmp_path: Path) -> None:
        """Q5: another installation wrote number 3 into the same folder."""
        other = World(tmp_path, job=f"{DATASET}.20260101-000000-zz", batch=f"{DATASET}.20260101-000000-zz.1")
        other.begin(1)
        other.take(other.settled(0))
        other.settle_down()
        (world.results / "pointer-0000000001.json").rename(world.results / "pointer-0000000003.json")
        world.begin(1)
        world.take(world.settled(0))
        world.settle_down(8)
        assert [(v.version, v.batch_id) for v in world.dataset.versions] == [(4, BATCH)]
        manifest = current(world.results)
        assert manifest is not None
        assert manifest["batch_id"] == BATCH

    def test_lost_parts_hold_the_batch(self, world: World) -> None:
        """Never a version with rows missing: the switch is withdrawn and a person looks."""
        world.begin(1)
        world.take(world.settled(0))
        world.tick()
        world.commit(start=False)
        (part,) = world.results.glob("staging/*/part-*")
        kept = part.rename(world.results / "kept")
        world.crash()
        world.settle_down()
        assert (world.row.state, world.dataset.intent) == (BatchState.HELD, None)
        assert "restore it, then approve" in (world.row.reason or "")
        kept.rename(part)
        world.take(world.ordered(Command.APPROVE, "c1"))
        world.settle_down()
        assert (world.row.state, world.dataset.switch_seq) == (BatchState.PUBLISHED, 2)

    def _assert_published_once(self, world: World, planned: int = 3) -> None:
        assert [p.version for p in world.sent_of(BatchPublished)] == [1]
        assert [n.state for n in world.sent_of(JobCompleted)] == [BatchState.PUBLISHED]
        assert world.row.counts.accepted == planned
        assert [row["_source_id"] for row in read_rows(world.results)] == [f"s{n}" for n in range(planned)]
        assert len(list(world.results.glob("pointer-*"))) == 1
