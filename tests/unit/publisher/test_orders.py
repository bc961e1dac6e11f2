"""Cancel and resume: what still counts, what is planned again, and who was first."""

from pathlib import Path

from nightmill.kernel.domain.bitmap import Bitmap
from nightmill.kernel.domain.lifecycle import BatchState, Command, ControlState, Reuse
from nightmill.kernel.wire.messages import BatchControlled, JobCompleted
from nightmill.publisher.accounting import accounted
from nightmill.publisher.results import current, read_failures, read_rows
from unit.publisher.world import A, D, R, V, World, pipeline


def selection(world: World) -> set[int]:
    """Ordinals that the last control plans again."""
    digest = world.sent_of(BatchControlled)[-1].selection_digest
    assert digest is not None
    return set(Bitmap.from_text(world.blobs.get_json(digest)["ordinals"]).ordinals())


class TestCancelAndResume:
    def test_cancel_fences_and_resume_goes_on(self, world: World) -> None:
        """E11: late results of a cancelled generation are charged (E10) and count nowhere; nothing is paid twice."""
        world.begin(5)
        world.take(world.settled(0), world.settled(1, R), world.settled(2, D), world.settled(3, V))
        world.tick()
        world.commit()
        world.take(world.ordered(Command.CANCEL, "c1"), world.ordered(Command.CANCEL, "c1"))
        world.take(world.settled(4), world.settled(4), world.settled(1, R))
        world.settle_down()
        world.take(world.settled(4))
        assert (world.row.totals.attempts, world.row.counts.cancelled) == (5, 1)
        assert [c.state for c in world.sent_of(BatchControlled)] == [ControlState.RUNNING, ControlState.CANCELLED]
        (notice,) = world.sent_of(JobCompleted)
        assert (notice.state, notice.counts.accepted) == (BatchState.CANCELLED, 1)

        world.take(world.ordered(Command.RESUME, "c2"))
        world.commit()
        control = world.sent_of(BatchControlled)[-1]
        assert (control.generation, control.state, control.reuse) == (2, ControlState.RUNNING, Reuse.FINAL)
        assert selection(world) == {2, 4}
        assert (world.row.counts.accepted, world.row.counts.dead_letter, world.row.totals.attempts) == (1, 0, 5)

        world.take(world.settled(2, generation=1), world.settled(4, generation=1))
        assert accounted(world.row.counts) == 3
        world.take(world.settled(2, generation=2), world.settled(4, generation=2))
        world.take(world.settled(3, A, generation=2, revision=2))
        world.settle_down()
        # 1 of 5 answers is rejected: 0.2 > 0.05
        assert world.sent_of(JobCompleted)[-1].state is BatchState.HELD
        world.take(world.ordered(Command.APPROVE, "c3"))
        world.settle_down()
        assert world.row.state is BatchState.PUBLISHED
        assert [row["_source_id"] for row in read_rows(world.results)] == ["s0", "s2", "s3", "s4"]

    def test_what_an_older_generation_cost_is_charged_once(self, world: World) -> None:
        """E10: settled before the dispatcher heard of the resume; it is charged for nobody else and counts nowhere."""
        world.begin(3)
        world.take(world.settled(0), world.ordered(Command.CANCEL, "c1"), world.ordered(Command.RESUME, "c2"))
        world.take(world.settled(1, generation=1), world.settled(1, generation=1), world.settled(0, generation=1))
        world.commit()
        assert (world.row.generation, world.row.totals.attempts, world.row.totals.cost_nano_usd) == (2, 2, 14)
        world.crash()
        world.take(world.settled(1, generation=1), world.settled(0, generation=1))
        world.take(world.settled(1, generation=2, cost_nano_usd=0), world.settled(2, generation=2))
        world.settle_down()
        assert (world.row.state, world.row.counts.accepted) == (BatchState.PUBLISHED, 3)
        assert world.row.totals.cost_nano_usd == 21
        world.take(world.settled(2, generation=1), world.settled(2, generation=1))
        world.settle_down()
        assert (world.row.state, world.row.totals.cost_nano_usd) == (BatchState.PUBLISHED, 28)

    def test_cancel_after_the_intent_does_nothing(self, world: World) -> None:
        """Cancel and publish are decided in one place: whoever comes first wins, even within one transaction."""
        world.begin(1)
        world.take(world.settled(0))
        world.tick()
        world.take(world.ordered(Command.CANCEL, "c1"))
        world.settle_down()
        world.take(world.ordered(Command.CANCEL, "c2"), world.ordered(Command.RESUME, "c3"))
        world.settle_down()
        assert world.row.state is BatchState.PUBLISHED
        assert [n.state for n in world.sent_of(JobCompleted)] == [BatchState.PUBLISHED]
        assert world.row.generation == 1

    def test_cancel_before_the_decision_wins(self, world: World) -> None:
        world.begin(1)
        world.take(world.settled(0), world.ordered(Command.CANCEL, "c1"))
        world.settle_down()
        assert (world.row.state, current(world.results)) == (BatchState.CANCELLED, None)
        world.take(world.ordered(Command.RESUME, "c2"))
        world.settle_down()
        assert selection(world) == set()
        assert [row["label"] for row in read_rows(world.results)] == ["l0"]

    def test_cancel_before_the_plan_stops_it(self, world: World) -> None:
        world.take(world.ordered(Command.CANCEL, "c1"))
        world.commit()
        world.begin(2)
        world.settle_down()
        assert world.row.state is BatchState.CANCELLED
        assert [c.state for c in world.sent_of(BatchControlled)] == [ControlState.CANCELLED]
        world.take(world.ordered(Command.RESUME, "c2"))
        world.commit()
        assert selection(world) == {0, 1}

    def test_a_cancel_taken_back_before_the_plan(self, world: World) -> None:
        world.take(world.ordered(Command.CANCEL, "c1"), world.ordered(Command.RESUME, "c2"))
        world.commit()
        world.begin(2)
        assert (world.row.state, world.row.generation) == (BatchState.QUEUED, 1)
        assert [c.state for c in world.sent_of(BatchControlled)] == [ControlState.RUNNING]

    def test_a_partial_version_is_repaired_by_a_resume(self, tmp_path: Path) -> None:
        """Q6: dead letters are run again; the new version replaces the partial one."""
        world = World(tmp_path, pipeline(gates={"completion": 0.5}))
        world.begin(2)
        world.take(world.settled(0), world.settled(1, D))
        world.settle_down()
        assert world.row.state is BatchState.PARTIAL_FAILED
        assert [row["source_id"] for row in read_failures(world.results)] == ["s1"]
        world.take(world.ordered(Command.RESUME, "c1"))
        world.commit()
        assert selection(world) == {1}
        world.take(world.settled(1, generation=2))
        world.settle_down()
        assert [(v.version, v.generation, v.rows) for v in world.dataset.versions] == [(1, 1, 1), (2, 2, 2)]
        assert list(read_failures(world.results)) == []
