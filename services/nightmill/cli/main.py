"""The entry point: the verbs, and what becomes of every error. No traceback reaches a user.

Exit codes: 0 done · 2 bad input or settings, nothing started · 3 held, a person must decide · 4 failed or cancelled ·
5 the system is not running or lost · 130 interrupted. Verbs import what they need when they run: starting is quick.
"""

import logging
import os
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from nightmill.cli import data, jobs, laptop, pools

EXIT_BAD_INPUT = 2
EXIT_FAILED = 4
EXIT_NOT_RUNNING = 5

app = typer.Typer(
    name="nightmill",
    help="Runs the LLM work that nobody is waiting for: documents in, validated and costed results out.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(version("nightmill"))
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options before the verb."""


for _room in (laptop, jobs, data, pools):
    _room.register(app)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and end the process with its exit code."""
    code = run(arguments)
    if code == 0:
        sys.exit(0)
    # What a failure left open is taken apart when the interpreter ends. An embedded ClickHouse that was left open waits
    # there for ever, more often than not (chDB 26.9): a ledger that says it stops would never be started again.
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    for place, word in enumerate(given, 1):
        if not _is_text(word):
            what = f"argument {place} = {ascii(word)} is no UTF-8 text"
            return _say(what, "type it in UTF-8; rename a file or folder that has such a name", EXIT_BAD_INPUT)
    try:
        app(args=None if arguments is None else list(arguments), prog_name="nightmill")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        return _report(error)
    return 0


def _is_text(word: str) -> bool:
    """Whether it was typed as text: other bytes come as halves of surrogate pairs, which no message holds."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _report(error: Exception) -> int:
    """Say what went wrong and what to do; returns the exit code."""
    from nightmill.client.errors import NightmillError
    from nightmill.kernel.runtime.log import LogUnavailable
    from nightmill.kernel.runtime.settings import SettingsError
    from nightmill.local.errors import LaptopError

    match error:
        case NightmillError():
            return _say(error.message, error.remedy, error.exit_code)
        case LaptopError():
            return _say(error.message, error.remedy, EXIT_BAD_INPUT)
        case SettingsError():
            return _say(str(error), "", EXIT_BAD_INPUT)
        case LogUnavailable():
            return _say(f"Kafka does not answer: {error}", "nightmill ps; nightmill logs broker", EXIT_NOT_RUNNING)
    path = _write_log(error)
    return _say(f"{type(error).__name__}: this is a defect of nightmill; details are in {path}", "", EXIT_FAILED)


def _say(message: str, remedy: str, code: int) -> int:
    from nightmill.cli.program import as_called
    from nightmill.cli.text import printable

    print(
        printable(f"error: {message}" + (f"\n  → {as_called(remedy)}" if remedy else "")), file=sys.stderr, flush=True
    )
    return code


def _write_log(error: Exception) -> Path:
    """Keep the traceback where a person can find it: in the home when that can be written, else in the cwd."""
    from nightmill.kernel.runtime.settings import read_settings

    text = f"{time.strftime('%Y-%m-%dT%H:%M:%S')}\n{''.join(traceback.format_exception(error))}\n"
    path = read_settings(os.environ).home / "logs" / "cli.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        path = Path("nightmill-cli.log").absolute()
        path.write_text(text, encoding="utf-8")
    return path


if __name__ == "__main__":
    main()
