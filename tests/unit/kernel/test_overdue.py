"""A call that never comes back ends its process; one that does leaves no trace."""

import subprocess
import sys

import pytest

from nightmill.kernel.runtime.kafka.overdue import EXIT_CODE

_STARTED = """
import threading, time
from nightmill.kernel.runtime.kafka.overdue import Overdue
overdue = Overdue(0.2)
"""
CASES = {
    "a call that waits for ever": ("with overdue: threading.Event().wait()", EXIT_CODE),
    "calls within their time, and rest": ("with overdue: pass\nwith overdue: pass\ntime.sleep(0.6)", 0),
    "a call that raises": ("try:\n  with overdue: 1 / 0\nexcept ZeroDivisionError: time.sleep(0.6)", 0),
    "closed": ("overdue.close()\nwith overdue: time.sleep(0.6)", 0),
}


@pytest.mark.parametrize("case", CASES)
def test_only_a_call_that_does_not_come_back_ends_the_process(case: str) -> None:
    """E1: a service never stands still for good; its restart goes on from the last commit."""
    script, code = CASES[case]
    done = subprocess.run([sys.executable, "-c", _STARTED + script], timeout=60, check=False, capture_output=True)
    assert done.returncode == code, done.stderr
