"""The bulk side of one world: its provider, its faults, its jobs, its checks."""

from pathlib import Path
from typing import TYPE_CHECKING

from nightmill.kernel.domain.settings import Config
from nightmill.kernel.store.blobs import BlobStore
from nightmill.provider_gateway.bulk.worker import Worker
from simulation.bulk.checks import BulkChecks
from simulation.bulk.jobs import TIMING, bulk_jobs, with_bulk
from simulation.bulk.mix import BulkDraw, BulkMix
from simulation.bulk.provider import BatchApi
from simulation.bulk.routes import Routes
from simulation.bulk.runner import SimulatedRunner
from simulation.bulk.wire import SimulatedWire
from simulation.user import Job

if TYPE_CHECKING:
    from simulation.process import Process
    from simulation.world import World


class BulkLane:
    """What a seed that draws bulk jobs has beside the rest."""

    list_lag_ms = TIMING.list_lag

    def __init__(self, world: "World", drawn: BulkDraw) -> None:
        self.world = world
        self.random, self.mix, self.shape = drawn.random, drawn.mix, drawn.shape
        self.api = BatchApi(world, self)
        self.routes = Routes(self.api)
        self.checks = BulkChecks(self)

    def config(self, config: Config) -> Config:
        return with_bulk(config, self.shape)

    def with_jobs(self, jobs: list[Job]) -> list[Job]:
        """The jobs of the seed with those of the bulk lane, or these alone."""
        mine = bulk_jobs(self.world, self.shape)
        return mine if self.shape.alone else [*jobs, *mine]

    def runner(self, process: "Process", path: str, blobs: BlobStore) -> SimulatedRunner:
        """What carries out the errands of a process's life."""
        wire = SimulatedWire(self, process, request_ms=TIMING.request)

        def clock_ms() -> int:
            return process.now_ms

        worker = Worker(Path(path), wire, blobs=blobs, clock_ms=clock_ms, request_s=TIMING.request / 1000)
        return SimulatedRunner(self, process, worker, wire, path)

    def calm_down(self) -> None:
        """No more faults."""
        self.mix = BulkMix()

    def happens(self, fault: str, *, times: int = 1) -> bool:
        """Whether a fault strikes at this opportunity, which is worth several."""
        chance: float = getattr(self.mix, fault) * times
        return chance > 0 and self.random.random() < chance

    def point(self, process: "Process", what: str) -> None:
        """A process is in the middle of an errand: others may go first, and it may die here."""
        self.world.moments.at_errand(process, what, dies=self.happens("crash_in_errand"))
