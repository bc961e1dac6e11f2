"""A supervisor of small services as a process of its own: `supervisor_program.py HOME NAME...`.

Prints the outcome of the start; ends with the supervisor's stop. A second of grace, so that stubborn ones die soon.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from nightmill.local.children import service_child
from nightmill.local.home import open_home
from nightmill.local.processes import birth_of
from nightmill.local.status import LaptopState, write_state
from nightmill.local.supervision import Phase
from nightmill.local.supervisor import Outcome, Supervisor

_SMALL_SERVICE = Path(__file__).with_name("small_service.py")


def main() -> int:
    home = open_home(Path(sys.argv[1]))

    def changed() -> None:
        write_state(
            home,
            LaptopState(
                supervisor_pid=os.getpid(),
                supervisor_birth=birth_of(os.getpid()),
                phase=Phase.STARTING if supervisor.not_ready() else Phase.READY,
                kafka="none",
                api_port=0,
                model_port=None,
                processes=supervisor.states(),
            ),
        )

    supervisor = Supervisor(home, changed=changed)
    children = [
        service_child(home, name, [sys.executable, str(_SMALL_SERVICE), str(home.root), name], os.environ)
        for name in sys.argv[2:]
    ]
    with supervisor.signals():
        supervisor.add(replace(child, grace_s=1.0) for child in children)
        outcome = supervisor.wait_ready(timeout_s=60.0)
        print(outcome, flush=True)
        if outcome is Outcome.READY:
            supervisor.run_until_stopped()
        supervisor.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
