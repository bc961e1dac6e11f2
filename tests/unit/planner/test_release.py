"""What goes out next, and what the publisher's word does (E4, E11)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.kernel.domain.lifecycle import ControlState, PlanPhase
from nightmill.kernel.wire.values import replace
from nightmill.planner.control import follow
from nightmill.planner.release import MAX_RELEASES, Waiting, choose
from unit.planner.makers import NOW_MS, Stage, jsonl, tickets

A = Waiting(batch_id="a", blocks=(100,) * 4)
B = Waiting(batch_id="b", blocks=(100,) * 4)
LITTLE = Waiting(batch_id="c", blocks=(10,))


@pytest.mark.parametrize(
    ("waiting", "shares", "lag", "mark", "blocks"),
    [
        # nothing waits; the dispatcher is behind; just under the mark one block goes and may pass it
        ([], {}, 0, 500, {}),
        ([A], {}, 500, 500, {}),
        ([A], {}, 499, 500, {"a": 1}),
        ([A], {}, 0, 250, {"a": 3}),
        # in turn, the alphabet deciding between equals
        ([A, B], {}, 0, 300, {"a": 2, "b": 1}),
        # b had less so far
        ([A, B], {"a": 400, "b": 100}, 0, 300, {"b": 3}),
        # c joins at the smallest share present, so it waits for nobody and starves nobody
        ([A, B, LITTLE], {"a": 400, "b": 300}, 0, 301, {"a": 1, "b": 2, "c": 1}),
        ([A], {}, 0, 10_000, {"a": 4}),
    ],
)
def test_choose(waiting: list[Waiting], shares: dict[str, int], lag: int, mark: int, blocks: dict[str, int]) -> None:
    """E4"""
    assert choose(waiting, shares, lag_items=lag, mark=mark).blocks == blocks


BATCHES = st.dictionaries(st.sampled_from("abcdef"), st.lists(st.integers(0, 50), max_size=20), max_size=6)


@given(batches=BATCHES, lag=st.integers(0, 100), mark=st.integers(1, 200))
def test_everything_goes_out_once_and_never_far_over_the_mark(
    batches: dict[str, list[int]], lag: int, mark: int
) -> None:
    """E4: per turn at most the mark and one block over it, and in the end every block."""
    left = {name: list(blocks) for name, blocks in batches.items() if blocks}
    shares: dict[str, int] = {}
    for _ in range(10_000):
        if not left:
            break
        waiting = [Waiting(batch_id=name, blocks=tuple(blocks[:MAX_RELEASES])) for name, blocks in left.items()]
        chosen = choose(waiting, shares, lag_items=min(lag, mark - 1), mark=mark)
        assert chosen.items <= mark - min(lag, mark - 1) + 50
        assert chosen.blocks
        shares = dict(chosen.shares)
        for name, count in chosen.blocks.items():
            del left[name][:count]
            if not left[name]:
                del left[name]
    assert not left


@given(sizes=st.lists(st.integers(1, 50), min_size=2, max_size=4))
def test_big_and_small_batches_get_equal_shares(sizes: list[int]) -> None:
    """E4: while all have blocks left, shares differ by at most one block."""
    names = "abcd"[: len(sizes)]
    shares: dict[str, int] = {}
    for _ in range(20):
        waiting = [
            Waiting(batch_id=name, blocks=(size,) * MAX_RELEASES) for name, size in zip(names, sizes, strict=True)
        ]
        shares = dict(choose(waiting, shares, lag_items=0, mark=60).shares)
        assert max(shares.values()) - min(shares.values()) <= max(sizes)


RUNNING, HELD, CANCELLED = ControlState.RUNNING, ControlState.HELD, ControlState.CANCELLED
SEALED, RELEASING, RELEASED, STOPPED = PlanPhase.SEALED, PlanPhase.RELEASING, PlanPhase.RELEASED, PlanPhase.STOPPED


@pytest.mark.parametrize(
    ("phase", "generation", "state", "of", "result"),
    [
        # result: phase, generation and released blocks (3 before); None: nothing
        (SEALED, 0, RUNNING, 1, (RELEASING, 1, 0)),
        (SEALED, 0, CANCELLED, 1, (STOPPED, 1, 0)),
        (RELEASING, 1, RUNNING, 1, None),
        (RELEASING, 1, HELD, 1, (STOPPED, 1, 3)),
        (RELEASING, 1, CANCELLED, 1, (STOPPED, 1, 3)),
        (RELEASED, 1, HELD, 1, (STOPPED, 1, 3)),
        (RELEASED, 1, RUNNING, 1, None),
        (STOPPED, 1, HELD, 1, None),
        (STOPPED, 1, RUNNING, 1, (RELEASING, 1, 3)),
        (STOPPED, 1, RUNNING, 2, (RELEASING, 2, 0)),
        (RELEASED, 1, RUNNING, 2, (RELEASING, 2, 0)),
        (RELEASING, 2, RUNNING, 1, None),
        (RELEASING, 2, CANCELLED, 1, None),
        (PlanPhase.FREEZING, 0, CANCELLED, 1, None),
        (PlanPhase.MERGING, 0, RUNNING, 1, None),
        (PlanPhase.REFUSED, 0, RUNNING, 1, None),
    ],
)
def test_follow(
    tmp_path_factory: pytest.TempPathFactory,
    phase: PlanPhase,
    generation: int,
    state: ControlState,
    of: int,
    result: tuple[PlanPhase, int, int] | None,
) -> None:
    """E11"""
    stage = Stage(tmp_path_factory.mktemp("blobs"))
    job = stage.job(jsonl(tickets(1)))
    sealed = stage.plan(job)
    row = replace(stage.row(job), phase=phase, generation=generation, released_blocks=3)
    after = follow(row, stage.control(sealed, state=state, generation=of), NOW_MS)
    assert (after and (after.phase, after.generation, after.released_blocks)) == result
    if after is not None:
        assert after.control is not None
        repeated = follow(after, after.control, NOW_MS)
        assert repeated is None


def test_an_older_word_of_the_same_generation_changes_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    """E11"""
    stage = Stage(tmp_path_factory.mktemp("blobs"))
    job = stage.job(jsonl(tickets(1)))
    sealed = stage.plan(job)
    held = follow(stage.row(job), stage.control(sealed, state=HELD, controlled_at_ms=NOW_MS + 5), NOW_MS)
    assert held is not None
    assert follow(held, stage.control(sealed, controlled_at_ms=NOW_MS), NOW_MS) is None
