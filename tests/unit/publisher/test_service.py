"""The publisher over commits, aborts and crashes: nothing is published twice or lost, one authority decides."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nightmill.kernel.domain.bitmap import Bitmap
from nightmill.kernel.domain.lifecycle import BatchState, Command, ControlState, ItemOutcome, Reuse
from nightmill.kernel.runtime.service import ContractViolation
from nightmill.kernel.wire.messages import AccountingRow, BatchControlled, BatchPublished, JobCompleted, PartRow
from nightmill.kernel.wire.values import replace
from nightmill.publisher.accounting import Chunk, accounted, disagreement
from nightmill.publisher.book import MERGE_PARTS
from nightmill.publisher.results import current, read_failures, read_rows
from unit.publisher.world import BATCH, DATASET, JOB, World, pipeline

A, R, D, V = ItemOutcome.ACCEPTED, ItemOutcome.REJECTED, ItemOutcome.DEAD_LETTER, ItemOutcome.IN_REVIEW


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def begin(world: World, planned: int, **fields: Any) -> None:
    world.take(world.sealed(planned, **fields))
    world.commit()


def selection(world: World) -> set[int]:
    """Ordinals that the last control plans again."""
    digest = world.sent_of(BatchControlled)[-1].selection_digest
    assert digest is not None
    return set(Bitmap.from_text(world.blobs.get_json(digest)["ordinals"]).ordinals())


class TestFromPlanToPublished:
    def test_a_sealed_batch_is_released_once(self, world: World) -> None:
        """M2: QUEUED, generation 1, everything planned, accepted answers reused."""
        world.take(world.sealed(3), world.sealed(3))
        world.commit()
        world.take(world.sealed(3))
        world.commit()
        (control,) = world.sent_of(BatchControlled)
        assert (control.generation, control.state, control.selection_digest) == (1, ControlState.RUNNING, None)
        assert (control.reuse, control.priority, world.row.state) == (Reuse.ACCEPTED, 3, BatchState.QUEUED)

    def test_a_refused_batch_ends_with_its_reason(self, world: World) -> None:
        begin(world, 0, refusal="model x has no price in prices.yaml; add it")
        world.settle_down()
        (notice,) = world.sent_of(JobCompleted)
        assert (notice.state, notice.reason) == (BatchState.REFUSED, "model x has no price in prices.yaml; add it")
        assert world.sent_of(BatchControlled) == []

    def test_settled_items_become_a_version(self, world: World) -> None:
        """Q3, Q5, M2: published means accounted, passed, manifest, versions, switch."""
        begin(world, 4)
        world.take(*(world.settled(n) for n in range(2)))
        world.tick()
        world.commit()
        assert (world.row.state, current(world.results)) == (BatchState.RUNNING, None)
        world.take(world.settled(3), world.settled(2, reused=True, cost_nano_usd=0))
        world.settle_down()
        (published,) = world.sent_of(BatchPublished)
        (notice,) = world.sent_of(JobCompleted)
        assert (published.version, published.rows, published.state) == (1, 4, BatchState.PUBLISHED)
        assert (notice.state, notice.version, notice.location) == (BatchState.PUBLISHED, 1, published.location)
        assert (notice.counts.accepted, notice.counts.reused, notice.totals.cost_nano_usd) == (4, 1, 21)
        assert [v.version for v in world.dataset.versions] == [1]
        assert (world.dataset.intent, world.row.state) == (None, BatchState.PUBLISHED)
        assert [row["label"] for row in read_rows(world.results)] == ["l0", "l1", "l2", "l3"]

    def test_an_empty_plan_is_published_empty(self, world: World) -> None:
        begin(world, 0)
        world.settle_down()
        assert (world.row.state, list(read_rows(world.results))) == (BatchState.PUBLISHED, [])

    def test_repeated_settlements_count_once(self, world: World) -> None:
        """E1: within a transaction, after it, and after the end."""
        begin(world, 2)
        world.take(world.settled(0), world.settled(0), world.settled(0, D))
        world.commit()
        world.crash()
        world.take(world.settled(0), world.settled(1))
        world.settle_down()
        world.take(world.settled(1, R))
        world.settle_down()
        assert (world.row.counts.accepted, world.row.totals.attempts) == (2, 2)
        assert len(world.sent_of(BatchPublished)) == 1

    def test_rows_are_put_once_per_commit(self, world: World) -> None:
        begin(world, 5_000)
        before = len(world.part.table(AccountingRow).rows)
        world.take(*(world.settled(n) for n in range(1_000)))
        assert len(world.part.table(AccountingRow).rows) == before == 0
        world.commit()
        assert len(world.part.table(AccountingRow).rows) == 1
        assert [part.rows for part in world.part.table(PartRow).rows.values()] == [1_000]

    def test_an_ordinal_outside_the_plan_is_quarantined(self, world: World) -> None:
        begin(world, 2)
        with pytest.raises(ContractViolation, match=r"ordinal 2: batch .* has 2 items"):
            world.take(world.settled(2))

    def test_batches_of_one_dataset_switch_one_after_the_other(self, world: World) -> None:
        """Q5: at most one intent is open; each version has its own number."""
        begin(world, 1)
        other = replace(world.sealed(1), batch_id=f"{JOB}.2", job_id=JOB)
        world.take(other, world.settled(0), replace(world.settled(0), batch_id=other.batch_id))
        world.tick()
        assert world.dataset.intent is not None
        world.settle_down()
        assert [(v.version, v.batch_id) for v in world.dataset.versions] == [(1, BATCH), (2, other.batch_id)]
        assert [p.version for p in world.sent_of(BatchPublished)] == [1, 2]


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
        begin(world, 3)
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
        begin(world, 3)
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
        begin(world, 1)
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
        begin(world, 1)
        world.take(world.settled(0, output='{"label":"aborted","score":0}'))
        world.service.on_flush(world.part)
        world.abort()
        world.take(world.settled(0))
        world.settle_down()
        assert [row["label"] for row in read_rows(world.results)] == ["l0"]

    def test_a_target_that_is_away_is_waited_out(self, world: World) -> None:
        """E8: a downstream failure replays the staged write; no model is asked again."""
        begin(world, 1)
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
        begin(other, 1)
        other.take(other.settled(0))
        other.settle_down()
        (world.results / "pointer-0000000001.json").rename(world.results / "pointer-0000000003.json")
        begin(world, 1)
        world.take(world.settled(0))
        world.settle_down(8)
        assert [(v.version, v.batch_id) for v in world.dataset.versions] == [(4, BATCH)]
        manifest = current(world.results)
        assert manifest is not None
        assert manifest["batch_id"] == BATCH

    def test_lost_parts_hold_the_batch(self, world: World) -> None:
        """Never a version with rows missing: the switch is withdrawn and a person looks."""
        begin(world, 1)
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


class TestCancelAndResume:
    def test_cancel_fences_and_resume_goes_on(self, world: World) -> None:
        """E11: late results of a cancelled generation are charged (E10) and count nowhere; nothing is paid twice."""
        begin(world, 5)
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
        begin(world, 3)
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
        begin(world, 1)
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
        begin(world, 1)
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
        begin(world, 2)
        world.settle_down()
        assert world.row.state is BatchState.CANCELLED
        assert [c.state for c in world.sent_of(BatchControlled)] == [ControlState.CANCELLED]
        world.take(world.ordered(Command.RESUME, "c2"))
        world.commit()
        assert selection(world) == {0, 1}

    def test_a_cancel_taken_back_before_the_plan(self, world: World) -> None:
        world.take(world.ordered(Command.CANCEL, "c1"), world.ordered(Command.RESUME, "c2"))
        world.commit()
        begin(world, 2)
        assert (world.row.state, world.row.generation) == (BatchState.QUEUED, 1)
        assert [c.state for c in world.sent_of(BatchControlled)] == [ControlState.RUNNING]

    def test_a_partial_version_is_repaired_by_a_resume(self, tmp_path: Path) -> None:
        """Q6: dead letters are run again; the new version replaces the partial one."""
        world = World(tmp_path, pipeline(gates={"completion": 0.5}))
        begin(world, 2)
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


class TestHolds:
    def test_a_spent_budget_holds_the_batch(self, world: World) -> None:
        """E10: the running total stops the job by itself; what is under way still counts."""
        begin(world, 4, budget_nano_usd=10)
        world.take(world.settled(0, cost_nano_usd=10))
        world.tick()
        world.commit()
        assert world.sent_of(JobCompleted) == []
        world.take(world.settled(1, cost_nano_usd=1))
        world.tick()
        world.take(world.settled(2, cost_nano_usd=5))
        world.settle_down()
        assert [c.state for c in world.sent_of(BatchControlled)] == [ControlState.RUNNING, ControlState.HELD]
        (notice,) = world.sent_of(JobCompleted)
        assert notice.state is BatchState.HELD
        assert (notice.reason or "").startswith("budget: 0.000000011 USD spent of 0.00000001 USD")
        assert world.row.counts.accepted == 3
        world.take(world.ordered(Command.APPROVE, "c1"), world.settled(3))
        world.settle_down()
        assert world.row.state is BatchState.PUBLISHED

    def test_a_failed_gate_holds_and_a_person_may_approve(self, world: World) -> None:
        """Q4: the figures are in the notice and, once approved, in the manifest."""
        begin(world, 2)
        world.take(world.settled(0), world.settled(1, R))
        world.settle_down()
        (notice,) = world.sent_of(JobCompleted)
        assert (notice.state, world.row.state) == (BatchState.HELD, BatchState.HELD)
        assert (notice.reason or "").startswith("rejects 0.5000 (at most 0.05): 1 of 2 answers were rejected")
        world.crash()
        world.settle_down()
        assert len(world.sent_of(JobCompleted)) == 1
        world.take(world.ordered(Command.APPROVE, "c1"))
        world.settle_down()
        assert world.row.state is BatchState.PUBLISHED
        manifest = current(world.results)
        assert manifest is not None
        assert [gate["gate"] for gate in manifest["gates"] if not gate["passed"]] == ["rejects"]
        assert manifest["approved"]

    def test_reviews_hold_and_the_gates_run_again_on_each_decision(self, tmp_path: Path) -> None:
        """Q2: an item in review never slips into the published set."""
        world = World(tmp_path, pipeline(gates={"completion": 0.5, "rejects": 0.9}))
        begin(world, 3)
        world.take(world.settled(0), world.settled(1, V), world.settled(2, V))
        world.settle_down()
        assert world.row.state is BatchState.HELD
        world.take(world.settled(1, A, revision=2))
        world.settle_down()
        assert (world.row.state, world.row.counts.in_review) == (BatchState.HELD, 1)
        assert "1 item waits for a person" in (world.row.reason or "")
        world.take(world.settled(2, R, revision=2))
        world.settle_down()
        assert (world.row.state, world.row.counts.rejected) == (BatchState.PUBLISHED, 1)
        assert [row["_source_id"] for row in read_rows(world.results)] == ["s0", "s1"]

    def test_a_partial_pipeline_publishes_what_is_there(self, tmp_path: Path) -> None:
        """Q6: the contract says so, the manifest says what is missing."""
        world = World(tmp_path, pipeline(gates={"completion": 0.5}, publish={"partial": True}))
        begin(world, 2)
        world.take(world.settled(0), world.settled(1, V))
        world.settle_down()
        assert (world.row.state, world.row.reason) == (BatchState.PARTIAL_FAILED, "published without 1 of 2 items")
        manifest = current(world.results)
        assert manifest is not None
        assert (manifest["partial"]["allowed_by"], manifest["partial"]["in_review"]) == ("publish.partial", ["s1"])

    @pytest.mark.parametrize(
        ("sample", "compared", "right", "state"),
        [(None, 4, 2, BatchState.PUBLISHED), (2, 2, 2, BatchState.PUBLISHED), (3, 3, 2, BatchState.PUBLISHED)],
    )
    def test_gold(self, tmp_path: Path, sample: int | None, compared: int, right: int, state: BatchState) -> None:
        """Q4: rows without a gold value are not compared; at most `sample` are."""
        gold = {"field": "label", "column": "truth", "accuracy": 0.5, "sample": sample}
        world = World(tmp_path, pipeline(gates={"gold": gold}))
        truths = ["l0", None, " l2 ", "L3", "x"]
        world.rows([{"id": f"s{n}", "text": "t", "truth": truth} for n, truth in enumerate(truths)])
        begin(world, 5)
        for n in range(5):
            world.take(world.settled(n))
            world.commit()
        world.take(*(world.settled(n) for n in range(5)))
        world.settle_down()
        (notice,) = world.sent_of(JobCompleted)
        assert notice.gold is not None
        assert (notice.gold.compared, notice.gold.right, notice.state) == (compared, right, state)

    def test_gold_below_its_floor_holds(self, tmp_path: Path) -> None:
        world = World(tmp_path, pipeline(gates={"gold": {"field": "label", "accuracy": 1.0}}))
        world.rows([{"id": "s0", "text": "t", "label": "other"}])
        begin(world, 1)
        world.take(world.settled(0))
        world.settle_down()
        assert (world.row.reason or "").startswith("gold accuracy 0.0000 (at least 1.0): 0 of 1 label right")


class TestQuarantine:
    def test_an_unreadable_plan_holds_its_batch(self, world: World) -> None:
        headers = {"batch": BATCH, "job": JOB}
        for _ in range(2):
            world.part.apply(world.service.on_quarantined("batch-sealed", headers, "no schema number", world.part))
        world.commit()
        (notice,) = world.sent_of(JobCompleted)
        assert (notice.state, notice.dataset_id) == (BatchState.HELD, DATASET)
        assert "no schema number" in (notice.reason or "")
        begin(world, 1)
        assert world.row.state is BatchState.QUEUED

    def test_an_unreadable_settlement_is_a_dead_letter(self, world: World) -> None:
        begin(world, 2)
        headers = {"batch": BATCH, "generation": "1", "ordinal": "1", "item": "key1"}
        for _ in range(2):
            world.part.apply(world.service.on_quarantined("item-settled", headers, "cut", world.part))
        world.part.apply(world.service.on_quarantined("item-settled", {"batch": BATCH}, "cut", world.part))
        world.take(world.settled(0))
        world.settle_down()
        assert (world.row.counts.dead_letter, world.row.totals.unknown_attempts) == (1, 1)
        assert world.row.state is BatchState.HELD

    def test_a_plan_whose_pipeline_is_gone_is_quarantined(self, world: World) -> None:
        with pytest.raises(ContractViolation, match="is not in"):
            world.take(replace(world.sealed(1), pipeline_digest="0" * 64))

    def test_settlements_of_an_unknown_batch_change_nothing(self, world: World) -> None:
        world.take(world.settled(0))
        world.settle_down()
        assert world.part.table(AccountingRow).rows == {}


class TestParts:
    def test_many_parts_are_merged_in_tiers(self, world: World) -> None:
        """Q3: staged files stay few; the version is the same."""
        planned = MERGE_PARTS + 3
        begin(world, planned)
        for n in range(planned - 1):
            world.take(world.settled(n))
            world.tick()
            world.commit()
        world.settle_down()
        tiers = sorted(part.tier for part in world.part.table(PartRow).rows.values())
        assert tiers == [0, 0, 1]
        world.crash()
        world.take(world.settled(planned - 1))
        world.settle_down()
        assert len(list(read_rows(world.results))) == planned

    def test_the_hourly_sweep_leaves_what_is_named(self, world: World) -> None:
        begin(world, 1)
        world.take(world.settled(0))
        world.commit()
        world.part.now_ms += 2 * 24 * 3_600_000
        world.tick()
        world.commit()
        world.settle_down()
        assert len(list(read_rows(world.results))) == 1


SETTLE, CANCEL, RESUME, APPROVE, COMMIT, CRASH, ABORT, TICK = range(8)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    moves=st.lists(
        st.one_of(
            st.tuples(
                st.just(SETTLE),
                st.integers(0, 5),
                st.sampled_from([A, A, R, D, V]),
                st.integers(0, 1),
                st.integers(1, 2),
            ),
            st.tuples(st.sampled_from([CANCEL, RESUME, APPROVE]), st.integers(0, 9)),
            st.tuples(st.sampled_from([COMMIT, CRASH, ABORT, TICK, TICK])),
        ),
        max_size=40,
    )
)
def test_any_order_of_events_accounts_and_publishes_alike(
    moves: list[tuple[Any, ...]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """E1, E11, Q5: counts always reconcile; what readers see is the accepted set of the generation that was named."""
    lines = pipeline(gates={"completion": 0.4, "rejects": 0.6}, publish={"partial": True})
    world = World(tmp_path_factory.mktemp("any"), lines)
    begin(world, 6)
    for move in moves:
        match move:
            case (0, ordinal, outcome, older, revision):
                generation = max(1, world.row.generation - older)
                output = f'{{"label":"{ordinal}-{generation}-{revision}","score":0}}'
                world.take(world.settled(ordinal, outcome, generation=generation, revision=revision, output=output))
            case (1 | 2 | 3 as which, number):
                command = {CANCEL: Command.CANCEL, RESUME: Command.RESUME, APPROVE: Command.APPROVE}[which]
                world.take(world.ordered(command, f"c{number}"))
            case (4,):
                world.commit()
            case (5,):
                world.crash()
            case (6,):
                world.abort()
            case _:
                world.tick()
    world.settle_down()
    row = world.row
    chunks = list(world.part.table(AccountingRow).prefix(f"{BATCH}/{row.generation}/"))
    assert disagreement(accounted(row.counts), row.counts, chunks) is None
    versions = world.dataset.versions if accounted(row.counts) and world.sent_of(BatchPublished) else ()
    assert [v.version for v in versions] == [p.version for p in world.sent_of(BatchPublished)]
    for version in versions:
        (stored,) = world.part.table(AccountingRow).prefix(f"{BATCH}/{version.generation}/")
        chunk = Chunk(BATCH, version.generation, 0, stored)
        rows = list(read_rows(world.results, version.version))
        assert [r["_source_id"] for r in rows] == [f"s{n}" for n in range(6) if chunk.outcome(n) is A]
        assert all(int(r["label"].split("-")[1]) <= version.generation for r in rows)
        listed = {(r["ordinal"], r["status"]) for r in read_failures(world.results, version.version)}
        assert listed == {(n, chunk.outcome(n)) for n in range(6) if chunk.outcome(n) is not A}
