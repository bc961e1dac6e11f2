"""The installation's bearer token: a file that only its owner may read, made at the api's first start."""

import hmac
import os
import secrets
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from nightmill.api.errors import ApiError
from nightmill.kernel.runtime.settings import SettingsError

_MODE = 0o600
_BEARER = HTTPBearer(auto_error=False, description="the content of the home's file `token`")


def ensure_token(path: Path) -> str:
    """The token of a file, which is made when it does not exist.

    Raises `SettingsError` for a file that others may read, that is empty or that can not be read.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            _make(path)
        mode = path.stat().st_mode & 0o777
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"{path}: the token can not be read or made: {error}; delete it or fix its rights"
        ) from error
    if mode & 0o077:
        raise SettingsError(f"{path}: others may read the token (mode {mode:o}); chmod 600 {path}")
    if not token:
        raise SettingsError(f"{path}: the token is empty; delete the file and start again")
    return token


def check_token(
    request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)] = None
) -> None:
    """Dependency of every route under /v1."""
    token: str = request.app.state.token
    if given is None or not hmac.compare_digest(given.credentials.encode(), token.encode()):
        remedy = "send 'Authorization: Bearer …' with the content of the home's file token"
        what = "no bearer token" if given is None else "wrong token"
        raise ApiError(401, "unauthorised", what, remedy)


def _make(path: Path) -> None:
    """Whole or not at all, and never readable by others in between."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(secrets.token_urlsafe(32) + "\n")
    scratch.replace(path)
