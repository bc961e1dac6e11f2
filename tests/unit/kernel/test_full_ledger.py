"""The embedded ledger on a full disk: rows that were not stored are never said to be (M4).

In a process of its own, since the engine owns its process.
"""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, sys
from pathlib import Path
from nightmill.kernel.runtime.service import Unavailable
from nightmill.kernel.store.clickhouse import open_clickhouse
from nightmill.kernel.store.columns import Kind, Table
from kit.disk import small_disk

def rows(store):
    return store.read("SELECT count() FROM notes", parameters={}, settings={"readonly": 1}, fmt=None).decode().strip()

with small_disk(Path(sys.argv[1]), 160) as disk:
    store = open_clickhouse(f"chdb://{disk.folder}", "full")
    store.migrate()
    store._form.command("CREATE TABLE notes (note String) ENGINE = MergeTree ORDER BY note", "full")
    notes = Table(name="notes", columns=(("note", Kind.TEXT),))
    store.insert(notes, [["before"]])
    disk.fill([os.getpid()])
    try:
        store.insert(notes, [["during"]])
    except Unavailable as error:
        print(error)
    disk.free([os.getpid()])
    print(rows(store))
    store.insert(notes, [["during"]])
    print(rows(store))
    store.close()
"""


def test_rows_that_a_full_disk_refuses_are_not_said_to_be_stored(tmp_path: Path) -> None:
    """M4, E11, O1: the place and the remedy are named, and the same rows go in once there is room."""
    tests = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "ledger")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": tests})
    assert done.returncode == 0, done.stderr
    *refused, during, after = done.stdout.splitlines()
    # the engine writes past a limit on its process: without a mount nothing is refused, and the rows must be there
    assert int(during) == (1 if refused else 2)
    assert int(after) == int(during) + 1
    assert all(
        line.startswith(f"ClickHouse (embedded in {tmp_path / 'ledger'}) does not take rows: ") for line in refused
    )
