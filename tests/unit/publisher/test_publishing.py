"""The publisher from the plan to the version: everything is accounted once, batches switch in turn, parts stay few."""

import pytest

from nightmill.kernel.domain.lifecycle import BatchState, ControlState, Reuse
from nightmill.kernel.runtime.service import ContractViolation
from nightmill.kernel.wire.messages import AccountingRow, BatchControlled, BatchPublished, JobCompleted, PartRow
from nightmill.kernel.wire.values import replace
from nightmill.publisher.book import MERGE_PARTS
from nightmill.publisher.results import current, read_rows
from unit.publisher.world import BATCH, JOB, D, R, World


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
        world.begin(0, refusal="model x has no price in prices.yaml; add it")
        world.settle_down()
        (notice,) = world.sent_of(JobCompleted)
        assert (notice.state, notice.reason) == (BatchState.REFUSED, "model x has no price in prices.yaml; add it")
        assert world.sent_of(BatchControlled) == []

    def test_settled_items_become_a_version(self, world: World) -> None:
        """Q3, Q5, M2: published means accounted, passed, manifest, versions, switch."""
        world.begin(4)
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
        world.begin(0)
        world.settle_down()
        assert (world.row.state, list(read_rows(world.results))) == (BatchState.PUBLISHED, [])

    def test_repeated_settlements_count_once(self, world: World) -> None:
        """E1: within a transaction, after it, and after the end."""
        world.begin(2)
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
        world.begin(5_000)
        before = len(world.part.table(AccountingRow).rows)
        world.take(*(world.settled(n) for n in range(1_000)))
        assert len(world.part.table(AccountingRow).rows) == before == 0
        world.commit()
        assert len(world.part.table(AccountingRow).rows) == 1
        assert [part.rows for part in world.part.table(PartRow).rows.values()] == [1_000]

    def test_an_ordinal_outside_the_plan_is_quarantined(self, world: World) -> None:
        world.begin(2)
        with pytest.raises(ContractViolation, match=r"ordinal 2: batch .* has 2 items"):
            world.take(world.settled(2))

    def test_batches_of_one_dataset_switch_one_after_the_other(self, world: World) -> None:
        """Q5: at most one intent is open; each version has its own number."""
        world.begin(1)
        other = replace(world.sealed(1), batch_id=f"{JOB}.2", job_id=JOB)
        world.take(other, world.settled(0), replace(world.settled(0), batch_id=other.batch_id))
        world.tick()
        assert world.dataset.intent is not None
        world.settle_down()
        assert [(v.version, v.batch_id) for v in world.dataset.versions] == [(1, BATCH), (2, other.batch_id)]
        assert [p.version for p in world.sent_of(BatchPublished)] == [1, 2]


class TestParts:
    def test_many_parts_are_merged_in_tiers(self, world: World) -> None:
        """Q3: staged files stay few; the version is the same."""
        planned = MERGE_PARTS + 3
        world.begin(planned)
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
        world.begin(1)
        world.take(world.settled(0))
        world.commit()
        world.part.now_ms += 2 * 24 * 3_600_000
        world.tick()
        world.commit()
        world.settle_down()
        assert len(list(read_rows(world.results))) == 1
