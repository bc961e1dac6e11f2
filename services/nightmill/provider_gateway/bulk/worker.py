"""Errands carried out: inputs, uploads, creates, polls, downloads and the reading of results; and that on threads.

A pool of threads for each kind of work, so that a long download keeps no poll waiting. What goes wrong with a request
is an outcome; anything else is a defect, and `completed` raises it where the process can end of it.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path

from nightmill.kernel.runtime.service import Unavailable
from nightmill.kernel.store.blobs import BlobStore
from nightmill.provider_gateway.bulk import errands as e
from nightmill.provider_gateway.bulk.fetching import STRANGE, fetch, read
from nightmill.provider_gateway.bulk.input import Writer
from nightmill.provider_gateway.bulk.requests import Requests, dialect_of
from nightmill.provider_gateway.bulk.sweeping import DOWNLOAD, tidy
from nightmill.provider_gateway.bulk.wire import Broken, Wire
from nightmill.provider_gateway.failures import failure

#: threads by kind of work
_THREADS = {"build": 1, "transfer": 3, "request": 4, "read": 1}
_KINDS: dict[type[e.Errand], str] = {
    e.Build: "build",
    e.Upload: "transfer",
    e.Fetch: "transfer",
    e.Read: "read",
}
#: a download that nobody went on with for so long is not worth its room
_KEEP_MS = 8 * 86_400_000


class Worker:
    """Carries errands out, each in whatever thread asks for it.

    `folder` is this process's own; downloads that an earlier life began there go on. `request_s` is the deadline of a
    short request, a create included: what `Timing.request` says.
    """

    def __init__(
        self, folder: Path, wire: Wire, *, blobs: BlobStore, clock_ms: Callable[[], int], request_s: float
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder, clock_ms())
        self._folder, self._wire, self._blobs = folder, wire, blobs
        self._requests = Requests(wire, request_s=request_s, clock_ms=clock_ms)
        self._writer = Writer(folder, blobs)
        self._lock = threading.Lock()
        self._fetching: set[str] = set()  #: submissions whose downloads have a writer

    def carry_out(self, errand: e.Errand) -> e.Outcome:
        """What came of it."""
        try:
            return self._do(errand)
        except Broken as error:
            found = failure(error.signal)
            return e.Unsure(failure=found) if error.sent else e.Refused(failure=found)
        except (Unavailable, OSError) as error:
            return e.Blocked(reason=str(error))

    def close(self) -> None:
        """Break off what is under way."""
        self._writer.stop()
        self._wire.close()

    @contextmanager
    def _alone(self, submission: str) -> Iterator[None]:
        """Nobody else writes its downloads meanwhile: a partition may come back while an earlier look still fetches."""
        with self._lock:
            if submission in self._fetching:
                raise Unavailable(f"results of {submission} are being fetched")
            self._fetching.add(submission)
        try:
            yield
        finally:
            with self._lock:
                self._fetching.discard(submission)

    def _do(self, errand: e.Errand) -> e.Outcome:
        match errand:
            case e.Build():
                return self._writer.build(errand, dialect_of(errand.access))
            case e.Fetch():
                with self._alone(errand.row.submission_id):
                    return fetch(errand, self._wire, self._folder / errand.row.submission_id)
            case e.Read():
                return read(errand, self._blobs.put)
            case e.Tidy():
                return tidy(self._folder, errand)
            case e.Remove():
                for left in self._folder.glob(f"{errand.name}*"):
                    left.unlink(missing_ok=True)
                return self._requests.ask(errand)
            case _:
                return self._requests.ask(errand)


class ThreadRunner:
    """Satisfies `Runner`: a worker's errands on threads. `folder` and `request_s` are the worker's."""

    def __init__(
        self,
        folder: Path,
        *,
        blobs: BlobStore,
        authorizations: Mapping[str, str],
        clock_ms: Callable[[], int],
        request_s: float,
    ) -> None:
        self._clock_ms = clock_ms
        self._worker = Worker(folder, Wire(authorizations), blobs=blobs, clock_ms=clock_ms, request_s=request_s)
        self._pools = {kind: ThreadPoolExecutor(n, f"bulk-{kind}") for kind, n in _THREADS.items()}
        self._numbers = count(1)
        self._ended: deque[e.Ended] = deque()
        self._died: BaseException | None = None

    def start(self, errand: e.Errand) -> int:
        number, started_at_ms = next(self._numbers), self._clock_ms()
        pool = self._pools[_KINDS.get(type(errand), "request")]
        future = pool.submit(self._worker.carry_out, errand)
        future.add_done_callback(partial(self._note, number, started_at_ms))
        return number

    def completed(self) -> Sequence[e.Ended]:
        if self._died is not None:
            raise RuntimeError("an errand of the bulk lane has failed") from self._died
        return [self._ended.popleft() for _ in range(len(self._ended))]

    def close(self) -> None:
        self._worker.close()
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)

    def _note(self, number: int, started_at_ms: int, future: Future[e.Outcome]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            self._died = error
        else:
            self._ended.append(e.Ended(number=number, outcome=future.result(), started_at_ms=started_at_ms))


def _sweep(folder: Path, now_ms: int) -> None:
    """Inputs of an earlier life are made anew; its downloads and strange lines are kept, unless they are old."""
    for old in folder.glob("*.jsonl"):
        old.unlink()
    for old in (*folder.glob(f"*{DOWNLOAD}"), *folder.glob(f"{STRANGE}/*")):
        if now_ms - old.stat().st_mtime_ns // 1_000_000 > _KEEP_MS:
            old.unlink()
