"""The command line, parsed as the command does it, without running anything."""

from collections.abc import Sequence
from typing import Any

import typer

from nightmill.cli.main import app

_ROOT: Any = typer.main.get_command(app)


def _verbs(group: Any, before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, command in group.commands.items():
        inner = getattr(command, "commands", None)
        found |= {f"{before}{name}": command} if inner is None else _verbs(command, f"{before}{name} ")
    return found


#: every verb by its full name, such as `pool add`
VERBS = _verbs(_ROOT)


def parsed(words: Sequence[str]) -> str:
    """The verb of a typed command. Raises what the command line raises when a name, option or value is wrong.

    What stands before the program's name is left out, and so is what the shell takes: redirections and pipes.
    """
    rest = list(words[words.index("nightmill") + 1 :])
    cut = next((index for index, word in enumerate(rest) if word in (">", "|", "<")), len(rest))
    name = next(name for name in (" ".join(rest[:2]), rest[0]) if name in VERBS)
    VERBS[name].make_context(name, rest[len(name.split()) : cut]).close()
    return name
