"""An installation for some runs, what is said meanwhile, and logs that outlive a broken run."""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from chaos.installation import Installation
from kit.simulator import Simulator


@contextmanager
def installed(
    simulator: Simulator, *, slots: int = 20, prepare: Callable[[Installation], None] = lambda _: None
) -> Iterator[Installation]:
    """One that is up; `prepare` may change its settings before. Raises `NotStarted`."""
    with tempfile.TemporaryDirectory(prefix="nightmill-chaos-") as folder:
        site = Installation(Path(folder), simulator.base_url, slots=slots)
        prepare(site)
        try:
            say("nightmill up")
            site.up()
            yield site
        finally:
            site.down()


def keep_logs(site: Installation, run: str) -> Path:
    """Where the logs of a broken run are from now on."""
    return site.keep_logs(Path(tempfile.mkdtemp(prefix=f"nightmill-chaos-run-{run}-")))


def say(text: str) -> None:
    """One line on stderr, with the time."""
    print(f"chaos: {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
