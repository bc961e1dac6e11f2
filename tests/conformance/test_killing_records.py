"""A record that kills its service is found on its second kill; an operator's kills accuse nobody."""

import pytest

from conformance.children import Children, await_true
from conformance.recorder import Recorder, Stage, rows, run_until
from kit.messages import key_of
from nightmill.kernel.runtime.log import partition_of

REASON = b"this record ended the service's process twice while it was handled"


def neighbours(count: int) -> list[str]:
    """Sources of one partition, which are handled in this order."""
    names = (f"s{i}" for i in range(40))
    return [name for name in names if partition_of(key_of(name).encode(), 2) == 0][:count]


def test_a_killing_record_is_quarantined_on_its_second_kill(children: Children) -> None:
    """E1: a real SIGKILL in the handler, twice; the third life quarantines the record and its neighbours are done."""
    stage = children.stage
    stage.plan("before", "kill", "after")
    for _ in range(2):
        children.start("0")
        assert children.await_end("0") == -9
        assert children.lines("0")[-1] == "handling kill"
    children.start("0")
    for source in ("before", "after"):
        children.await_line("0", f"committed {source}")
    await_true(lambda: len(stage.records("item-planned-dlq")) == 1, "the dead letter")
    (letter,) = stage.records("item-planned-dlq")
    assert dict(letter.headers)["dlq-reason"] == REASON
    assert children.lines("0").count("handling kill") == 2
    assert len(stage.records("shard-dispatched")) == 2


def test_an_operators_two_kills_accuse_nobody(children: Children) -> None:
    """E1: the process is killed twice while it handles a record each time; both records are done, once."""
    stage = children.stage
    same = neighbours(3)
    stage.plan(*same)
    for source in same[:2]:
        children.start("0", f"stay={source}")
        children.await_line("0", f"handling {source}", times=children.lines("0").count(f"handling {source}") + 1)
        children.kill("0")
    children.start("0")
    for source in same:
        children.await_line("0", f"committed {source}")
    assert stage.records("item-planned-dlq") == []
    assert len(stage.records("shard-dispatched")) == len(stage.records("dispatcher-item-state")) == 3


def test_two_deaths_at_two_records_accuse_nobody(stage: Stage) -> None:
    """E1: as above in one process, the second death at the record right behind the first."""
    same = neighbours(3)
    stage.plan(*same)
    for source in same[:2]:
        loop = stage.loop(Recorder(crashes=source))
        with pytest.raises(RuntimeError, match="told to crash"):
            run_until(loop, lambda: False)
        loop.abandon()
    loop = stage.loop(Recorder())
    run_until(loop, lambda: set(rows(loop)) == set(same))
    assert stage.records("item-planned-dlq") == []
    assert len(stage.records("shard-dispatched")) == 3
    loop.close()


def test_a_record_whose_outcome_can_not_be_encoded_is_a_killing_record(stage: Stage) -> None:
    """E1: not only the handler, also what becomes of its answer counts against the record."""
    stage.plan("before", "unfit", "after")
    for _ in range(2):
        loop = stage.loop(Recorder())
        with pytest.raises(TypeError, match="str"):
            run_until(loop, lambda: False)
        loop.abandon()
    service = Recorder()
    loop = stage.loop(service)
    run_until(loop, lambda: set(rows(loop)) == {"before", "after"} and len(service.quarantined) == 1)
    assert service.quarantined[0]["reason"] == REASON.decode()
    loop.close()
