"""The outbox, and what is in it after a process was killed at each point of a call."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nightmill.kernel.domain.lifecycle import AttemptState
from nightmill.provider_gateway.orders import concluded
from nightmill.provider_gateway.outbox import Landed, Outbox
from unit.provider_gateway.makers import (
    ANSWER,
    make_access,
    make_documents,
    make_order,
    make_shard,
)
from unit.provider_gateway.raw_provider import RawProvider, http_response
from unit.provider_gateway.stage import Stage


def land(folder: Path, row: int) -> Landed:
    order = make_order(make_shard(make_documents(folder / "blobs"), [row]))
    reply = make_access().adapter.reply(ANSWER, now_ms=0)
    return Landed(partition=1, answered=concluded(order, reply, started_at_ms=1, ended_at_ms=2))


def test_marks_and_answers_come_back_as_they_were(tmp_path: Path) -> None:
    first, second = land(tmp_path, 0), land(tmp_path, 1)
    outbox = Outbox(tmp_path / "outbox")
    outbox.write([(first.key, 1), (second.key, 1)], [])
    outbox.write([], [second])
    outbox.close()
    outbox = Outbox(tmp_path / "outbox")
    assert outbox.marks() == {first.key: 1}
    assert outbox.answers() == [second]
    outbox.forget([first.key, second.key, "never seen"])
    assert (outbox.marks(), outbox.answers()) == ({}, [])
    outbox.close()


def test_one_process_owns_the_folder(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox")
    with pytest.raises(Exception, match=r"(?i)lock"):
        Outbox(tmp_path / "outbox")
    outbox.close()


def killed_while(folder: Path, base_url: str, until: str) -> None:
    """Run calls in a process of its own, and kill it with SIGKILL when it says that it got `until` there."""
    program = Path(__file__).with_name("calling_program.py")
    tests = str(Path(__file__).parents[2])
    process = subprocess.Popen(
        [sys.executable, str(program), str(folder), base_url, until],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": tests},
    )
    with process:
        assert process.stdout is not None
        said = process.stdout.readline().decode().strip()
        process.send_signal(signal.SIGKILL)
    assert said == until


@pytest.mark.parametrize(
    ("until", "state"),
    [
        ("accepted", AttemptState.ANSWERED),  # surely not sent: sent now
        ("in flight", AttemptState.UNKNOWN),  # marked, no answer: nobody knows
        ("landed", AttemptState.ANSWERED),  # in the outbox: published, not called again
    ],
)
def test_killed_at_each_point_of_a_call(tmp_path: Path, until: str, state: AttemptState) -> None:
    """M4, E2: kill -9 before the mark, between mark and answer, and after the answer."""
    end = "hang" if until == "in flight" else "keep"
    chunks = [] if until == "in flight" else [http_response(ANSWER.body)]
    with RawProvider(chunks, end=end) as provider:
        killed_while(tmp_path, provider.base_url, until)
        time.sleep(0.05)
        calls_before = len(provider.requests)
        stage = Stage(tmp_path, running=range(2))
        sent = stage.run(ANSWER)
    assert calls_before == (0 if until == "accepted" else 2)
    assert [(a.state, a.ordinal, a.late) for a in sent] == [(state, 1, False)] * 2
    assert (stage.outbox.marks(), stage.outbox.answers()) == ({}, [])
    stage.close()


REFUSED = """
import resource, signal, sys
from pathlib import Path
from nightmill.kernel.runtime.service import Unavailable
from nightmill.provider_gateway.outbox import Outbox
outbox = Outbox(Path(sys.argv[1]))
outbox.write([("before", 1)], [])
resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
for _ in range(2):
    try:
        outbox.write([("during", 1)], [])
    except Unavailable as error:
        print(error)
outbox.forget(["before"])
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
outbox.write([("after", 1)], [])
print(outbox.problem, sorted(outbox.marks()))
print(outbox.owes, end=" ")
outbox.settle()
print(outbox.owes, sorted(outbox.marks()))
outbox.close()
"""


def test_a_full_disk_is_waited_out_and_nothing_that_was_stored_is_lost(tmp_path: Path) -> None:
    """M4, E11: RocksDB takes no write after a failed one; the outbox opens it again when there is room."""
    command = [sys.executable, "-c", REFUSED, str(tmp_path / "outbox")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *refused, went_on, forgotten = done.stdout.splitlines()
    assert len(refused) == 2
    assert all(line.startswith(f"outbox in {tmp_path / 'outbox'}: ") for line in refused)
    assert went_on == "None ['after', 'before']"
    assert forgotten == "True False ['after']"
