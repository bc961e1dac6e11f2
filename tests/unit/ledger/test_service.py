"""The service's own part: what is gathered, when it is inserted, and what stays when the store is away."""

from typing import Any, cast

import pytest

from kit import ledger_events as events
from kit.ledger_columns import encoded
from kit.partition import StagePartition
from nightmill.kernel.domain.lifecycle import AttemptState
from nightmill.kernel.runtime.service import ContractViolation, StartOver, Unavailable
from nightmill.kernel.store.clickhouse import ClickHouse
from nightmill.kernel.store.columns import Table, arrow_stream
from nightmill.ledger.service import Ledger


class ListForm:
    """A form of the store that keeps blocks; `away` makes it fail at a table."""

    def __init__(self) -> None:
        self.inserted: list[tuple[str, int]] = []
        self.away: str | None = None

    def command(self, sql: str, database: str | None) -> None:
        """Nothing to create."""

    def insert(self, table: Table, block: bytes, database: str) -> None:
        import pyarrow as pa

        if table.name == self.away:
            raise Unavailable("away")
        self.inserted.append((table.name, pa.ipc.open_stream(block).read_all().num_rows))

    def read(self, sql: str, parameters: Any, settings: Any, database: str, fmt: str | None) -> bytes:
        return b""

    def close(self) -> None:
        """Nothing is open."""


class Bench:
    def __init__(self) -> None:
        self.form = ListForm()
        self.ledger = Ledger(ClickHouse(self.form, "nightmill"))
        self.parts = [StagePartition(self.ledger, number=number) for number in range(2)]

    def judge(self, *sources: str, partition: int = 0, **fields: Any) -> None:
        for source in sources:
            self.take(encoded([events.judged(source, **fields)])[0], partition)

    def take(self, record: bytes, partition: int = 0) -> None:
        self.ledger.on_attempt_judged(record, cast(Any, self.parts[partition]))

    def flush(self, partition: int = 0) -> None:
        self.ledger.on_flush(cast(Any, self.parts[partition]))


def test_rows_of_all_partitions_leave_in_one_block_per_table() -> None:
    bench = Bench()
    bench.judge("a", "b", partition=0)
    bench.judge("c", partition=1)
    bench.flush(0)
    bench.flush(1)
    assert bench.form.inserted == [("attempts", 3), ("verdicts", 3)]


def test_an_event_that_comes_again_before_the_flush_is_one_row() -> None:
    bench = Bench()
    bench.judge("a", "a")
    bench.flush()
    assert bench.form.inserted == [("attempts", 1), ("verdicts", 1)]


def test_rows_wait_while_the_store_is_away_and_leave_once() -> None:
    """O1: a ClickHouse that is away loses nothing."""
    bench = Bench()
    bench.judge("a")
    bench.form.away = "verdicts"
    for _ in range(2):
        with pytest.raises(Unavailable):
            bench.flush()
    bench.form.away = None
    bench.flush()
    bench.flush()
    assert bench.form.inserted == [("attempts", 1), ("verdicts", 1)]


def test_a_lost_partition_is_forgotten_and_the_others_are_not() -> None:
    bench = Bench()
    bench.judge("a", partition=0)
    bench.judge("b", "c", partition=1)
    bench.ledger.on_close(1)
    bench.flush()
    assert bench.form.inserted == [("attempts", 1), ("verdicts", 1)]


def test_a_call_that_never_left_is_no_row() -> None:
    bench = Bench()
    bench.judge("a", state=AttemptState.NOT_SENT)
    bench.flush()
    assert bench.form.inserted == []


def test_a_foreign_id_is_refused_when_it_comes_again() -> None:
    bench = Bench()
    bench.judge("a", job_id="nobody")
    bench.judge("b")
    with pytest.raises(StartOver, match="1 of 2 records"):
        bench.flush()
    bench.ledger.on_close(0)  # as the loop does, before it brings them again
    with pytest.raises(ContractViolation, match="does not begin with"):
        bench.judge("a", job_id="nobody")
    bench.judge("b")
    bench.flush()
    assert bench.form.inserted == [("attempts", 1), ("verdicts", 1)]


def test_a_record_that_is_no_message_is_refused_when_it_comes_again() -> None:
    """E9: also where only a text in it is broken, which shows when it is inserted."""
    (whole,) = encoded([events.judged("aäa")])
    for broken in (whole[:-1], whole + b"\0", whole.replace("ä".encode(), b"\xff\xff")):
        bench = Bench()
        bench.take(broken)
        with pytest.raises(StartOver):
            bench.flush()
        bench.ledger.on_close(0)
        with pytest.raises(ContractViolation, match="not a record of AttemptJudged"):
            bench.take(broken)
        bench.flush()
        assert bench.form.inserted == []


def test_money_crosses_into_arrow_exactly() -> None:
    """O1: nine decimals, no float."""
    import pyarrow as pa

    from nightmill.kernel.store.columns import Kind

    table = Table(name="t", columns=(("usd", Kind.NANO_USD),))
    values = [0, 1, None, -1, 999_999_999_999_999_999, 1_500]
    read = pa.ipc.open_stream(arrow_stream(table, [values])).read_all()["usd"].to_pylist()
    assert [None if usd is None else int(usd.scaleb(9)) for usd in read] == values
