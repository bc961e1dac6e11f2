"""Where a pool's key and its webhook secrets are, as `nightmill pool add` is told: variables, and files of mode 600.

A key is no part of what is written: the file gets the name of a variable or of a file. What was written in a place
where a key may have been pasted by mistake is not repeated in an error.
"""

import os
import re
import shlex
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from nightmill.kernel.domain.settings import KeySource
from nightmill.local.errors import LaptopError
from nightmill.provider_gateway.keys import KeyUnusable, read_key, signing_key

_VARIABLE = re.compile(r"^[A-Z_][A-Z0-9_]{0,63}\Z")
_OTHERS = 0o077
#: how keys and secrets of providers begin, so that one is known where a path is expected
_PASTED = ("sk-", "whsec_")


def key_of(variable: str | None, file: str | None) -> dict[str, str] | None:
    """The field `key` of a pool, checked; None when neither is given. Raises `LaptopError`."""
    if variable is not None and file is not None:
        raise LaptopError("--key-env and --key-file are both given", remedy="a pool has one key: leave one out")
    if variable is not None:
        return {"env": _checked_variable("--key-env", variable, example="OPENAI_API_KEY")}
    if file is None:
        return None
    return {"file": _checked_file("--key-file", file, lambda source: read_key(source, {}))}


def webhook_secrets_of(variables: Sequence[str], files: Sequence[str]) -> list[dict[str, str]]:
    """The field `webhook_secrets` of a pool, checked, variables first; all are in force. Raises `LaptopError`."""
    env, file = "--webhook-secret-env", "--webhook-secret-file"
    found = [{"env": _checked_variable(env, each, example="OPENAI_WEBHOOK_SECRET")} for each in variables]
    found += [{"file": _checked_file(file, each, lambda source: signing_key(source, {}))} for each in files]
    twice = next((each for number, each in enumerate(found) if each in found[:number]), None)
    if twice is not None:
        (place,) = twice.values()
        raise LaptopError(f"{place} is given twice as a webhook secret", remedy="leave one out")
    return found


def _checked_variable(option: str, given: str, *, example: str) -> str:
    if not _VARIABLE.match(given):
        raise LaptopError(
            f"{option} is no name of a variable (not shown, as it may be a key)",
            remedy=f"export the key and write the variable's name, in capitals, such as {option} {example}",
        )
    return given


def _checked_file(option: str, given: str, read: Callable[[KeySource], object]) -> str:
    """The file's whole path as it is written into pools.yaml. `read` raises `KeyUnusable` if there is no key in it."""
    path = Path(given).expanduser().absolute()
    try:
        status = path.stat()
    except OSError as error:
        # a key that was pasted here names no file
        shown = str(path) if "/" in given and not given.startswith(_PASTED) else "(not shown, as it may be a key)"
        raise LaptopError(
            f"{option} {shown}: {error.strerror}",
            remedy="write the key into a file, chmod 600 it, and name its path, such as ./openai.key",
        ) from error
    quoted = shlex.quote(str(path))
    if not stat.S_ISREG(status.st_mode):
        raise LaptopError(f"{option} {path}: is no file", remedy="name a file that holds the key on one line")
    if status.st_uid != os.geteuid():
        raise LaptopError(
            f"{option} {path}: belongs to another user (uid {status.st_uid})",
            remedy=f"sudo chown {os.geteuid()} {quoted}; chmod 600 {quoted}",
        )
    if stat.S_IMODE(status.st_mode) & _OTHERS:
        mode = stat.S_IMODE(status.st_mode)
        raise LaptopError(f"{option} {path}: can be read by others (mode {mode:o})", remedy=f"chmod 600 {quoted}")
    try:
        read(KeySource(file=str(path)))
    except KeyUnusable as error:
        raise LaptopError(f"{option}: {error}", remedy="write the key alone into it, on one line") from error
    return str(path)
