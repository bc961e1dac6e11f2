"""What a command means in each state of a batch."""

import pytest

from nightmill.kernel.domain.lifecycle import BatchState, Command, ControlState
from nightmill.kernel.wire.messages import BatchSealed, JobCommanded, PublicationRow
from nightmill.kernel.wire.totals import NO_TOTALS
from nightmill.kernel.wire.values import replace
from nightmill.publisher import batches
from nightmill.publisher.accounting import no_counts

S = BatchState
SEALED = BatchSealed(
    batch_id="acme.p.1.1",
    job_id="acme.p.1",
    dataset_id="acme.p",
    tenant="acme",
    pipeline="p",
    pipeline_digest="d",
    planned=2,
    refused_rows=0,
    blocks=1,
    input_tokens=0,
    max_output_tokens=0,
    budget_nano_usd=10,
    priority=0,
    tags={},
    submitted_at_ms=0,
    sealed_at_ms=0,
)


def row(state: BatchState, accepted: int = 0, cost_nano_usd: int = 0) -> PublicationRow:
    opened = batches.open_row("acme.p.1.1", "acme.p.1", "acme.p", 0)
    return replace(
        opened,
        state=state,
        sealed=SEALED,
        counts=replace(no_counts(), accepted=accepted),
        totals=replace(NO_TOTALS, cost_nano_usd=cost_nano_usd),
    )


def order(command: Command, id_: str = "c") -> JobCommanded:
    return JobCommanded(
        command_id=id_,
        job_id="acme.p.1",
        batch_id="acme.p.1.1",
        dataset_id="acme.p",
        command=command,
        actor="me",
        commanded_at_ms=0,
    )


@pytest.mark.parametrize(
    ("command", "moves"),
    [
        (Command.CANCEL, dict.fromkeys((S.CREATED, S.QUEUED, S.RUNNING, S.HELD, S.VALIDATING), S.CANCELLED)),
        (Command.RESUME, dict.fromkeys((S.HELD, S.CANCELLED, S.PARTIAL_FAILED), S.QUEUED)),
        (Command.APPROVE, {S.HELD: S.HELD}),
    ],
)
@pytest.mark.parametrize("state", [s for s in S if s is not S.PLANNING])
def test_commands_by_state(command: Command, moves: dict[BatchState, BatchState], state: BatchState) -> None:
    """E11, M2: what a command moves, and that it is remembered where it moves nothing."""
    following = batches.command(row(state, accepted=2), order(command), switching=False, now_ms=5)
    assert following is not None
    assert (following.ignored is None) == (state in moves)
    assert following.row.state is moves.get(state, state)
    assert following.row.commands == ("c",)
    assert batches.command(following.row, order(command), switching=False, now_ms=6) is None


def test_a_command_to_an_unknown_batch() -> None:
    """Only a cancel may come before the plan."""
    assert batches.command(None, order(Command.RESUME), switching=False, now_ms=0) is None
    cancelled = batches.command(None, order(Command.CANCEL), switching=False, now_ms=0)
    assert cancelled is not None
    assert (cancelled.row.state, cancelled.control, cancelled.notice) == (S.CANCELLED, None, True)


def test_a_committed_switch_is_not_cancelled() -> None:
    following = batches.command(row(S.VALIDATING, 2), order(Command.CANCEL), switching=True, now_ms=0)
    assert following is not None
    assert (following.ignored, following.row.state) == ("its switch is already committed", S.VALIDATING)


def test_the_last_hundred_commands_are_remembered() -> None:
    held: PublicationRow = row(S.PUBLISHED)
    for number in range(120):
        following = batches.command(held, order(Command.CANCEL, f"c{number}"), switching=False, now_ms=0)
        assert following is not None
        held = following.row
    assert (len(held.commands), held.commands[-1]) == (100, "c119")


@pytest.mark.parametrize(
    ("state", "cost_nano_usd", "held"),
    [
        (S.RUNNING, 10, False),
        (S.RUNNING, 11, True),
        (S.QUEUED, 11, True),
        (S.HELD, 11, False),
        (S.CANCELLED, 11, False),
    ],
)
def test_the_spend_stop(state: BatchState, cost_nano_usd: int, held: bool) -> None:
    """E10: over the budget, not at it; a batch that stands still is left alone."""
    following = batches.overspent(row(state, 1, cost_nano_usd), 0)
    assert (following is not None) == held
    if following is not None:
        assert (following.row.state, following.control, following.notice) == (S.HELD, ControlState.HELD, True)


def test_an_unknown_cost_counts_with_its_reservation() -> None:
    """E10: 10 may be spent; 8 are, and a call whose cost nobody knows may have cost 3."""
    standing = row(S.RUNNING, 1, 8)
    for reserved, held in ((2, False), (3, True)):
        totals = replace(standing.totals, unknown_attempts=1, reserved_nano_usd=reserved)
        following = batches.overspent(replace(standing, totals=totals), 0)
        assert (following is not None) == held
        if following is not None:
            assert "0.000000003 USD reserved for 1 unknown costs" in (following.row.reason or "")
