"""What the programs under tests/ share: whole numbers on the command line, an end that cleans up, a report that stays.

They print the report on stdout and say on stderr meanwhile how far they are.
"""

import argparse
import signal
import sys
from pathlib import Path


def parser_of(name: str, description: str) -> argparse.ArgumentParser:
    """The parser of `python tests/<name>`, which has `--report FILE`."""
    parser = argparse.ArgumentParser(prog=f"python tests/{name}", description=description)
    parser.add_argument("--report", type=Path, help="also write the report to this file")
    return parser


def positive(text: str) -> int:
    """A whole number from 1, as an argument's type."""
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number from 1")
    return int(text)


def end_on_sigterm() -> None:
    """Without this a SIGTERM would leave installations up."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(128 + signal.SIGTERM))


def tell(report: str, file: Path | None) -> None:
    """Print the report, and write it to the file that `--report` names."""
    print(report)
    if file is not None:
        file.write_text(report, encoding="utf-8")
