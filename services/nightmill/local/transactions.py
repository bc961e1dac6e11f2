"""What `nightmill doctor` says of transactions that stay open on the configured broker, be it `up`'s own or another.

Read-only. `up` ends those that hang on its own broker; elsewhere a person does, by what stands here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from nightmill.kernel.runtime.kafka.hanging import OLD_MS
from nightmill.kernel.runtime.kafka.lasting import Lasting, lasting
from nightmill.kernel.runtime.kafka.requests import Refused
from nightmill.kernel.runtime.log import LogUnavailable
from nightmill.local.doctor import Check
from nightmill.local.home import Home
from nightmill.local.options import is_external
from nightmill.local.status import running_state
from nightmill.local.supervision import BROKER

_NAME = "transactions"
_MOST = 20  #: lines; of more, the number is told


def configured_broker(home: Home, kafka: str, environment: Mapping[str, str]) -> tuple[str, bool] | None:
    """`HOST:PORT` of the broker that is in use or would be, and whether `up` looks after it; None: none runs yet."""
    if state := running_state(home):
        return state.kafka, any(each.name == BROKER for each in state.processes)
    place = kafka if is_external(kafka) else environment.get("NIGHTMILL_KAFKA")
    return None if place is None else (place, False)


def check_transactions(bootstrap: str, *, is_mended: bool, now_ms: int | None = None) -> list[Check]:
    """A note for each transaction that is open for longer than any of ours can be; one line if there is none."""
    try:
        found = lasting(bootstrap, time.time_ns() // 1_000_000 if now_ms is None else now_ms)
    except (OSError, ValueError, Refused, LogUnavailable) as error:
        remedy = "start it, or name the broker with --kafka HOST:PORT"
        return [Check(name=_NAME, ok=False, detail=f"{bootstrap} can not be asked: {error}", remedy=remedy)]
    if not found:
        detail = f"none is open for more than {OLD_MS // 1000} s at {bootstrap}"
        return [Check(name=_NAME, ok=True, detail=detail)]
    checks = [_check(each, bootstrap, is_mended=is_mended) for each in found[:_MOST]]
    if len(found) > _MOST:
        checks.append(Check(name=_NAME, ok=False, detail=f"and {len(found) - _MOST:,} more", remedy="end these first"))
    return checks


def remedy_of(each: Lasting, bootstrap: str, *, is_mended: bool) -> str:
    """What to do about an open transaction."""
    if not each.hangs:
        return "its coordinator ends it at its timeout; if its writer is alive, look there why it does not commit"
    if is_mended:
        return "up ends it within a minute, as its coordinator had decided"
    if each.commit:
        return (
            "do not abort it: it was committed, and Kafka's tools can only abort, which loses its records; "
            "copy them first, by a reader with isolation.level=read_uncommitted"
        )
    doubt = "" if each.commit is False else "if its writer did not commit it: "
    return (
        f"{doubt}kafka-transactions.sh --bootstrap-server {bootstrap} abort --topic {each.topic} "
        f"--partition {each.partition} --start-offset {each.first_offset}"
    )


def _check(each: Lasting, bootstrap: str, *, is_mended: bool) -> Check:
    state = "hangs" if each.hangs else "is open"
    detail = (
        f"{each.topic}[{each.partition}] from offset {each.first_offset} {state} for {each.age_ms // 1000:,} s "
        f"at {bootstrap}; readers of committed records stop there"
    )
    return Check(name=_NAME, ok=False, detail=detail, remedy=remedy_of(each, bootstrap, is_mended=is_mended))
