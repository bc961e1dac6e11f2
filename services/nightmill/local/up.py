"""`nightmill up`, `down`: one supervisor process that owns the home, in the foreground or detached.

Detached is the same program in a session of its own: the caller follows run/state.json and returns when all is ready.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from nightmill.local.children import rotate
from nightmill.local.doctor import MINIMUM_DESCRIPTORS, fatal_checks, run_doctor
from nightmill.local.errors import LaptopError
from nightmill.local.home import Home, default_root, lock_home, open_home, read_pid_file, write_pid_file
from nightmill.local.laptop import Laptop
from nightmill.local.options import UpOptions, say
from nightmill.local.processes import is_alive, raise_descriptor_limit, stop_all
from nightmill.local.status import LaptopState, read_state, running_state
from nightmill.local.supervision import Phase
from nightmill.local.supervisor import Outcome, stop_orphans

EXIT_OK = 0
EXIT_BAD_SETTINGS = 2
EXIT_NOT_RUNNING = 5
_SUPERVISOR = "supervisor"
#: A stop may take each wave's grace one after the other.
_DOWN_TIMEOUT_S = 90.0
_FOLLOW_POLL_S = 0.1


def up(options: UpOptions) -> int:
    """Start the laptop; block until it is stopped, or with `detach` until it is ready. Returns an exit code.

    0 done · 2 nothing was started (settings, a missing part, a home in use) · 5 it did not get ready and was stopped.
    """
    try:
        home = open_home(options.home)
        return _detach(home, options) if options.detach else _foreground(home, options)
    except LaptopError as error:
        print(f"error: {error.message}\n  → {error.remedy}", file=sys.stderr, flush=True)
        return EXIT_BAD_SETTINGS


def down(root: Path | None = None, *, say: Callable[[str], None] = say) -> int:
    """Stop the laptop of a home in order and block until it is gone; also what a killed supervisor left. Returns 0."""
    home = Home(root=(root or default_root()).expanduser().absolute())
    if not home.run.is_dir():
        say(f"nothing runs in {home.root}")
        return EXIT_OK
    holder = read_pid_file(home, _SUPERVISOR)
    supervised = holder is not None and is_alive(*holder)
    if holder is not None and supervised:
        killed = stop_all([holder], grace_s=_DOWN_TIMEOUT_S)
        say("stopped" if not killed else "the supervisor had to be killed")
    descriptor = lock_home(home)
    try:
        if orphans := stop_orphans(home):
            say(f"stopped what was left running: {', '.join(orphans)}")
        elif not supervised:
            say(f"nothing runs in {home.root}")
    finally:
        os.close(descriptor)
    return EXIT_OK


def _foreground(home: Home, options: UpOptions) -> int:
    lock = lock_home(home)
    try:
        # the usual soft limit of 1,024 is less than the broker and many slots need
        raise_descriptor_limit(MINIMUM_DESCRIPTORS)
        write_pid_file(home, _SUPERVISOR, os.getpid())
        if orphans := stop_orphans(home):
            options.say(f"stopped what an earlier supervisor left running: {', '.join(orphans)}")
        _refuse_if_unfit(home, options)
        return EXIT_NOT_RUNNING if Laptop(home, options).run() is Outcome.FAILED else EXIT_OK
    finally:
        home.pid_file(_SUPERVISOR).unlink(missing_ok=True)
        os.close(lock)


def _refuse_if_unfit(home: Home, options: UpOptions) -> None:
    checks = run_doctor(
        home.root,
        kafka=options.kafka,
        local_model=options.local_model,
        local_embeddings=options.local_embeddings,
        embedded_ledger=options.embedded_ledger,
    )
    if fatal := fatal_checks(checks):
        problems = "; ".join(f"{check.name}: {check.detail}" for check in fatal)
        raise LaptopError(problems, remedy="; ".join(check.remedy for check in fatal))


def _detach(home: Home, options: UpOptions) -> int:
    if state := running_state(home):
        _refuse_other_settings(home, state, options)
        options.say(f"already running: {state.progress()}")
        return EXIT_OK if state.phase is Phase.READY else EXIT_NOT_RUNNING
    output_path = home.logs / f"{_SUPERVISOR}.log"
    rotate(output_path)
    started_at = output_path.stat().st_size if output_path.exists() else 0
    with output_path.open("ab") as output:
        process = subprocess.Popen(
            options.foreground(options),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | options.environment,
            start_new_session=True,
        )
    code = _follow(home, process, options.say)
    if code is not None:
        print(output_path.read_bytes()[started_at:].decode(errors="replace").strip(), file=sys.stderr, flush=True)
        return code or EXIT_NOT_RUNNING
    # It lives on without us: keep Popen from complaining that nobody waited for it.
    process.returncode = EXIT_OK
    return EXIT_OK


def _refuse_other_settings(home: Home, state: LaptopState, options: UpOptions) -> None:
    """What runs has read its settings; another folder would be passed over without a word."""
    if options.config is None or str(options.config) == state.config:
        return
    before = "that ship with nightmill" if state.config is None else f"of {state.config}"
    raise LaptopError(
        f"already running, with the settings {before}, not of {options.config}",
        remedy=f"nightmill down --home {home.root}, then up: settings are read at the start",
    )


def _follow(home: Home, process: subprocess.Popen[bytes], say: Callable[[str], None]) -> int | None:
    """Say how far the start is; return None once all is ready, else the exit code of the supervisor."""
    said = ""
    while (code := process.poll()) is None:
        state = read_state(home)
        if state is not None and state.supervisor_pid == process.pid:
            if (line := state.progress()) != said:
                say(line)
                said = line
            if state.phase is Phase.READY:
                return None
        time.sleep(_FOLLOW_POLL_S)
    return code
