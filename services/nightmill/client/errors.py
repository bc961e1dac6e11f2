"""What a caller of the client has to expect.

NightmillError
 ├─ BadInput     a file, pipeline or setting can not be used; nothing was started      exit code 2
 ├─ Refused      the api refused: `code` says why; nothing was started                 exit code 2 (4 for a defect)
 └─ NotRunning   the api can not be reached, or something it needs is away             exit code 5
     └─ LedgerAway   the ledger alone; jobs and results do without it
"""

from http import HTTPStatus
from typing import ClassVar


class NightmillError(Exception):
    """Something a person can act on: `message` names place and value, `remedy` what to do."""

    exit_code: ClassVar[int] = 4

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(f"{message}; {remedy}" if remedy else message)
        self.message = message
        self.remedy = remedy


class BadInput(NightmillError):
    """Input, pipeline or settings can not be used."""

    exit_code = 2


class NotRunning(NightmillError):
    """There is nobody to ask."""

    exit_code = 5


class LedgerAway(NotRunning):
    """The api answers, and says that the ledger does not: nobody waits for that, as jobs and results go on."""


class Refused(NightmillError):
    """The api's refusal; `code` is stable."""

    exit_code = 2

    def __init__(self, message: str, remedy: str, *, code: str, status: int) -> None:
        super().__init__(message, remedy)
        self.code = code
        self.status = status


class Broken(NightmillError):
    """The api failed by a defect of its own, or broke off an answer."""

    exit_code = 4


def of_response(status: int, error: object) -> NightmillError:
    """The api's error as an exception."""
    fields = error if isinstance(error, dict) else {}
    code, message = str(fields.get("code", "unknown")), str(fields.get("message", f"HTTP status {status}"))
    remedy = str(fields.get("remedy", ""))
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        return (LedgerAway if code == "ledger_unavailable" else NotRunning)(message, remedy)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Broken(message, remedy)
    return Refused(message, remedy, code=code, status=status)
