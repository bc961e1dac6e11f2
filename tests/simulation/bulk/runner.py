"""The `Runner` of the simulation: an errand is carried out when the scheduler says so, and its end is noticed later."""

from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING

from nightmill.provider_gateway.bulk import errands as e
from nightmill.provider_gateway.bulk.worker import Worker
from simulation.bulk.wire import SimulatedWire
from simulation.disk import DiskFull

if TYPE_CHECKING:
    from simulation.bulk.lane import BulkLane
    from simulation.process import Process


class SimulatedRunner:
    """Satisfies `Runner`. `due`: what its threads can do now."""

    def __init__(self, lane: "BulkLane", process: "Process", worker: Worker, wire: SimulatedWire, path: str) -> None:
        self._lane, self._process, self._worker, self._wire, self._path = lane, process, worker, wire, path
        self._numbers = count(1)
        self._waiting: list[tuple[int, int, e.Errand]] = []  #: number, start, errand
        self._carried: list[tuple[int, e.Ended]] = []  #: with the world's time at which its end is noticed
        self._ended: list[e.Ended] = []

    # -- the port

    def start(self, errand: e.Errand) -> int:
        number = next(self._numbers)
        self._waiting.append((number, self._process.now_ms, errand))
        return number

    def completed(self) -> Sequence[e.Ended]:
        ended, self._ended = self._ended, []
        return ended

    def close(self) -> None:
        self._waiting.clear()

    # -- the other side

    @property
    def is_idle(self) -> bool:
        return not (self._waiting or self._carried or self._ended)

    def due(self) -> list[Callable[[], None]]:
        now_ms = self._lane.world.now_ms
        steps: list[Callable[[], None]] = []
        if self._waiting:
            steps.append(self._carry_out)
        if any(at_ms <= now_ms for at_ms, _ in self._carried):
            steps.append(self._notice)
        return steps

    def _carry_out(self) -> None:
        lane = self._lane
        number, started_at_ms, errand = self._waiting.pop(lane.random.randrange(len(self._waiting)))
        self._wire.took_ms = 0
        outcome = self._outcome(errand)
        ended = e.Ended(number=number, outcome=outcome, started_at_ms=started_at_ms)
        self._carried.append((lane.world.now_ms + self._wire.took_ms, ended))
        lane.point(self._process, f"with {type(errand).__name__} carried out")

    def _outcome(self, errand: e.Errand) -> e.Outcome:
        if isinstance(errand, e.Build | e.Fetch):
            try:
                self._lane.world.disks.check_room(self._path)
            except DiskFull as error:
                return e.Blocked(reason=str(error))
        return self._worker.carry_out(errand)

    def _notice(self) -> None:
        now_ms = self._lane.world.now_ms
        self._ended += [ended for at_ms, ended in self._carried if at_ms <= now_ms]
        self._carried = [(at_ms, ended) for at_ms, ended in self._carried if at_ms > now_ms]


class IdleRunner:
    """Of a world without bulk jobs."""

    def start(self, errand: e.Errand) -> int:
        raise AssertionError(f"nobody asked for {type(errand).__name__}")

    def completed(self) -> Sequence[e.Ended]:
        return ()

    def close(self) -> None:
        return
