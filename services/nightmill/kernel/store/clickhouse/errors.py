"""What ClickHouse's errors mean here: an outage that passes, a refusal of what this program wrote, a bad query."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from clickhouse_connect.driver.exceptions import ClickHouseError, OperationalError

from nightmill.kernel.runtime.service import Unavailable

READONLY = 164
_CODE = re.compile(r"Code: (\d+)")
_ERRNO = re.compile(r"\[Errno \d+\] ([A-Za-z ]+)")
#: engine errors that pass when something outside changes: time, load, memory, disk, network, keeper, read-only tables.
#: https://github.com/ClickHouse/ClickHouse/blob/master/src/Common/ErrorCodes.cpp, 2026-11
_PASSING = frozenset({159, 160, 202, 209, 210, 236, 241, 242, 243, 252, 279, 319, 425, 439, 745, 999})
_DISK_SIGNS = ("No space left on device", "Too many open files", "File too large")
_NOT_ENOUGH_SPACE = 243


class StoreLocked(Exception):
    """Another process owns the embedded engine's folder."""


class StoreError(Exception):
    """The database refused what this program wrote: a defect or a foreign change, not an outage."""


class QueryFailed(Exception):
    """The database refused a query; `code` is its own error code, 0 when it gave none."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def mapped_writes(where: str) -> Iterator[None]:
    """Raises `Unavailable` or `StoreError` for what the engine raises; `where` names the engine."""
    try:
        yield
    except (ClickHouseError, RuntimeError) as error:
        if _passes(error):
            raise Unavailable(f"ClickHouse ({where}) does not take rows: {line(error)}{_remedy(error)}") from error
        raise StoreError(f"ClickHouse ({where}) refused: {line(error)}") from error


@contextmanager
def mapped_reads(where: str) -> Iterator[None]:
    """Raises `Unavailable` or `QueryFailed` for what the engine raises."""
    try:
        yield
    except (ClickHouseError, RuntimeError) as error:
        if isinstance(error, OperationalError) and _code(error) == 0:
            raise Unavailable(f"ClickHouse ({where}) does not answer: {line(error)}") from error
        raise QueryFailed(line(error), _code(error)) from error


def _passes(error: Exception) -> bool:
    if _code(error) in _PASSING or (isinstance(error, OperationalError) and _code(error) == 0):
        return True
    # the engine says so under the code of whatever it was doing
    return any(sign in str(error) for sign in _DISK_SIGNS)


def _remedy(error: Exception) -> str:
    return "; free space there" if _code(error) == _NOT_ENOUGH_SPACE or _DISK_SIGNS[0] in str(error) else ""


def _code(error: Exception) -> int:
    found = _CODE.search(str(error))
    return int(found.group(1)) if found else 0


def line(error: Exception) -> str:
    """The engine's words without its stack, address and version; of a broken connection the system's alone."""
    broken = _ERRNO.search(str(error))
    if broken is not None and _code(error) == 0:
        return broken.group(1)
    text = str(error).rpartition("DB::Exception:")[2]
    return re.sub(r"\s+", " ", text.split("(version", maxsplit=1)[0]).strip()[:500]
