"""`nightmill pool add`: a pool that is checked whole before one byte of pools.yaml changes.

A key is no part of it (`sources`).
"""

import fcntl
import os
import re
import shlex
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from nightmill.kernel.domain.addresses import flaw
from nightmill.kernel.domain.settings import LOCAL_MODEL, Pool
from nightmill.kernel.resources import resource
from nightmill.kernel.runtime.settings import load_config
from nightmill.local.errors import LaptopError
from nightmill.local.pools.text import NotEditable, as_text, with_pool
from nightmill.planner.meter import ENCODINGS
from nightmill.provider_gateway.adapters import ADAPTERS

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
_ENDPOINTS = ("/chat/completions", "/completions", "/responses", "/embeddings", "/messages", "/models")
_BOM = "\ufeff"


def add_pool(folder: Path, name: str, fields: Mapping[str, Any]) -> Path:
    """Write the pool `name` into the pools.yaml of `folder`; returns the file. Raises `LaptopError`, `SettingsError`.

    `fields` are those of a pool in the file, without what was not given.
    """
    if folder.resolve() == resource("deploy", "config").resolve():
        raise LaptopError(
            f"{folder} ships with nightmill and is not changed",
            remedy=f"cp -r {shlex.quote(str(folder))} my-config, then add --config my-config here and at nightmill up",
        )
    _check_name(name)
    _check_fields(fields)
    path = (folder / "pools.yaml").resolve()
    with _locked(folder):
        if name in load_config(folder).pools:
            raise LaptopError(
                f"{path}: pool {name} is there already", remedy="choose another name, or change it in the file"
            )
        text = path.read_bytes().decode()
        try:
            changed = with_pool(text.removeprefix(_BOM), name, fields)
        except NotEditable:
            raise LaptopError(
                f"{path}: written in a way into which no pool can be put safely",
                remedy="put it in by hand, below pools:\n" + as_text(name, fields).rstrip(),
            ) from None
        _replace(path, (_BOM if text.startswith(_BOM) else "") + changed)
    return path


def _check_name(name: str) -> None:
    if not _NAME.match(name):
        raise LaptopError(
            f"NAME = {name!r}: a pool's name has 1 to 63 of a-z, A-Z, 0-9, '.', '_' and '-'",
            remedy="begin it with a letter or a digit, such as openai-mini",
        )


def _check_fields(fields: Mapping[str, Any]) -> None:
    try:
        pool = Pool.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        option = "--" + str(first["loc"][-1]).replace("_", "-") if first["loc"] else ""
        said = first["msg"].removeprefix("Value error, ")
        problem = f"{option} = {first['input']!r}: {said}" if option else said
        raise LaptopError(problem, remedy="nightmill pool add --help") from None
    if pool.provider not in ADAPTERS:
        known = ", ".join(sorted(ADAPTERS))
        raise LaptopError(f"--provider = {pool.provider!r}: not known", remedy=f"use one of: {known}")
    if pool.tokenizer not in ENCODINGS:
        known = ", ".join(ENCODINGS)
        raise LaptopError(f"--tokenizer = {pool.tokenizer!r}: not known", remedy=f"use one of: {known}")
    if not pool.model.strip() or not pool.model.isprintable():
        raise LaptopError(f"--model = {pool.model!r}: no name", remedy="write it as the provider does")
    if pool.base_url != LOCAL_MODEL:
        _check_url(pool.base_url)


def _check_url(url: str) -> None:
    remedy = "write where the provider's API begins, such as https://api.openai.com/v1"
    wrong = flaw(url)
    if wrong is not None and any(sign in url for sign in "@?#"):
        remedy = "leave it out; name the key with --key-env or --key-file"
        raise LaptopError(f"--base-url {wrong} (not shown, as it may hold a key)", remedy=remedy)
    if wrong is not None:
        raise LaptopError(f"--base-url = {url!r} {wrong}", remedy=remedy)
    path = urlsplit(url).path.rstrip("/")
    ending = next((each for each in _ENDPOINTS if path.endswith(each)), None)
    if ending is not None:
        raise LaptopError(f"--base-url = {url!r}: names one call, not the API", remedy=f"leave out {ending}")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One at a time, so that two that add a pool do not lose one of them."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise LaptopError(
            f"{folder}: {error.strerror}", remedy="name a folder with pools.yaml, prices.yaml, retry.yaml, tenants.yaml"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, text: str) -> None:
    """Readers, and a crash, find the old or the new file. Its mode stays."""
    try:
        descriptor, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with open(descriptor, "wb") as file:
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
            Path(scratch).replace(path)
        finally:
            Path(scratch).unlink(missing_ok=True)
    except OSError as error:
        raise LaptopError(
            f"{path}: can not be written: {error.strerror}", remedy="mend its rights or free space; nothing was changed"
        ) from error
