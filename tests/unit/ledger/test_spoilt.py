"""A record that can not be read, in the loop: it is quarantined, and all others are in the ledger once."""

import time
from pathlib import Path

import pytest

from kit import ledger_events as events
from kit.ledger_columns import encoded
from nightmill.kernel.runtime.log import Outgoing, Place
from nightmill.kernel.runtime.loop import Loop
from nightmill.kernel.runtime.memory import MemoryBroker
from nightmill.kernel.runtime.transaction import Pace
from nightmill.kernel.store.clickhouse import ClickHouse
from nightmill.kernel.wire.topics import ATTEMPT_JUDGED
from nightmill.ledger.service import Ledger
from unit.ledger.test_service import ListForm

GOOD = [encoded([events.judged(f"s{number}")])[0] for number in range(20)]
BROKEN = {
    "cut": GOOD[3][:-2],
    "no UTF-8": encoded([events.judged("aäa")])[0].replace("ä".encode(), b"\xff\xff"),
    "foreign": encoded([events.judged("a", job_id="nobody")])[0],
    "unknown schema": b"\0\xff\xff\xff\xff" + GOOD[3][5:],
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_record_that_can_not_be_read_is_quarantined_alone(broken: bytes, tmp_path: Path) -> None:
    """E9, O1: whether it is met at once or only when many are read together."""
    broker = MemoryBroker(partitions=1)
    log = broker.log("line")
    form = ListForm()
    ledger = Ledger(ClickHouse(form, "nightmill"))
    pace = Pace(commit_every_ms=1)
    loop = Loop(ledger, log, instance="0", state_dir=tmp_path, clock_s=time.monotonic, pace=pace)
    writer = log.writer()
    writer.write(Outgoing(ATTEMPT_JUDGED.name, b"key", value, 0) for value in (*GOOD[:7], broken, *GOOD[7:]))
    for now_ms in range(1_000, 6_000, 500):
        broker.now_ms = now_ms
        loop.step(now_ms)
    assert [name for name, _ in form.inserted] == ["attempts", "verdicts"]
    assert {rows for _, rows in form.inserted} == {len(GOOD)}
    reader = log.reader()
    reader.start(Place(f"{ATTEMPT_JUDGED.name}-dlq", 0), 0)
    assert [letter.value for letter in reader.poll(0, 10)] == [broken]
    reader.close()
    writer.close()
    loop.close()
