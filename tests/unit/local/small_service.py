"""A real, small process for the supervisor's tests: `small_service.py HOME NAME`, where a name tells its manners.

Marks itself ready, and on SIGTERM writes its name to HOME/stopped before it ends. `dies*` ends at once with code 3;
`stubborn*` hears no SIGTERM.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from nightmill.local.home import Home, mark_ready


def main() -> int:
    home, name = Home(root=Path(sys.argv[1])), sys.argv[2]
    if name.startswith("dies"):
        print("no such setting: colour", flush=True)
        return 3
    # Blocked before ready is said: a stop that comes at once is kept for the wait below.
    wanted = {signal.SIGUSR1} if name.startswith("stubborn") else {signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
    mark_ready(home, name)
    signal.sigwait(wanted)
    with (home.root / "stopped").open("a", encoding="utf-8") as file:
        file.write(f"{name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
