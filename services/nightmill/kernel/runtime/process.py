"""One service as a process: signals, readiness, the loop, and what becomes of its errors.

Exit codes: 0 after an orderly stop; 1 when it must be started again (the supervisor does); 2 when a person must act
first (settings, a hole in the log, a message that no topic takes).
"""

import gc
import logging
import os
import signal
import time
from pathlib import Path
from types import FrameType

from nightmill.kernel.runtime.disk import DiskRefused, refusal
from nightmill.kernel.runtime.kafka import KafkaLog
from nightmill.kernel.runtime.log import Fenced, LogUnavailable, OffsetHole, OutcomeUnknown, Timing, Unfit
from nightmill.kernel.runtime.loop import Loop
from nightmill.kernel.runtime.observe import metrics
from nightmill.kernel.runtime.service import Service, Unavailable
from nightmill.kernel.runtime.settings import Settings
from nightmill.kernel.runtime.transaction import Pace

log = logging.getLogger(__name__)

_IDLE_POLL_S = 0.5
_BUSY_POLL_S = 0.02

#: what ends a process for reasons outside it: a later start may go well
SURROUNDINGS = (LogUnavailable, Fenced, OutcomeUnknown, Unavailable, DiskRefused, OSError)

#: services whose silence stops others are noticed sooner, and commit at once
_TIMING = {"rate_governor": Timing(session_timeout_ms=2000, transaction_timeout_ms=3000)}
_PACE = {
    "rate_governor": Pace(commit_gap_ms=0, commit_every_ms=20),
    # a block is thousands of items
    "planner": Pace(poll_records=1),
    # few large inserts: ClickHouse makes a part of each
    "ledger": Pace(commit_gap_ms=1000, commit_every_ms=2000, commit_messages=20_000),
}

#: Rows and messages hold no cycles, and many of them live long: looking for cycles every 700 objects took a tenth of
#: the CPU of a busy service.
_GC_THRESHOLDS = (50_000, 20, 100)


class _Stop:
    """Set by SIGTERM or SIGINT."""

    def __init__(self) -> None:
        self.asked = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True


def run_service(service: Service, settings: Settings) -> int:
    """Run until told to stop; returns the exit code. Needs the main thread (signals)."""
    stop = _Stop()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    if settings.metrics_port is not None:
        metrics.serve(settings.metrics_port)
    try:
        return _run(service, settings, stop)
    except OffsetHole as error:
        log.critical("records are gone that were not handled", extra={"action": "offset_hole", "reason": str(error)})
        return 2
    except Unfit as error:
        log.critical("a message does not fit its topic", extra={"action": "message_unfit", "reason": str(error)})
        return 2
    except SURROUNDINGS as error:
        return stopped_by(error, settings.home)


def stopped_by(error: Exception, home: Path) -> int:
    """Say why a process ends that its surroundings do not let work; returns its exit code, 1: start it again."""
    reason = str(error)
    if isinstance(error, OSError):
        reason = refusal(Path(error.filename) if isinstance(error.filename, str) else home, error)
    extra = {"action": "service_stops", "cause": type(error).__name__, "reason": reason}
    log.error("stopping", extra=extra, exc_info=error if isinstance(error, OSError) else None)
    return 1


def _run(service: Service, settings: Settings, stop: _Stop) -> int:
    kafka = KafkaLog(settings.bootstrap, settings.namespace, settings.partitions, _TIMING.get(service.name))
    loop = Loop(
        service,
        kafka,
        instance=settings.instance,
        state_dir=settings.state_dir / f"{service.name}-{settings.instance}",
        clock_s=time.monotonic,
        pace=_PACE.get(service.name),
    )
    ready = settings.run_dir / f"{service.name}.ready"
    ready.parent.mkdir(parents=True, exist_ok=True)
    ready.unlink(missing_ok=True)
    while not stop.asked and not loop.partitions:
        loop.step(_now_ms(), _BUSY_POLL_S)
    ready.write_text(str(os.getpid()))
    log.info("service ready", extra={"action": "service_ready", "partitions": loop.partitions})
    committed = False
    while not stop.asked:
        committed = loop.step(_now_ms(), _patience_s(service, committed=committed)).committed
    loop.close()
    ready.unlink(missing_ok=True)
    log.info("service stopped", extra={"action": "service_stopped"})
    return 0


def _patience_s(service: Service, *, committed: bool) -> float:
    """How long to wait for input. What was waiting for a commit goes on at the next tick, with or without input."""
    if service.goes_on():
        return 0.0
    return _BUSY_POLL_S if committed or service.busy() else _IDLE_POLL_S


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
