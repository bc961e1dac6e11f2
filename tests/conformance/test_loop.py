"""The loop on both logs: atomic commits, restore, waiting, quarantine, staging that has to wait, killing records."""

import pytest

from conformance.recorder import NOW, Recorder, Stage, rows, run_until
from kit.messages import item_planned, item_state_row, key_of
from nightmill.kernel.runtime.log import Outgoing, partition_of
from nightmill.kernel.runtime.service import Decision
from nightmill.kernel.wire.messages import ItemStateRow


def test_messages_rows_positions_and_effects(stage: Stage) -> None:
    """E1: what a handler decides is visible together, its effects start after the commit, and nothing comes twice."""
    service = Recorder()
    loop = stage.loop(service)
    stage.plan("a", "b", "c")
    run_until(loop, lambda: len(service.started) == 3)
    assert set(rows(loop)) == {"a", "b", "c"}
    assert len(stage.records("shard-dispatched")) == 3
    assert len(stage.records("dispatcher-item-state")) == 3
    loop.close()
    successor = Recorder()
    again = stage.loop(successor)
    stage.plan("d")
    run_until(again, lambda: successor.seen == ["d"])
    assert set(rows(again)) == {"a", "b", "c", "d"}
    again.close()


def test_restore_after_the_local_state_is_gone(stage: Stage) -> None:
    """M4: rows and both kinds of index come back from the changelog alone."""
    service = Recorder()
    loop = stage.loop(service)
    stage.plan("a", "b", "c", "c2")
    run_until(loop, lambda: len(service.seen) == 4)
    loop.close()
    fresh = stage.loop(Recorder(), state="elsewhere")
    run_until(fresh, lambda: fresh.partitions == [0, 1])
    assert set(rows(fresh)) == {"a", "b", "c", "c2"}
    for name in ("ready", "all"):
        found = [row.source_id for part in fresh.owned() for row in part.table(ItemStateRow).index(name, start=b"b")]
        assert sorted(found) == ["b", "c", "c2"]
    fresh.close()


def test_a_tombstone_removes_the_row_everywhere(stage: Stage) -> None:
    loop = stage.loop(Recorder())
    stage.plan("a")
    run_until(loop, lambda: set(rows(loop)) == {"a"})
    part = next(p for p in loop.owned() if list(p.table(ItemStateRow).prefix("")))
    key = next(iter(part.table(ItemStateRow).prefix(""))).item_key
    stage.write(item_planned("delete", key=key))
    run_until(loop, lambda: rows(loop) == {})
    loop.close()
    fresh = stage.loop(Recorder(), state="elsewhere")
    run_until(fresh, lambda: fresh.partitions == [0, 1])
    assert rows(fresh) == {}
    fresh.close()


@pytest.mark.parametrize("source", ["wait", "away"])
def test_wait_holds_one_place_and_lets_the_others_flow(stage: Stage, source: str) -> None:
    """A record that must wait comes again; records behind it keep their order, other partitions go on."""
    service = Recorder(waiting=True)
    loop = stage.loop(service)
    number = partition_of(key_of(source).encode(), stage.log.partitions)
    same: list[str] = []
    others: list[str] = []
    for name in (f"s{i}" for i in range(40)):
        (same if partition_of(key_of(name).encode(), stage.log.partitions) == number else others).append(name)
    stage.plan(source, same[0], others[0])
    run_until(loop, lambda: others[0] in service.seen)
    stage.plan(same[1], others[1])
    run_until(loop, lambda: others[1] in service.seen)
    assert not {source, same[0], same[1]} & set(service.seen)
    service.waiting = False
    run_until(loop, lambda: same[1] in service.seen)
    assert [s for s in service.seen if s in (source, same[0], same[1])] == [source, same[0], same[1]]
    loop.close()


def test_quarantine_keeps_the_original_bytes_and_tells_the_service(stage: Stage) -> None:
    """A poisoned record goes to the dead-letter topic with its bytes, headers and the reason; the rest flows."""
    service = Recorder()
    loop = stage.loop(service)
    writer = stage.log.writer()
    writer.write([Outgoing("item-planned", b"poison", b"\x00\x00\x00\x00\x63junk", headers=[("item", b"poison")])])
    writer.close()
    stage.plan("refuse", "good")
    run_until(loop, lambda: service.seen == ["good"] and len(service.quarantined) == 2)
    run_until(loop, lambda: len(stage.records("item-planned-dlq")) == 2)
    letters = {r.key: r for r in stage.records("item-planned-dlq")}
    poison = letters[b"poison"]
    assert poison.value == b"\x00\x00\x00\x00\x63junk"
    headers = dict(poison.headers)
    assert headers["item"] == b"poison"
    assert headers["dlq-topic"] == b"item-planned"
    assert b"schema number 99" in headers["dlq-reason"]
    assert {q["reason"] for q in service.quarantined} >= {"told to refuse"}
    loop.close()


def test_a_crash_in_a_handler_loses_nothing(stage: Stage) -> None:
    """E1: the process ends, nothing of the open transaction shows, and at the second kill the record is quarantined."""
    stage.plan("good", "crash")
    for _ in range(2):
        loop = stage.loop(Recorder())
        with pytest.raises(RuntimeError, match="told to crash"):
            run_until(loop, lambda: False)
        loop.abandon()
    service = Recorder()
    loop = stage.loop(service)
    run_until(loop, lambda: len(service.quarantined) == 1 and "good" in rows(loop))
    assert "twice" in service.quarantined[0]["reason"]
    assert set(rows(loop)) == {"good"}
    assert len(stage.records("shard-dispatched")) == 1
    loop.close()


def test_staging_that_is_away_holds_the_commit_and_loses_nothing(stage: Stage) -> None:
    """The ledger with its database down: positions stay, input stops, and all goes on when it is back."""
    service = Recorder(staging_away=True)
    loop = stage.loop(service)
    stage.plan("a")
    run_until(loop, lambda: service.seen == ["a"])
    stage.plan("b")
    for _ in range(10):
        loop.step(next(NOW), 0.05)
    assert service.started == []
    assert stage.records("shard-dispatched") == []
    service.staging_away = False
    run_until(loop, lambda: service.started == ["a", "b"])
    loop.close()


def test_a_zombie_is_fenced_ticks_included(stage: Stage) -> None:
    """E1: an instance that was replaced can commit nothing that its ticks decide."""
    zombie_service = Recorder()
    zombie = stage.loop(zombie_service, state="zombie")
    run_until(zombie, lambda: zombie.partitions == [0, 1])
    successor = stage.loop(Recorder(), state="successor")
    run_until(successor, lambda: successor.partitions == [0, 1])
    zombie_service.ticks = [Decision(put=[item_state_row(item_planned("zombie"))])]
    with pytest.raises(Exception, match="joined|fenced|Fenced|epoch"):
        run_until(zombie, lambda: False)
    assert stage.records("dispatcher-item-state") == []
    successor.close()
    zombie.abandon()
