"""Settlements, orders, commits and crashes in any order: one authority decides, and readers see what it counted."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nightmill.kernel.domain.lifecycle import Command
from nightmill.kernel.wire.messages import AccountingRow, BatchPublished
from nightmill.publisher.accounting import Chunk, accounted, disagreement
from nightmill.publisher.results import read_failures, read_rows
from unit.publisher.world import BATCH, A, D, R, V, World, pipeline

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
    world.begin(6)
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
