"""The record that kills its service: found at its second kill; an operator's kill accuses nobody for long."""

from pathlib import Path

import pytest

from nightmill.kernel.runtime.log import Place, Record
from nightmill.kernel.runtime.suspect import Suspect


def record(offset: int, topic: str = "item-planned") -> Record:
    return Record(Place(topic, 0), offset, b"k", b"v", (), 0)


def killed_while_handling(path: Path, one: Record) -> None:
    """A life of the process that ends in the middle of a record: the mapped file keeps the mark."""
    suspect = Suspect(path)
    suspect.handling(one)
    suspect.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "planner-0.mark"


def test_a_fresh_process_suspects_nobody(path: Path) -> None:
    suspect = Suspect(path)
    assert not suspect.careful
    assert not suspect.verdict(record(1))
    suspect.close()


def test_a_record_that_was_handled_is_not_marked(path: Path) -> None:
    suspect = Suspect(path)
    suspect.handling(record(1))
    suspect.handled()
    suspect.close()
    again = Suspect(path)
    assert not again.careful
    again.close()


def test_a_record_is_convicted_at_its_second_kill(path: Path) -> None:
    """E1: a poisoned record stops its service twice and no more."""
    killed_while_handling(path, record(7))
    once = Suspect(path)
    assert once.apart(record(7))
    assert not once.apart(record(8))
    assert not once.verdict(record(7))
    once.handling(record(7))
    once.close()
    twice = Suspect(path)
    assert twice.verdict(record(7))
    assert not twice.verdict(record(8))
    assert not twice.verdict(record(7, "item-settled"))
    twice.passed(record(7))
    assert not twice.careful
    assert not twice.verdict(record(7))
    twice.close()
    after = Suspect(path)
    assert not after.careful
    after.close()


def test_two_kills_over_different_records_convict_nobody(path: Path) -> None:
    """An operator's kills hit whatever was being handled."""
    killed_while_handling(path, record(7))
    killed_while_handling(path, record(9))
    suspect = Suspect(path)
    assert suspect.careful
    assert not suspect.verdict(record(7))
    assert not suspect.verdict(record(9))
    suspect.close()


def test_suspicion_outlives_a_clean_stop_until_the_record_has_passed(path: Path) -> None:
    killed_while_handling(path, record(7))
    Suspect(path).close()
    suspect = Suspect(path)
    assert suspect.careful
    suspect.passed(record(6))
    assert suspect.careful
    suspect.passed(record(7))
    assert not suspect.careful
    suspect.close()


@pytest.mark.parametrize("cut", [b"", b"item-planned/0/7", b"item-planned/0/7\n", b"\xff\n\xff"])
def test_a_cut_count_file_keeps_no_service_down(path: Path, cut: bytes) -> None:
    """The process was killed while it wrote the file."""
    killed_while_handling(path, record(7))
    Suspect(path).close()
    path.with_suffix(".kills").write_bytes(cut)
    suspect = Suspect(path)
    assert not suspect.verdict(record(7))
    suspect.close()


@pytest.mark.parametrize("content", [b"", b"x", b"x" * 10_000])
def test_a_mark_file_of_another_size_is_made_anew(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    suspect = Suspect(path)
    assert not suspect.careful
    suspect.close()


def test_a_long_name_fits_the_mark(path: Path) -> None:
    long = record(10**15, "t" * 600)
    killed_while_handling(path, long)
    killed_while_handling(path, long)
    suspect = Suspect(path)
    assert suspect.verdict(long)
    suspect.close()
