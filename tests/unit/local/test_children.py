"""What the laptop's processes are started with, and when they are not."""

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from nightmill.local import kafka
from nightmill.local.children import broker_child
from nightmill.local.errors import LaptopError
from nightmill.local.home import open_home
from nightmill.local.java import Java
from nightmill.local.shortage import LITTLE_BYTES


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.mark.parametrize("short_of", [0, 1], ids=["just enough", "one byte short"])
def test_no_broker_is_started_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short_of: int) -> None:
    """E1, E11: it would find its sound metadata log unsound, cut it to nothing, and have no topics any more."""
    home = open_home(tmp_path / "home")
    started: list[kafka.BrokerPlace] = []

    def start(place: kafka.BrokerPlace, **_: object) -> subprocess.Popen[bytes]:
        started.append(place)
        return subprocess.Popen(["true"])

    monkeypatch.setattr(kafka, "start_broker", start)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(LITTLE_BYTES, 0, LITTLE_BYTES - short_of))
    place = kafka.BrokerPlace(folder=home.broker, port=1, controller_port=2)
    child = broker_child(home, place, java=Java(executable=Path("java"), major=17, found_in="PATH"), jars=[])
    if short_of:
        with pytest.raises(LaptopError, match=f"{home.broker} has 64.0 MiB free: free space there"):
            child.start()
    else:
        child.start().wait()
    assert len(started) == 1 - short_of
