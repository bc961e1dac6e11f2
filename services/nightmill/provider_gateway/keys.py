"""Provider keys: from a named environment variable or a file of mode 600, read once at start, shown to nobody."""

import base64
import binascii
import stat
from collections.abc import Mapping
from pathlib import Path

from nightmill.kernel.domain.settings import KeySource

#: how secrets of Standard Webhooks begin
_PREFIX = "whsec_"


class KeyUnusable(Exception):
    """A key that is missing or unsafe; the text names place and remedy, and never the key."""


def read_key(source: KeySource, environment: Mapping[str, str]) -> str:
    """The key. Raises `KeyUnusable`."""
    if source.env is not None:
        key, place = environment.get(source.env, ""), f"environment variable {source.env}"
        if not key.strip():
            raise KeyUnusable(f"{place} is not set; export it and start provider_gateway again")
    else:
        key, place = _read_file(Path(source.file or "").expanduser()), f"key file {source.file}"
    key = key.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise KeyUnusable(f"{place} does not hold one key on one line of printable ASCII")
    return key


def signing_key(source: KeySource, environment: Mapping[str, str]) -> bytes:
    """The key that a provider signs its notices with, from a secret of Standard Webhooks. Raises `KeyUnusable`."""
    secret = read_key(source, environment).removeprefix(_PREFIX)
    try:
        key = base64.b64decode(secret, validate=True)
    except binascii.Error:
        key = b""
    if not key:
        place = f"environment variable {source.env}" if source.env is not None else f"key file {source.file}"
        raise KeyUnusable(f"{place} holds no webhook secret: it is not {_PREFIX} and base64")
    return key


def _read_file(path: Path) -> str:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            raise KeyUnusable(f"key file {path} can be read by others (mode {mode:o}); run: chmod 600 {path}")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise KeyUnusable(f"key file {path} can not be read: {reason}") from error
