"""Where the world reaches into a process: log, blobs, targets and executor, with points where it may be killed.

Every seam is the product's own class with a point before and after its durable steps; nothing is replaced that the
product decides with.
"""

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, BinaryIO

from nightmill.kernel.domain.ids import digest
from nightmill.kernel.runtime.log import Outgoing, Place, Record, Timing
from nightmill.kernel.runtime.memory import MemoryBroker, MemoryLog, MemorySession
from nightmill.kernel.runtime.memory.log import MemoryReader
from nightmill.kernel.runtime.memory.partition import Partition
from nightmill.kernel.runtime.service import Unavailable
from nightmill.kernel.store.blobs import BlobMissing, BlobStore
from nightmill.kernel.wire.messages import ItemSettled
from nightmill.publisher.targets import Targets
from nightmill.publisher.targets.files import FilesTarget
from nightmill.publisher.targets.port import Incomplete, Overtaken, Publication, Published, StagedPart, Target
from nightmill.publisher.targets.tables import VersionFile

#: what a process tells the world at each point: its name. The world may kill it there, or let others go first.
Point = Callable[[str], None]


class Killed(BaseException):
    """The process is gone in this moment."""


class SimulatedBroker(MemoryBroker):
    """Answers quickly where there is nothing to read: it is asked hundreds of thousands of times."""

    def place(self, place: Place) -> Partition:
        found = self._places.get(place)
        return super().place(place) if found is None else found

    def read(self, place: Place, offset: int, limit: int) -> tuple[list[Record], int]:
        if offset >= self.place(place).end:
            return [], offset
        return super().read(place, offset, limit)

    def let_markers_come(self) -> None:
        """Some markers come with time, though nobody reads."""
        if self.stagger is not None:
            self._mark_some(self.stagger)


class SimulatedSession(MemorySession):
    """Remembers what it commits, for the world to look at when it is committed."""

    records: list[Outgoing]
    keep_ask: Callable[[], bool]

    def commit(self, records: Iterable[Outgoing], positions: Mapping[Place, int]) -> None:
        self.records = list(records)
        super().commit(self.records, positions)

    def send_now(self, records: Iterable[Outgoing]) -> None:
        """Fire and forget: some never arrive."""
        super().send_now([record for record in records if self.keep_ask()])


class SimulatedReader(MemoryReader):
    """Reads late what a view only looks for; whoever waits for records gets them."""

    def __init__(self, broker: MemoryBroker, is_blind: Callable[[], bool]) -> None:
        super().__init__(broker, "")
        self._is_blind = is_blind

    def poll(self, timeout_s: float, limit: int) -> Sequence[Record]:
        return [] if timeout_s == 0 and self._is_blind() else super().poll(timeout_s, limit)


class SimulatedLog(MemoryLog):
    """The log of one process."""

    def __init__(
        self, broker: MemoryBroker, timing: Timing, keep_ask: Callable[[], bool], is_blind: Callable[[], bool]
    ) -> None:
        super().__init__(broker, "", timing)
        self._keep_ask, self._is_blind = keep_ask, is_blind
        self.opened: SimulatedSession | None = None

    def reader(self) -> SimulatedReader:
        return SimulatedReader(self.broker, self._is_blind)

    def session(self, group: str, instance: str, topics: Sequence[str]) -> MemorySession:
        self.opened = SimulatedSession(self.broker, "", group, instance, topics, self._timing)
        self.opened.keep_ask = self._keep_ask
        return self.opened


class Turns(Executor):
    """An executor whose work is done when the scheduler says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, lambda: fn(*args, **kwargs)))
        return future

    def turn(self) -> None:
        """Do what was submitted first."""
        future, work = self.waiting.pop(0)
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.waiting.clear()


class SimulatedBlobs(BlobStore):
    """Blobs in memory, shared by all processes. `is_away` is asked at each use."""

    def __init__(self, blobs: dict[str, bytes], is_away: Callable[[], bool]) -> None:
        self._blobs, self._is_away = blobs, is_away

    def exists(self, name: str) -> bool:
        return name in self._blobs

    def put(self, data: bytes) -> str:
        self._check()
        name = digest(data)
        self._blobs[name] = data
        return name

    def get(self, name: str) -> bytes:
        self._check()
        if name not in self._blobs:
            raise BlobMissing(f"blob {name} is not here")
        return self._blobs[name]

    def open(self, name: str) -> BinaryIO:
        return io.BytesIO(self.get(name))

    def _check(self) -> None:
        if self._is_away():
            raise Unavailable("blob store: no space left; free space or fix the disk")


class SimulatedTarget(FilesTarget):
    """Files, with a point after each durable step. `rival` is told of each pointer before it is created."""

    def __init__(
        self,
        root: Path,
        blobs: BlobStore,
        point: Point,
        is_away: Callable[[], bool],
        rival: Callable[[Path, int], None],
    ) -> None:
        super().__init__(root, blobs)
        self._point, self._is_away, self._rival = point, is_away, rival

    def stage(self, batch_id: str, settled: Sequence[ItemSettled]) -> StagedPart:
        self._check("stage")
        part = super().stage(batch_id, settled)
        self._point("staged")
        return part

    def publish(self, publication: Publication) -> Published | Overtaken | Incomplete:
        self._check("publish")
        return super().publish(publication)

    def _write_files(self, publication: Publication) -> list[VersionFile] | Incomplete:
        files = super()._write_files(publication)
        self._point("version written")
        return files

    def _switch(self, publication: Publication, manifest: dict[str, Any]) -> Published | Overtaken:
        self._point("manifest written")
        self._rival(self._root, publication.version)
        switched = super()._switch(publication, manifest)
        self._point("pointer set")
        return switched

    def _check(self, doing: str) -> None:
        self._point(doing)
        if self._is_away():
            raise Unavailable("staging results: no space left on device; free space or mend the disk")


class SimulatedTargets(Targets):
    """One target a dataset and process."""

    def __init__(
        self,
        results: Path,
        blobs: BlobStore,
        point: Point,
        is_away: Callable[[], bool],
        rival: Callable[[Path, int], None],
    ) -> None:
        super().__init__(results, blobs)
        self._make: Callable[[Path], Target] = lambda root: SimulatedTarget(root, blobs, point, is_away, rival)
        self._made: dict[str, Target] = {}

    def of(self, kind: str, dataset_id: str) -> Target:
        if dataset_id not in self._made:
            self._made[dataset_id] = self._make(self._results_dir / dataset_id)
        return self._made[dataset_id]
