"""Ends the process when a call of the client does not come back.

The client (librdkafka 2.16) takes a timeout for each call of a transaction and does not always keep it: sending offsets
waits without end when the group's coordinator has left the cluster (https://github.com/confluentinc/librdkafka/issues/5511,
open on 2026-11-29). Closing waits without end when an assignment comes in the middle of it (issue 4884 there, open on
2026-11-30). What became of a transaction is then as unknown as after a timeout, so the same follows: exit, restart,
restore. Nothing less helps: the thread that waits can not be called back, nor the client closed before it is.
"""

import logging
import os
import threading
import time
from types import TracebackType

log = logging.getLogger(__name__)

EXIT_CODE = 1  #: start it again


class Overdue:
    """`with overdue: call()` gives the call `limit_s` seconds. For one thread; calls do not nest."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._deadline_s: float | None = None
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="overdue-calls", daemon=True).start()

    def __enter__(self) -> None:
        self._deadline_s = time.monotonic() + self._limit_s

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._deadline_s = None

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(self._limit_s / 8):
            deadline_s = self._deadline_s
            if deadline_s is not None and time.monotonic() >= deadline_s:
                extra = {"action": "service_stops", "cause": "OutcomeUnknown", "limit_s": self._limit_s}
                log.critical("a call of the Kafka client does not come back", extra=extra)
                os._exit(EXIT_CODE)
