"""When the publisher holds a batch (budget, gates, reviews, a record that nobody can read) and what lets it go on."""

from pathlib import Path

import pytest

from nightmill.kernel.domain.lifecycle import BatchState, Command, ControlState
from nightmill.kernel.runtime.service import ContractViolation
from nightmill.kernel.wire.messages import AccountingRow, BatchControlled, JobCompleted
from nightmill.kernel.wire.values import replace
from nightmill.publisher.results import current, read_rows
from unit.publisher.world import BATCH, DATASET, JOB, A, R, V, World, pipeline


class TestHolds:
    def test_a_spent_budget_holds_the_batch(self, world: World) -> None:
        """E10: the running total stops the job by itself; what is under way still counts."""
        world.begin(4, budget_nano_usd=10)
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
        world.begin(2)
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
        world.begin(3)
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
        world.begin(2)
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
        world.begin(5)
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
        world.begin(1)
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
        world.begin(1)
        assert world.row.state is BatchState.QUEUED

    def test_an_unreadable_settlement_is_a_dead_letter(self, world: World) -> None:
        world.begin(2)
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
