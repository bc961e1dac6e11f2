"""The api's place on the log: one thread that owns the views and the writer.

Handlers read `board`, which is replaced and never changed, and hand the thread what is to be written. A job that was
just accepted is on the board at once, so whoever submitted it can ask for it.
"""

import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from nightmill.api.board import Board, suffixes
from nightmill.kernel.runtime.log import Log, LogUnavailable, Place, Writer
from nightmill.kernel.runtime.outbound import Outbound
from nightmill.kernel.runtime.table import Views, viewed_by
from nightmill.kernel.wire.channel import Message
from nightmill.kernel.wire.messages import (
    BatchPlanRow,
    DatasetRow,
    JobCommanded,
    JobSubmitted,
    LaneChoiceRow,
    PublicationRow,
    StallReported,
    WebhookReceived,
)
from nightmill.kernel.wire.topics import ATTEMPT_JUDGED, ITEM_SETTLED, JOB_SUBMITTED
from nightmill.kernel.wire.values import replace

log = logging.getLogger(__name__)

_REFRESH_S = 0.2
_OF_THE_LEDGER = (ATTEMPT_JUDGED.name, ITEM_SETTLED.name)
_MEASURE_S = 5.0  #: between two looks at the ledger
_ANSWER_S = 60.0
_START_S = 120.0
_STOP_S = 5.0

_Result = TypeVar("_Result")
_Task = tuple[Callable[[], Any], "Future[Any]"]


class KeyConflict(Exception):
    """The Idempotency-Key belongs to a job with other content."""

    def __init__(self, job_id: str) -> None:
        super().__init__(job_id)
        self.job_id = job_id


class Mirror:
    """Views of one installation, kept fresh from `start` to `close`. Safe from several threads."""

    def __init__(self, kafka: Log, clock_s: Callable[[], float], died: Callable[[], None] = lambda: None) -> None:
        """`died` is called when the thread ends by itself, which is a defect: the process must be started again."""
        self.board = Board()
        self.problem: str | None = None  #: why the views are not fresh
        self._kafka, self._clock_s, self._died = kafka, clock_s, died
        self._tasks: queue.Queue[_Task] = queue.Queue()
        self._stopping = threading.Event()
        self._loaded: Future[None] = Future()
        self._accepted: dict[str, JobSubmitted] = {}  #: by job: written, or to be written again under the same id
        self._written: set[str] = set()  #: jobs known to be stored
        self._ledger_behind: int | None = None
        self._measured_s = 0.0
        self._measuring: Future[int | None] | None = None
        self._beside = ThreadPoolExecutor(1, "lag")  #: asking takes long while the broker is away
        self._thread = threading.Thread(target=self._run, name="mirror", daemon=True)

    def start(self) -> None:
        """Load the views to their end. Blocks; raises `LogUnavailable`."""
        self._thread.start()
        self._loaded.result(_START_S)

    def close(self) -> None:
        self._stopping.set()
        self._tasks.put((lambda: None, Future()))
        self._thread.join(_STOP_S)
        self._beside.shutdown(wait=False, cancel_futures=True)

    def submit(self, job: JobSubmitted, *, repeatable: bool) -> JobSubmitted:
        """Write a job; with `repeatable` an earlier one of the same dataset and id suffix is returned instead.

        Returns when it is stored. Raises `KeyConflict`, `LogUnavailable`: then it may be stored, so ask again with the
        same key.
        """
        return self._on_thread(lambda: self._submit(job, repeatable))

    def command(self, order: JobCommanded) -> None:
        """Write a command; returns when it is stored. Raises `LogUnavailable`."""
        self._on_thread(lambda: self._write(order))

    def hint(self, notice: WebhookReceived) -> None:
        """Write a provider's notice; returns when it is stored. Raises `LogUnavailable`."""
        self._on_thread(lambda: self._write(notice))

    def probe(self) -> None:
        """Ask the broker for an answer now. Raises `LogUnavailable`."""
        self._on_thread(lambda: self._probe_reader.end(Place(JOB_SUBMITTED.name, 0)))

    # -- on the thread

    def _run(self) -> None:
        try:
            self._open()
        except BaseException as error:
            self._loaded.set_exception(error)
            return
        try:
            self._loaded.set_result(None)
            while not self._stopping.is_set():
                self._refresh()
                self._measure()
                self._serve()
        except Exception:
            log.critical("the mirror ends by a defect", extra={"action": "mirror_died"}, exc_info=True)
            self._died()
        finally:
            self._views.close()
            self._probe_reader.close()
            self._writer.close()

    def _open(self) -> None:
        # its own topic is read back: a job is known, and its key found again, before the planner has seen it
        channels = list(dict.fromkeys([*viewed_by("api"), JOB_SUBMITTED]))
        self._views = Views(self._kafka, channels, self._clock_s)
        self._probe_reader = self._kafka.reader()
        self._writer: Writer = self._kafka.writer()
        self._outbound = Outbound("api", self._kafka.partitions)
        self._publish_board()

    def _refresh(self) -> None:
        try:
            if self._views.refresh():
                self._publish_board()
            self.problem = None
        except LogUnavailable as error:
            if self.problem is None:
                log.warning("views are not fresh", extra={"action": "views_stale", "reason": str(error)})
            self.problem = str(error)

    def _measure(self) -> None:
        """How far the ledger is behind what it is to write, from time to time: it may be away and can not say so."""
        if self._measuring is None:
            if self._clock_s() - self._measured_s >= _MEASURE_S:
                self._measuring = self._beside.submit(self._lag_of_ledger)
            return
        if not self._measuring.done():
            return
        behind, self._measuring = self._measuring.result(), None
        self._measured_s = self._clock_s()
        if behind != self._ledger_behind:
            self._ledger_behind = behind
            self._publish_board()

    def _lag_of_ledger(self) -> int | None:
        # each partition ends with the marker of a transaction, which is an offset and no record
        markers = self._kafka.partitions
        try:
            return sum(max(0, self._kafka.lag("ledger", topic) - markers) for topic in _OF_THE_LEDGER)
        except LogUnavailable:
            return None

    def _serve(self) -> None:
        try:
            task, future = self._tasks.get(timeout=_REFRESH_S)
        except queue.Empty:
            return
        try:
            future.set_result(task())
        except Exception as error:
            future.set_exception(error)

    def _publish_board(self) -> None:
        submitted = {row.job_id: row for row in self._values(JobSubmitted)}
        for job_id in self._written - submitted.keys():
            submitted[job_id] = self._accepted[job_id]
        self.board = Board(
            submitted=submitted,
            plans={row.batch_id: row for row in self._values(BatchPlanRow)},
            publications={row.batch_id: row for row in self._values(PublicationRow)},
            datasets={row.dataset_id: row for row in self._values(DatasetRow)},
            stalls={row.stall_id: row for row in self._values(StallReported)},
            lanes={row.choice_id: row for row in self._values(LaneChoiceRow)},
            partitions=self._kafka.partitions,
            ledger_behind=self._ledger_behind,
        )

    def _values(self, message: type[_Result]) -> list[_Result]:
        return list(self._views.by_message[message].values())

    def _submit(self, job: JobSubmitted, repeatable: bool) -> JobSubmitted:
        if repeatable:
            known = dict(suffixes([*self._accepted.values(), *self.board.submitted.values()]))
            earlier = known.get((job.dataset_id, job.job_id.rpartition("-")[2]))
            if earlier is not None:
                if not _same(earlier, job):
                    raise KeyConflict(earlier.job_id)
                if earlier.job_id in self.board.submitted:
                    return earlier
                job = earlier
        self._accepted[job.job_id] = job
        self._write(job)
        self._written.add(job.job_id)
        self._publish_board()
        return job

    def _write(self, message: Message) -> None:
        self._writer.write(self._outbound.records([message]))

    def _on_thread(self, task: Callable[[], _Result]) -> _Result:
        future: Future[_Result] = Future()
        self._tasks.put((task, future))
        try:
            return future.result(_ANSWER_S)
        except TimeoutError as error:
            raise LogUnavailable(f"no answer in {_ANSWER_S:.0f} s") from error


def _same(earlier: JobSubmitted, job: JobSubmitted) -> bool:
    """Whether two submissions ask for the same, whenever they came."""
    wait_ms = None if job.deadline_at_ms is None else job.deadline_at_ms - job.submitted_at_ms
    moved = replace(
        job,
        job_id=earlier.job_id,
        submitted_at_ms=earlier.submitted_at_ms,
        deadline_at_ms=None if wait_ms is None else earlier.submitted_at_ms + wait_ms,
    )
    return moved == earlier
