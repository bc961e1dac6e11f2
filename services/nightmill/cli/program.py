"""Commands as they can be typed here: with the program's name as it was called, and the installation's folder."""

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

_NAME = "nightmill"
_COMMAND = re.compile(rf"(?<![\w./'-]){_NAME}(?= [a-z])")


def typed(command: str, home: Path) -> str:
    """`command`, which begins with the plain name, for the installation in `home`.

    The folder is added when no variable and no default names it.
    """
    from nightmill.kernel.runtime.settings import read_settings

    home = home.expanduser().absolute()
    flag = "" if home == read_settings(os.environ).home else f" --home {shlex.quote(str(home))}"
    return shlex.quote(_called()) + command.removeprefix(_NAME) + flag


def as_called(text: str) -> str:
    """`text`, in which commands begin with the plain name, as they can be typed here."""
    name = shlex.quote(_called())
    return _COMMAND.sub(lambda _: name, text)


def _called() -> str:
    """The program's name as it was called; a path below this folder is made relative, one that PATH finds a name."""
    given = Path(sys.argv[0])
    if given.name != _NAME:
        return _NAME  # as a module, or from another program
    if shutil.which(_NAME) == str(given):
        return _NAME
    return os.path.relpath(given) if given.is_relative_to(Path.cwd()) else str(given)
