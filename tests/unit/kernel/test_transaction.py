"""When a transaction is committed: a table over how long ago the last commit was, and how full it is."""

import pytest

from nightmill.kernel.runtime.transaction import Pace, Transaction

_PACE = Pace(poll_records=10, commit_gap_ms=100, commit_every_ms=500, commit_messages=50)
_NOW_MS = 1_000_000


@pytest.mark.parametrize(
    ("since_commit_ms", "size", "idle", "due"),
    [
        (99, 1, True, False),  # in a flow
        (100, 1, True, True),
        (100, 49, False, False),
        (100, 50, False, True),
        (499, 10, False, False),
        (500, 9, False, False),  # a flow begins, with less than a poll
        (500, 10, False, True),
        (-1, 1, True, True),  # the clock was set back: nobody knows how long ago it was
        (-1, 10, False, True),
    ],
)
def test_when_a_fresh_transaction_is_due(since_commit_ms: int, size: int, idle: bool, due: bool) -> None:
    transaction = Transaction(rows=size)
    committed_ms = _NOW_MS - since_commit_ms
    assert transaction.is_due(_NOW_MS, _PACE, idle=idle, committed_ms=committed_ms) is due


def test_an_open_transaction_is_due_by_time() -> None:
    """Also one that holds nothing but effects to start; one without anything never is."""
    transaction, committed_ms = Transaction(effects=[object()]), _NOW_MS - 1
    due = [transaction.is_due(_NOW_MS + ms, _PACE, idle=False, committed_ms=committed_ms) for ms in (0, 499, 500)]
    assert due == [False, False, True]
    assert not Transaction().is_due(_NOW_MS, _PACE, idle=True, committed_ms=0)
