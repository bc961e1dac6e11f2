"""Decisions about starting calls, the book of running shards, and keys."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.kernel.domain.lifecycle import ControlState, ShardState
from nightmill.kernel.domain.settings import KeySource
from nightmill.kernel.wire.messages import BatchControlled, RowRef, ShardAttempt, ShardStateRow
from nightmill.provider_gateway.book import Book
from nightmill.provider_gateway.calls import Amounts, Move, finish_rate, next_move, room
from nightmill.provider_gateway.keys import KeyUnusable, read_key
from nightmill.provider_gateway.orders import not_sent
from unit.provider_gateway.makers import BATCH, NOW_MS, make_control, make_documents, make_order, make_shard

ATTEMPT = ShardAttempt(
    item_key="k",
    ordinal=1,
    minted_at_ms=NOW_MS,
    batch_id=BATCH,
    generation=2,
    source_id="1",
    row=RowRef(block="b", row=0),
    input_tokens=100,
    max_output_tokens=50,
)
CANCELLED = ControlState.CANCELLED


@pytest.mark.parametrize(
    ("control", "lease", "move"),
    [
        (make_control(generation=2), (1, 100, 50), Move.START),
        (make_control(generation=2), (0, 100, 50), Move.WAIT),
        (make_control(generation=2), (1, 99, 50), Move.WAIT),
        (make_control(generation=2), (1, 100, 49), Move.WAIT),
        (make_control(CANCELLED, 2), (1, 100, 50), Move.CALL_OFF),
        (make_control(CANCELLED, 2), (0, 0, 0), Move.CALL_OFF),  # no lease is needed to call off
        (make_control(CANCELLED, 3), (1, 100, 50), Move.CALL_OFF),
        (make_control(CANCELLED, 1), (1, 100, 50), Move.START),  # an older word
        (make_control(ControlState.HELD, 3), (1, 100, 50), Move.START),
        (None, (1, 100, 50), Move.START),
    ],
)
def test_next_move(control: BatchControlled | None, lease: tuple[int, int, int], move: Move) -> None:
    """E4, M5."""
    amounts = Amounts(requests=lease[0], input_tokens=lease[1], output_tokens=lease[2])
    assert next_move(ATTEMPT, control, amounts) is move


@given(st.integers(0, 50), st.integers(0, 5_000), st.integers(0, 3_000))
def test_a_lease_counted_down_never_gives_more_than_it_holds(requests: int, tokens: int, output: int) -> None:
    """E4: starts × estimate ≤ lease, in every dimension."""
    lease, starts = Amounts(requests=requests, input_tokens=tokens, output_tokens=output), 0
    while lease.holds(ATTEMPT):
        lease, starts = lease.less([ATTEMPT]), starts + 1
    assert starts == min(requests, tokens // 100, output // 50)


@pytest.mark.parametrize(
    ("slots", "handed_over", "per_s", "more"),
    [
        (0, 0, 900.0, 0),  # closed
        (8, 0, 0.0, 16),  # slots, and as many again
        (8, 16, 0.0, 0),
        (8, 40, 0.0, 0),  # the slots were lowered
        (200, 380, 1_000.0, 320),  # 200 + 1,000/s × 0.5 s - 380
    ],
)
def test_room(slots: int, handed_over: int, per_s: float, more: int) -> None:
    assert room(slots=slots, handed_over=handed_over, finished_per_s=per_s) == more


def test_finish_rate_follows_within_a_few_looks() -> None:
    """200 calls in 200 ms are 1,000/s: 500, 750, 875."""
    rates, rate = [], 0.0
    for _ in range(3):
        rate = finish_rate(rate, 200, 200)
        rates.append(rate)
    assert rates == [500.0, 750.0, 875.0]


@given(st.lists(st.lists(st.integers(0, 4), max_size=5), max_size=8))
def test_a_book_counts_each_attempt_once(tmp_path_factory: pytest.TempPathFactory, rounds: list[list[int]]) -> None:
    """E1: whatever is published, and however often, a row is put only when it changed, and DONE exactly once."""
    documents = make_documents(tmp_path_factory.getbasetemp() / "book")
    shard = make_shard(documents, range(5))
    book = Book("0")
    row = ShardStateRow(
        shard_id="s1", state=ShardState.ACCEPTED, shard=shard, answered=(), owner="0", accepted_at_ms=NOW_MS
    )
    assert book.enter(row) == [0, 1, 2, 3, 4]
    assert book.enter(row) == []
    seen: set[int] = set()
    done = 0
    for indexes in rounds:
        for index in indexes:
            first = book.publish(not_sent(make_order(shard, index), now_ms=NOW_MS))
            assert first == (index not in seen)
            seen.add(index)
        rows = list(book.rows(NOW_MS))
        assert all(set(each.answered) == (set() if each.shard is None else seen) for each in rows)
        done += sum(each.state is ShardState.DONE and each.shard is None for each in rows)
    assert done == (seen == {0, 1, 2, 3, 4})


def test_a_key_of_the_environment() -> None:
    assert read_key(KeySource(env="K"), {"K": " sk-1\n"}) == "sk-1"
    with pytest.raises(KeyUnusable, match="environment variable K is not set; export it"):
        read_key(KeySource(env="K"), {})


def test_a_key_file_must_be_private(tmp_path: Path) -> None:
    """P6: names the file and the remedy, never the key."""
    file = tmp_path / "key"
    file.write_text("sk-secret\n")
    file.chmod(0o644)
    with pytest.raises(KeyUnusable, match=r"mode 644\); run: chmod 600") as raised:
        read_key(KeySource(file=str(file)), {})
    assert "sk-secret" not in str(raised.value)
    file.chmod(0o600)
    assert read_key(KeySource(file=str(file)), {}) == "sk-secret"


@pytest.mark.parametrize("text", ["", "two words", "sk-é", "sk\n-1"])
def test_a_key_is_one_line_of_ascii(tmp_path: Path, text: str) -> None:
    file = tmp_path / "key"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(KeyUnusable, match="one key on one line"):
        read_key(KeySource(file=str(file)), {})


def test_a_key_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(KeyUnusable, match="can not be read: No such file"):
        read_key(KeySource(file=str(tmp_path / "none")), {})
