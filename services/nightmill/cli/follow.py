"""Following a job: one line that is written over on a terminal, a line every ten seconds elsewhere.

Progress goes to standard error, so that standard output holds the result alone. Ctrl-C detaches; the job goes on.
"""

import sys
import time
from pathlib import Path

import typer

from nightmill.api.models import JobStatus
from nightmill.cli.program import typed
from nightmill.cli.text import progress_line
from nightmill.client.job import Job
from nightmill.client.progress import Progress

_EVERY_S = 10.0
_INTERRUPTED = 130


class ProgressPrinter:
    """Prints progress as fits the stream."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._next_s = 0.0
        self._width = 0

    def __call__(self, progress: Progress) -> None:
        if self._terminal:
            line = progress_line(progress)
            print("\r" + line.ljust(self._width), end="", file=sys.stderr, flush=True)
            self._width = len(line)
            return
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + _EVERY_S
            print(progress_line(progress), file=sys.stderr, flush=True)

    def done(self) -> None:
        """Leave the line that is written over."""
        if self._width:
            print(file=sys.stderr, flush=True)


def follow(job: Job, home: Path) -> JobStatus:
    """Follow a job until it stops. Ctrl-C ends the process and leaves the job alone."""
    printer = ProgressPrinter()
    try:
        return job.wait(printer)
    except KeyboardInterrupt:
        print(
            "\ndetached; the job goes on\n"
            f"  follow it:  {typed(f'nightmill status {job.job_id} --watch', home)}\n"
            f"  stop it:    {typed(f'nightmill cancel {job.job_id}', home)}",
            file=sys.stderr,
            flush=True,
        )
        raise typer.Exit(_INTERRUPTED) from None
    finally:
        printer.done()
